"""Putting the memory into a host's files, and taking it out again.

Each file is read, changed where it stands and read again: what comes of it must say what it said before and what was
put in, or nothing is written. The first change leaves a copy beside the file. Undoing takes out what was put in, and
puts back what the copy says stood there under the same name; what else has changed since stays.
"""

from __future__ import annotations

import copy
import json
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from myria.errors import ConfigurationError
from myria.values import value
from myria_cli.hosts import jsonc, toml_tables
from myria_cli.hosts.known import Form, Hooks, Host, Json

BACKUP_SUFFIX = ".before-myria"
MOST_BYTES = 64 * 1024 * 1024
"""The largest file that is changed: hosts keep histories in theirs."""

_BOM = "\ufeff"


@value
class Put:
    """A member of a group that is to have a value; None where it is to be taken out."""

    group: str
    name: str
    value: Json | None


@value
class Hook:
    """An element of the list of an event, known by how its command ends; None where it is to be taken out."""

    event: str
    ours: Callable[[Any], bool]
    value: Json | None


@value
class FileChange:
    """What becomes of one file. `before` is None where there is none; `after` is None where it goes."""

    path: Path
    before: str | None
    after: str | None
    told: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """Whether anything becomes of it."""
        return self.before != self.after

    @property
    def backup(self) -> Path:
        """Where the copy is."""
        return backup_of(self.path)


def backup_of(path: Path) -> Path:
    """Return where the copy of a file is."""
    return path.with_name(path.name + BACKUP_SUFFIX)


def planned(
    host: Host,
    *,
    file: Path,
    name: str,
    entry: Json | None,
    hooks_file: Path | None,
    command: str | None,
    show_key: bool = False,
) -> list[FileChange]:
    """Return what becomes of a host's files when the memory is put in, or taken out where `entry` is None.

    Args:
        file: where the servers are.
        hooks_file: where the hooks are, None where they are left alone.
        command: what the hooks run, None where they are taken out.
        show_key: whether what is told of a change shows what may be secret.

    Raises:
        ConfigurationError: a file cannot be read, or is not of its form.
    """
    puts: dict[Path, list[Put | Hook]] = {file: [Put(group=host.group, name=name, value=entry)]}
    if hooks_file is not None and host.hooks is not None:
        puts.setdefault(hooks_file, []).extend(_hooks(host, host.hooks, command))
    return [
        _change(path, host.form if path == file else "json", wanted, host, show_key=show_key)
        for path, wanted in puts.items()
    ]


def _hooks(host: Host, hooks: Hooks, command: str | None) -> list[Hook]:
    def ours(element: Any) -> bool:
        inner = element.get("hooks", [element]) if isinstance(element, dict) else []
        return isinstance(inner, list) and any(
            isinstance(one, dict) and f"myria hook {host.name}" in _plainly(one.get("command")) for one in inner
        )

    return [
        Hook(event=event, ours=ours, value=None if command is None else hooks.written(command))
        for event in hooks.events
    ]


def _plainly(command: Any) -> str:
    """Return a command as one writes it oneself: without quotes, and the program by its name."""
    text = str(command or "").replace('"', "").replace("'", "").replace("\\", "/").replace("myria.exe", "myria")
    return " ".join(word.rpartition("/")[2] if word.endswith("/myria") else word for word in text.split())


