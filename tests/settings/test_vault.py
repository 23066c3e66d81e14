"""Secrets at rest: what is sealed, what is refused, and how the master key changes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from myria.access.vault import MOST_BYTES, Vault, opened_secrets
from myria.errors import ConfigurationError, InvalidArgument, SecretNotFound
from myria.settings import SecretsSettings

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
VALUE = "sk-or-v1-Zq8!secret/key+7f3a ü"


@pytest.fixture
def settings(tmp_path: Path) -> SecretsSettings:
    """A file that is not there yet."""
    return SecretsSettings(file=str(tmp_path / "secrets.json"))


def vault(settings: SecretsSettings, *keys: str) -> Vault:
    """Return the file under master keys."""
    return Vault.configured(settings, {"MYRIA_MASTER_KEY": ",".join(keys or (OLD,))})


def changed(settings: SecretsSettings, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the entries of the file by hand."""
    path = Path(settings.file or "")
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document["secrets"])
    path.write_text(json.dumps(document), encoding="utf-8")


def test_what_is_kept_is_opened_and_shown_nowhere(settings: SecretsSettings) -> None:
    """The file holds no value, only its owner may read it, and nothing that Python prints shows a value or a key."""
    sealing = vault(settings)
    kept = sealing.keep("default", "openrouter", VALUE)
    sealing.keep("team-a", "openrouter", "another")
    opened = opened_secrets(settings, {"MYRIA_MASTER_KEY": OLD})
    assert opened.get("openrouter") == VALUE
    assert opened.get("team-a/openrouter") == "another"
    assert opened.get("team-b/openrouter") is None
    path = Path(settings.file or "")
    assert path.stat().st_mode & 0o777 == 0o600
    shown = f"{path.read_text()}{opened!r}{kept!r}{sealing!r}{vars(sealing)!r}"
    for hidden in (VALUE, base64.b64encode(VALUE.encode()).decode(), OLD):
        assert hidden not in shown
    assert list(path.parent.iterdir()) == [path]


def test_the_same_value_is_never_sealed_alike(settings: SecretsSettings) -> None:
    """Each sealing has a nonce of its own, also of one name and value."""
    made = [vault(settings).keep("default", "one", VALUE) for _ in range(50)]
    assert len({each.nonce for each in made}) == 50
    assert len({each.ciphertext for each in made}) == 50


def test_a_ciphertext_that_was_exchanged_is_refused(settings: SecretsSettings) -> None:
    """Between names, and between tenants; the message names the secret and shows no value."""
    for tenant, name in (("default", "one"), ("default", "two"), ("team-a", "one")):
        vault(settings).keep(tenant, name, f"{VALUE} of {tenant} {name}")
    whole = Path(settings.file or "").read_bytes()
    for other in (1, 2):

        def swap(entries: list[dict[str, Any]], other: int = other) -> None:
            entries[0] |= {field: entries[other][field] for field in ("nonce", "ciphertext")}

        changed(settings, swap)
        with pytest.raises(ConfigurationError, match=r"The secret one of the tenant default .* exchanged") as refused:
            vault(settings).opened()
        assert VALUE not in str(refused.value)
        Path(settings.file or "").write_bytes(whole)


@pytest.mark.parametrize("field", ["nonce", "ciphertext"])
def test_every_changed_byte_is_refused(settings: SecretsSettings, field: str) -> None:
    """One flipped bit anywhere, a shorter text and a longer one are all noticed."""
    vault(settings).keep("default", "one", VALUE)
    whole = Path(settings.file or "").read_bytes()
    raw = base64.b64decode(json.loads(whole)["secrets"][0][field])
    forged = [bytes(byte ^ (place == at) for at, byte in enumerate(raw)) for place in range(len(raw))]
    for value in (*forged, raw[:-1], raw + b"\0", b""):
        encoded = base64.b64encode(value).decode()
        changed(settings, lambda entries, encoded=encoded: entries[0].update({field: encoded}))  # type: ignore[misc]
        with pytest.raises(ConfigurationError, match=r"The secret one of the tenant default .* was changed"):
            vault(settings).opened()
        Path(settings.file or "").write_bytes(whole)


def test_a_secret_of_another_master_key_is_named(settings: SecretsSettings) -> None:
    """It is refused as foreign, also where its entry claims to be of this key."""
    kept = vault(settings, OLD).keep("default", "one", VALUE)
    with pytest.raises(ConfigurationError, match=f"The secret one .* under another master key .{kept.key_id}"):
        vault(settings, NEW).opened()
    ours = vault(settings, NEW).sealed()[0].key_id
    assert ours == kept.key_id
    other = SecretsSettings(file=f"{settings.file}.other")
    foreign = vault(other, NEW).keep("default", "one", VALUE)
    changed(settings, lambda entries: entries[0].update(key_id=foreign.key_id))
    with pytest.raises(ConfigurationError, match=r"The secret one .* is not what was sealed"):
        vault(settings, NEW).opened()


def test_the_master_key_changes_without_a_stop(settings: SecretsSettings) -> None:
    """With the new key before the old one everything opens; after rekey the new one is enough, and the old one not."""
    for name in ("one", "two"):
        vault(settings, OLD).keep("default", name, f"{VALUE} {name}")
    both = vault(settings, NEW, OLD)
    both.keep("default", "three", "3")
    times = [each.kept_at for each in both.sealed()]
    assert both.rekey() == 2
    assert both.rekey() == 0
    assert vault(settings, NEW).opened().get("one") == f"{VALUE} one"
    assert [each.kept_at for each in both.sealed()] == times
    with pytest.raises(ConfigurationError, match="under another master key"):
        vault(settings, OLD).opened()


