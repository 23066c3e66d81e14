"""Secrets that are sent as they are, such as a key of a provider of models: a file of ciphertexts under a master key.

The file (`secrets.file`) may lie where configuration lies, in a repository or a ConfigMap too: each value is sealed
with AES-256-GCM, and its tenant, its name and the master key's id are bound to it, so that one that was exchanged for
another, changed, or sealed elsewhere is refused. The master key comes from the environment or from a file of its own.
A process opens all secrets when it starts, without the database, and keeps those values while it runs.

This hides secrets from anyone who reads the file, a backup of it or a repository. It does not hide them from anyone who
has the master key, and does not notice when somebody replaces the file by an older one.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from myria.access.tenants import checked_tenant
from myria.errors import ConfigurationError, InvalidArgument, MyriaError, SecretNotFound
from myria.settings import MASTER_KEY_VARIABLE, SecretsSettings
from myria.settings.files import written_whole

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Json = dict[str, Any]

MOST_BYTES = 16 * 1024
"""The most bytes of one secret, in UTF-8."""

_MOST_FILE_BYTES = 4 * 1024 * 1024
_KEY_BYTES, _NONCE_BYTES = 32, 12
_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY_FORMAT = "32 random bytes in base64, as `head -c 32 /dev/urandom | base64` prints them"


@dataclass(frozen=True, slots=True)
class MasterKey:
    """A key of AES-256, and the id by which a ciphertext names it: a digest, from which it cannot be computed."""

    key_id: str
    cipher: AESGCM = field(repr=False)

    @classmethod
    def parse(cls, text: str, where: str) -> MasterKey:
        """Decode a master key from its base64 text.

        Raises:
            ConfigurationError: the text is not a master key; the message shows nothing of it.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - only where secrets are kept

        try:
            raw = base64.b64decode(text, altchars=b"-_" if {"-", "_"} & set(text) else None, validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != _KEY_BYTES:
            raise ConfigurationError(
                f"No master key stands in {where}: it must be {_KEY_FORMAT}.", field="secrets.master_key_file"
            )
        return cls(hashlib.sha256(b"myria.master.v1\n" + raw).hexdigest()[:16], AESGCM(raw))


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedSecret:
    """A secret as the file holds it."""

    tenant: str
    name: str
    key_id: str
    nonce: bytes
    ciphertext: bytes
    kept_at: str

    @classmethod
    def seal(cls, key: MasterKey, tenant: str, name: str, value: str) -> SealedSecret:
        """Encrypt a value under a master key."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = key.cipher.encrypt(nonce, value.encode(), _associated_data(tenant, name, key.key_id))
        kept_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return cls(tenant=tenant, name=name, key_id=key.key_id, nonce=nonce, ciphertext=sealed, kept_at=kept_at)

    @classmethod
    def from_json(cls, entry: Any, where: str) -> SealedSecret:
        """Return the sealed secret that an entry of the file describes.

        Raises:
            ConfigurationError: the entry is malformed.
        """
        try:
            texts: dict[str, str] = {field.name: entry[field.name] for field in fields(cls)}
            nonce, ciphertext = (base64.b64decode(texts.pop(name), validate=True) for name in ("nonce", "ciphertext"))
            if not all(isinstance(text, str) for text in texts.values()):
                raise TypeError("a field is no text")
            checked_tenant(texts["tenant"])
            checked_name(texts["name"])
        except (KeyError, TypeError, ValueError, MyriaError) as error:
            named = {name: str(entry.get(name))[:64] for name in ("tenant", "name")} if isinstance(entry, dict) else ""
            raise _unusable(f"An entry that is no secret stands in {where}: {named or 'no object'}.") from error
        return cls(nonce=nonce, ciphertext=ciphertext, **texts)

    def to_json(self) -> Json:
        """Return this secret as an entry of the file."""
        return {
            **self.to_listing(),
            "nonce": base64.b64encode(self.nonce).decode(),
            "ciphertext": base64.b64encode(self.ciphertext).decode(),
        }

    def to_listing(self) -> Json:
        """Return the fields that may be shown to people: all but the ciphertext."""
        return {"tenant": self.tenant, "name": self.name, "key_id": self.key_id, "kept_at": self.kept_at}

    def opened(self, keys: Sequence[MasterKey], where: str) -> str:
        """Decrypt this secret, and return its value.

        Raises:
            ConfigurationError: it was sealed under another key, or is not what was sealed under this name.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only where secrets are kept

        named = f"The secret {self.name} of the tenant {self.tenant} in {where}"
        for key in keys:
            if key.key_id == self.key_id:
                try:
                    return key.cipher.decrypt(
                        self.nonce, self.ciphertext, _associated_data(self.tenant, self.name, self.key_id)
                    ).decode()
                except (InvalidTag, ValueError):  # not `from`: nothing of either may be shown
                    raise _unusable(
                        f"{named} is not what was sealed under this name: it was changed, or exchanged for another. "
                        "Set it anew with `myria secret set`, or put the file back from a backup."
                    ) from None
        raise _unusable(
            f"{named} was sealed under another master key ({self.key_id[:16]}); add that key behind the first, or "
            "set it anew with `myria secret set`."
        )


@dataclass(frozen=True, slots=True)
class Secrets:
    """The decrypted secrets of one process; only `get` gives one away."""

    values: Mapping[tuple[str, str], str] = field(repr=False)

    def get(self, named: str) -> str | None:
        """Return the secret `NAME` of the tenant `default`, or `TENANT/NAME`; None where there is none."""
        tenant, slash, name = named.rpartition("/")
        return self.values.get((tenant if slash else "default", name))


class Vault:
    """The file of secrets. Changes are made one at a time, and appear whole or not at all.

    Args:
        path: the file; it need not exist yet.
        keys: master keys; the first one encrypts, and each of them may decrypt.

    Every method raises ConfigurationError where the file cannot be read or written, or a secret in it that must be
    opened cannot be; the message names it.
    """

    def __init__(self, path: Path, keys: Sequence[MasterKey]) -> None:
        self._path = path
        self._keys = keys
        self._where = f"the file {path}"

    @classmethod
    def configured(cls, settings: SecretsSettings, environ: Mapping[str, str] | None = None) -> Vault:
        """Return the file that the settings name, with the master keys.

        Raises:
            ConfigurationError: the settings name no file, or no valid master key.
        """
        if settings.file is None:
            raise _unusable("secrets.file names no file: set it (MYRIA_SECRETS_FILE) to keep secrets.")
        return cls(Path(settings.file), _master_keys(settings, os.environ if environ is None else environ))

    def opened(self) -> Secrets:
        """Decrypt all secrets of the file."""
        sealed = self.sealed()
        return Secrets({(each.tenant, each.name): each.opened(self._keys, self._where) for each in sealed})

    def sealed(self) -> list[SealedSecret]:
        """Return the sealed secrets of the file."""
        try:
            with self._path.open("rb") as opened:
                raw = opened.read(_MOST_FILE_BYTES + 1)
        except OSError as error:
            raise _unusable(f"secrets.file: {self._path}: {error.strerror}.") from error
        try:
            document = orjson.loads(raw) if len(raw) <= _MOST_FILE_BYTES else None
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict) or not isinstance(document.get("secrets"), list):
            raise _unusable(f"No secrets can be read in {self._where}.")
        if document.get("version") != _VERSION:
            raise _unusable(f"A newer version of Myria wrote {self._where}.")
        found = [SealedSecret.from_json(entry, self._where) for entry in document["secrets"]]
        if len({(each.tenant, each.name) for each in found}) < len(found):
            raise _unusable(f"Two secrets of one name stand in {self._where}.")
        return found

    def keep(self, tenant: str, name: str, value: str) -> SealedSecret:
        """Seal a secret and store it; it replaces one of the same tenant and name.

        Raises:
            InvalidArgument: the name or the value is not allowed.
        """
        checked_name(name)
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            size = 0
        if not value.strip() or "\0" in value or not 0 < size <= MOST_BYTES:
            raise InvalidArgument(f"a secret must be a text of 1 to {MOST_BYTES} bytes in UTF-8", field="value")
        new_secret = SealedSecret.seal(self._keys[0], checked_tenant(tenant), name, value)
        with self._changing(may_be_absent=True) as entries:
            entries.pop((tenant, name), None)
            for other in entries.values():  # refuse a wrong master key, which could not open them
                other.opened(self._keys, self._where)
            self._write([*entries.values(), new_secret])
        return new_secret

    def remove(self, tenant: str, name: str) -> None:
        """Remove a secret, even one that cannot be decrypted.

        Raises:
            SecretNotFound: there is none of this name.
        """
        with self._changing() as entries:
            if entries.pop((tenant, name), None) is None:
                raise SecretNotFound(f"the tenant {tenant} has no secret {name}", name=name)
            self._write(list(entries.values()))

    def rekey(self) -> int:
        """Seal all secrets again under the first master key; return how many were sealed under another key before."""
        first = self._keys[0]
        with self._changing() as entries:
            changed = 0
            for owner_and_name, each in entries.items():
                value = each.opened(self._keys, self._where)
                changed += each.key_id != first.key_id
                sealed = SealedSecret.seal(first, each.tenant, each.name, value)
                entries[owner_and_name] = replace(sealed, kept_at=each.kept_at)
            self._write(list(entries.values()))
        return changed

    @contextmanager
    def _changing(self, *, may_be_absent: bool = False) -> Iterator[dict[tuple[str, str], SealedSecret]]:
        """Yield the entries by (tenant, name) under a lock against other writers.

        The folder is locked, not the file: each write replaces the file, so a lock on it would be lost.
        """
        try:
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise _unusable(f"secrets.file: {self._path.parent}: {error.strerror}.") from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            absent = may_be_absent and not self._path.exists()
            yield {(each.tenant, each.name): each for each in ([] if absent else self.sealed())}
        finally:
            os.close(folder)

    def _write(self, entries: Sequence[SealedSecret]) -> None:
        ordered = sorted(entries, key=lambda each: (each.tenant, each.name))
        document = {"version": _VERSION, "secrets": [each.to_json() for each in ordered]}
        content = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        target = self._path.resolve()
        try:
            with written_whole(target) as file:
                file.write(content)
        except OSError as error:
            raise _unusable(f"secrets.file: {target}: {error.strerror}.") from error