def _change(path: Path, form: Form, wanted: Sequence[Put | Hook], host: Host, *, show_key: bool) -> FileChange:
    before = _read(path)
    text = (before or "").removeprefix(_BOM)
    removing = all(one.value is None for one in wanted)
    told: list[str] = []
    try:
        data = _parsed(text, form)
        previous = _parsed((_read(backup_of(path)) or "").removeprefix(_BOM), form) if removing else {}
        after = text
        for one in wanted:
            if isinstance(one, Put):
                value = one.value if not removing else _at(previous, one.group, one.name)
                after, said = _with_put(
                    after, form, Put(group=one.group, name=one.name, value=value), show_key=show_key
                )
            else:
                after, said = _with_hook(after, one)
            told += said
        hooks = [one for one in wanted if isinstance(one, Hook)]
        if removing and form == "json":
            after = _without_empty(after, data, previous, host.group, [hook.event for hook in hooks])
        version = None if host.hooks is None or removing or not hooks else host.hooks.version
        if version is not None and "version" not in _parsed(after, form):
            after = jsonc.put(after, ("version",), version)
        _check(text, after, form, wanted, removing=removing)
    except (jsonc.NotJson, toml_tables.NotToml) as error:
        raise ConfigurationError(
            f"{path} cannot be changed safely: {error}. It is left as it is: mend it, or put in by hand what "
            f"`myria connect {host.name} --print` shows.",
            file=str(path),
        ) from error
    if after == text:
        return FileChange(path=path, before=before, after=before, told=())
    is_made_here = not backup_of(path).exists() and not any(mark in after for mark in ("//", "/*", "#"))
    is_gone = removing and is_made_here and not set(_parsed(after, form)) - {"version"}
    mark = _BOM if before is not None and before.startswith(_BOM) else ""
    return FileChange(path=path, before=before, after=None if is_gone else mark + after, told=tuple(told))


def _parsed(text: str, form: Form) -> Json:
    data = toml_tables.read(text) if form == "toml" else jsonc.read(text)
    if not isinstance(data, dict):
        raise jsonc.NotJson("it holds no object")
    return data


def _with_put(text: str, form: Form, put: Put, *, show_key: bool) -> tuple[str, list[str]]:
    present = _at(_parsed(text, form), put.group, put.name)
    if present == put.value:
        return text, []
    path = (put.group, put.name)
    told = _diff(form, path, present, put.value, show_key=show_key)
    if form == "toml":
        if put.value is None:
            return toml_tables.drop(text, put.group, put.name), told
        return toml_tables.put(text, put.group, put.name, put.value), told
    if put.value is None:
        return jsonc.drop(text, (put.group, put.name)), told
    return jsonc.put(text, (put.group, put.name), put.value), told


def _with_hook(text: str, hook: Hook) -> tuple[str, list[str]]:
    path = ("hooks", hook.event)
    elements = _at(_parsed(text, "json"), *path) or []
    if not isinstance(elements, list):
        raise jsonc.NotJson(f"hooks.{hook.event} is no list")
    places = [place for place, element in enumerate(elements) if hook.ours(element)]
    if hook.value is not None and [elements[place] for place in places] == [hook.value]:
        return text, []
    told: list[str] = []
    for place in reversed(places):
        told += _diff("json", path, elements[place], None, show_key=False)
        text = jsonc.drop(text, (*path, place))
    if hook.value is not None:
        told += _diff("json", path, None, hook.value, show_key=False)
        text = jsonc.add(text, path, hook.value)
    return text, told


def _without_empty(text: str, before: Json, previous: Json, group: str, events: Sequence[str]) -> str:
    """Return a text without what was made to hold what is taken out: empty now, not before, and not in the copy."""
    for path in (*(("hooks", event) for event in events), ("hooks",), (group,)):
        if _at(jsonc.read(text), *path) in ({}, []) and _at(before, *path) and _at(previous, *path) is None:
            text = jsonc.drop(text, path)
    return text


def _check(before: str, after: str, form: Form, wanted: Sequence[Put | Hook], *, removing: bool) -> None:
    """Refuse a change that says anything else than was asked for.

    Raises:
        NotJson: what else the file says has changed.
    """
    found = [_rest(_parsed(text, form), wanted, removing=removing) for text in (before, after)]
    data = _parsed(after, form)
    missing = not removing and any(
        _at(data, one.group, one.name) != one.value
        if isinstance(one, Put)
        else one.value not in (_at(data, "hooks", one.event) or [])
        for one in wanted
    )
    if found[0] != found[1] or missing:
        raise jsonc.NotJson("what else it says would change")