def test_a_change_that_cannot_be_made_changes_nothing(settings: SecretsSettings) -> None:
    """Where one secret cannot be opened, none is set or sealed anew beside it; it can be removed or set anew."""
    vault(settings, OLD).keep("default", "one", VALUE)
    whole = Path(settings.file or "").read_bytes()
    for refused in (lambda: vault(settings, NEW).keep("default", "two", VALUE), vault(settings, NEW).rekey):
        with pytest.raises(ConfigurationError, match="The secret one"):
            refused()
        assert Path(settings.file or "").read_bytes() == whole
    vault(settings, NEW).keep("default", "one", "anew")
    assert vault(settings, NEW).opened().get("one") == "anew"
    vault(settings, OLD).remove("default", "one")
    assert vault(settings, NEW).sealed() == []
    with pytest.raises(SecretNotFound):
        vault(settings, NEW).remove("default", "one")


def test_many_set_secrets_at_once(settings: SecretsSettings) -> None:
    """None is lost, and none is left half-written beside the file."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: vault(settings).keep("default", f"s{number}", str(number)), range(40)))
    opened = vault(settings).opened()
    assert [opened.get(f"s{number}") for number in range(40)] == [str(number) for number in range(40)]
    assert len(list(Path(settings.file or "").parent.iterdir())) == 1


def test_a_link_to_the_file_stays_one(settings: SecretsSettings, tmp_path: Path) -> None:
    """What it leads to is replaced, as where configuration is kept elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    Path(settings.file or "").symlink_to(tmp_path / "elsewhere" / "real.json")
    vault(settings).keep("default", "one", VALUE)
    assert Path(settings.file or "").is_symlink()
    assert vault(settings).opened().get("one") == VALUE


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "No secrets can be read"),
        ("[]", "No secrets can be read"),
        ('{"secrets": 1}', "No secrets can be read"),
        ('{"version": 2, "secrets": []}', "A newer version"),
        ('{"version": 1, "secrets": [[]]}', "no secret"),
        ('{"version": 1, "secrets": [{"tenant": "default", "name": "x"}]}', "no secret"),
        ("[" * 100_000, "No secrets can be read"),
        ("x" * (5 << 20), "No secrets can be read"),
    ],
)
def test_a_file_that_is_none_is_refused(settings: SecretsSettings, content: str, said: str) -> None:
    """Whatever stands in it, the message says that it is the file of secrets."""
    path = Path(settings.file or "")
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=said):
        vault(settings).opened()
    with pytest.raises(ConfigurationError, match=said):
        vault(settings).keep("default", "one", VALUE)
    assert path.read_text(encoding="utf-8") == content


def test_two_entries_of_one_name_are_refused(settings: SecretsSettings) -> None:
    """Which of them would count is nobody's guess."""
    vault(settings).keep("default", "one", VALUE)
    changed(settings, lambda entries: entries.append(entries[0]))
    with pytest.raises(ConfigurationError, match="Two secrets of one name"):
        vault(settings).opened()


@pytest.mark.parametrize("key", ["short", OLD[:-4], OLD + "AAAA", "ü" * 44, base64.b64encode(b"x" * 16).decode()])
def test_what_is_no_master_key_is_refused(settings: SecretsSettings, key: str) -> None:
    """The message says how to make one, and shows nothing of what was given."""
    with pytest.raises(ConfigurationError, match="MYRIA_MASTER_KEY: it must be 32 random bytes") as refused:
        vault(settings, key)
    assert key not in str(refused.value)


def test_the_master_key_stands_in_one_place(settings: SecretsSettings, tmp_path: Path) -> None:
    """In a file or the environment: in neither or both is refused, and the file may hold several lines."""
    with pytest.raises(ConfigurationError, match="needs a master key"):
        Vault.configured(settings, {})
    path = tmp_path / "master"
    filed = SecretsSettings(file=settings.file, master_key_file=str(path))
    with pytest.raises(ConfigurationError, match="master_key_file"):
        Vault.configured(filed, {})
    vault(settings, OLD).keep("default", "one", VALUE)
    path.write_text(f"{NEW}\n{OLD}\n", encoding="utf-8")
    assert opened_secrets(filed, {}).get("one") == VALUE
    with pytest.raises(ConfigurationError, match="leave one out"):
        Vault.configured(filed, {"MYRIA_MASTER_KEY": OLD})


def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    """No master key is needed then; a file that is named must be there."""
    assert opened_secrets(SecretsSettings(), {}).get("one") is None
    with pytest.raises(ConfigurationError, match=r"secrets\.file names no file"):
        Vault.configured(SecretsSettings(), {})
    with pytest.raises(ConfigurationError, match="No such file"):
        opened_secrets(SecretsSettings(file=str(tmp_path / "none")), {"MYRIA_MASTER_KEY": OLD})
    with pytest.raises(ConfigurationError, match="No such file"):
        vault(SecretsSettings(file=str(tmp_path / "none" / "none"))).keep("default", "one", VALUE)


@pytest.mark.parametrize("value", ["", " \n", "a\0b", "\ud800", "x" * (MOST_BYTES + 1)])
def test_what_cannot_be_a_secret_is_refused(settings: SecretsSettings, value: str) -> None:
    """And no file is made for it."""
    with pytest.raises(InvalidArgument, match="a secret must be a text"):
        vault(settings).keep("default", "one", value)
    for name in ("", "a b", "../x", "x" * 65, "a/b"):
        with pytest.raises(InvalidArgument, match="the name of a secret"):
            vault(settings).keep("default", name, VALUE)
    assert not Path(settings.file or "").exists()