def opened_secrets(settings: SecretsSettings, environ: Mapping[str, str] | None = None) -> Secrets:
    """Return the decrypted secrets that a process may use; none if the settings name no file.

    Raises:
        ConfigurationError: the file cannot be read, or a secret cannot be opened; the message names it.
    """
    if settings.file is None:
        return Secrets({})
    return Vault.configured(settings, environ).opened()


def checked_name(name: str) -> str:
    """Check the name of a secret, and return it unchanged.

    Raises:
        InvalidArgument: the name is not allowed.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidArgument(
            "the name of a secret must hold letters, digits, ., _ and -, begin with a letter or digit, and have at "
            "most 64 characters",
            field="name",
        )
    return name


def _master_keys(settings: SecretsSettings, environ: Mapping[str, str]) -> list[MasterKey]:
    """Return the master keys, from the environment variable or the file: one or more, between commas or spaces."""
    keys_text = environ.get(MASTER_KEY_VARIABLE, "")
    path = settings.master_key_file
    if keys_text and path is not None:
        raise ConfigurationError(
            f"{MASTER_KEY_VARIABLE} and secrets.master_key_file both give the master key; leave one out.",
            field="secrets.master_key_file",
        )
    where = f"the variable {MASTER_KEY_VARIABLE}"
    if path is not None:
        where = f"the file {path} (secrets.master_key_file)"
        try:
            keys_text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"Nobody may read {where}, or it is not there.", field="secrets.master_key_file"
            ) from error
    texts = keys_text.replace(",", " ").split()
    if not texts:
        raise ConfigurationError(
            f"secrets.file needs a master key: put {_KEY_FORMAT}, into {MASTER_KEY_VARIABLE} or a file that "
            "secrets.master_key_file names.",
            field="secrets.master_key_file",
        )
    return [MasterKey.parse(text, where) for text in texts]


def _unusable(message: str) -> ConfigurationError:
    return ConfigurationError(message, field="secrets.file")


def _associated_data(tenant: str, name: str, key_id: str) -> bytes:
    """Return the associated data that a ciphertext is bound to; no part can hold the separator NUL."""
    return "\0".join(("myria.secret.v1", tenant, name, key_id)).encode()