def _rest(data: Json, wanted: Sequence[Put | Hook], *, removing: bool) -> Json:
    """Return what a file says beside what is put in or taken out."""
    rest = copy.deepcopy(data)
    for one in wanted:
        group = rest.get(one.group if isinstance(one, Put) else "hooks")
        if not isinstance(group, dict):
            continue
        if isinstance(one, Put):
            group.pop(one.name, None)
        elif isinstance(group.get(one.event), list):
            group[one.event] = [element for element in group[one.event] if not one.ours(element)]
            if not group[one.event]:
                del group[one.event]
    for name in {one.group if isinstance(one, Put) else "hooks" for one in wanted}:
        if rest.get(name) == {}:
            del rest[name]
    if any(isinstance(one, Hook) for one in wanted):
        rest.pop("version", None)
    return rest


def _at(data: Any, *path: str) -> Any:
    for key in path:
        if not isinstance(data, dict):
            return None
        data = data.get(key)
    return data


_SECRET_GROUPS = ("headers", "env", "http_headers")


def masked(value: Any) -> Any:
    """Return what a host is told without what may be secret: texts of headers and of variables, references excepted."""
    if not isinstance(value, dict):
        return value
    hidden = {}
    for name, one in value.items():
        if name in _SECRET_GROUPS and isinstance(one, dict):
            hidden[name] = {inner: _hidden(text) for inner, text in one.items()}
        else:
            hidden[name] = one
    return hidden


def _hidden(text: Any) -> Any:
    if not isinstance(text, str):
        return "***"
    scheme, _, rest = text.rpartition(" ")
    return text if rest.startswith("$") else f"{scheme} ***".strip()


def entry_text(form: Form, path: Sequence[str], value: Json, *, show_key: bool = False) -> str:
    """Return what stands at a place of a host's file, as one would write it; what may be secret is masked."""
    value = value if show_key else masked(value)
    if form == "toml":
        return toml_tables.put("", path[0], path[1], value).rstrip("\n")
    nested: Any = value
    for key in reversed(path):
        nested = {key: nested}
    return json.dumps(nested, ensure_ascii=False, indent=2)


def _diff(form: Form, path: Sequence[str], before: Json | None, after: Json | None, *, show_key: bool) -> list[str]:
    """Return what goes and what comes at a place of a file, as a diff shows it."""
    lines = [f"@@ {'.'.join(path)} @@"]
    for sign, entry, shows in (("-", before, False), ("+", after, show_key)):
        if entry is None:
            continue
        if form == "toml":
            text = entry_text(form, path, entry, show_key=shows)
        else:
            text = json.dumps(entry if shows else masked(entry), ensure_ascii=False, indent=2)
        lines += [f"{sign}{line}" for line in text.splitlines()]
    return lines


def _read(path: Path) -> str | None:
    """Return the text of a file, None where there is none.

    Raises:
        ConfigurationError: it cannot be read as text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}", file=str(path)) from error
    if len(content) > MOST_BYTES:
        raise ConfigurationError(f"{path} is larger than {MOST_BYTES} bytes; change it by hand", file=str(path))
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path} is not UTF-8, so it is left as it is; save it as that", file=str(path)
        ) from error


def carry_out(change: FileChange, *, is_secret: bool, keeps_copy: bool) -> None:
    """Write a file, whole or not at all, and the copy of what it was where there is none yet.

    Its mode and owner stay; one that holds a secret is read by its owner alone.

    Raises:
        ConfigurationError: the file or its folder cannot be written, or somebody else changed it meanwhile.
    """
    path = Path(os.path.realpath(change.path))
    try:
        if _read(path) != change.before:
            raise ConfigurationError(f"{path} was changed meanwhile; run it again", file=str(path))
        status = path.stat() if change.before is not None else None
        mode = stat.S_IMODE(status.st_mode) if status is not None else 0o600
        if is_secret:
            mode &= 0o700
        path.parent.mkdir(parents=True, exist_ok=True)
        if keeps_copy and change.before is not None and not change.backup.exists():
            _write(change.backup, change.before, mode & 0o700, status)
        if change.after is None:
            path.unlink()
        else:
            _write(path, change.after, mode, status)
        if not keeps_copy:
            change.backup.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}", file=str(path)) from error


def _write(path: Path, text: str, mode: int, owner: os.stat_result | None) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        if owner is not None and hasattr(os, "chown"):
            with suppress(PermissionError):
                os.chown(name, owner.st_uid, owner.st_gid)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
