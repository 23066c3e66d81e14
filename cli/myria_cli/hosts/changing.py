"""Putting the memory into a host's files, and taking it out again.

What a file is to say is worked out on its data; its text is changed where it says something else, and read again: if it
does not say just that, nothing is written. The first change leaves a copy beside the file, an empty one where there was
no file. Undoing takes out what was put in, and puts back what the copy says stood there under the same name; what else
has changed since stays.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from myria.errors import ConfigurationError
from myria.settings.files import written_whole
from myria_cli.hosts import jsonc, toml
from myria_cli.hosts.known import Form, Host, Json

BACKUP_SUFFIX = ".before-myria"

_BOM = "\ufeff"
_SECRET_GROUPS = ("headers", "env", "http_headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What a place in a file, a member of a group, is to hold; None to take it out.

    With `ours` the place holds a list of which only the elements are changed that `ours` knows: those of Myria.
    """

    group: str
    name: str
    value: Json | None
    ours: Callable[[Any], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """What becomes of one file. `before` is None where there is none; `after` is None where it goes."""

    path: Path
    before: str | None
    after: str | None
    diff: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """Whether anything becomes of it."""
        return self.before != self.after

    @property
    def backup(self) -> Path:
        """Where the copy of what the file was before the first change is; it is empty where there was no file."""
        return self.path.with_name(self.path.name + BACKUP_SUFFIX)

    @property
    def copy(self) -> Path | None:
        """The copy, where it holds something."""
        return self.backup if self.backup.exists() and self.backup.stat().st_size else None


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
        show_key: whether the diff of a change shows what may be secret.

    Raises:
        ConfigurationError: a file cannot be read, or is not of its form.
    """
    edits = {file: [Edit(group=host.group, name=name, value=entry)]}
    if hooks_file is not None and host.hooks is not None:
        element = None if command is None else host.hooks.written(command)
        edits.setdefault(hooks_file, []).extend(
            Edit(group="hooks", name=event, value=element, ours=lambda one: _runs_hook(one, host.name))
            for event in host.hooks.events
        )
    return [
        _change(path, host.form if path == file else "json", wanted, host, show_key=show_key)
        for path, wanted in edits.items()
    ]


def _runs_hook(element: Any, host: str) -> bool:
    """Return whether an element of an event's list runs our hook, however the command is quoted."""
    inner = element.get("hooks", [element]) if isinstance(element, dict) else []
    return isinstance(inner, list) and any(
        isinstance(one, dict) and f"myria hook {host}" in _plainly(one.get("command")) for one in inner
    )


def _plainly(command: Any) -> str:
    """Return a command as one writes it oneself: without quotes, and the program by its name."""
    text = str(command or "").replace('"', "").replace("'", "").replace("\\", "/").replace("myria.exe", "myria")
    return " ".join(word.rpartition("/")[2] if word.endswith("/myria") else word for word in text.split())


def _change(path: Path, form: Form, edits: Sequence[Edit], host: Host, *, show_key: bool) -> FileChange:
    before = _read(path)
    unchanged = FileChange(path=path, before=before, after=before, diff=())
    removing = all(edit.value is None for edit in edits)
    kept = _read(unchanged.backup) if removing else None
    mark = _BOM if (before or "").startswith(_BOM) else ""
    text, copy_text = ((one or "").removeprefix(_BOM) for one in (before, kept))
    try:
        data, wanted, copy = (_data(form, one) for one in (text, text, copy_text))
        for edit in edits:
            _carry_over(edit, wanted, copy)
        if any(edit.ours for edit in edits):
            wanted = _with_version(wanted, copy, host, removing=removing)
        if kept and wanted == copy and _edited(form, copy_text, data) == text:
            after = kept  # nobody else has changed it since
        else:
            after = mark + _edited(form, text, wanted)
        if _without_empty(_data(form, after.removeprefix(_BOM)), edits) != _without_empty(wanted, edits):
            raise ValueError("what else it says would change")
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} cannot be changed safely: {error}. It is left as it is: mend it, or put in by hand what "
            f"`myria connect {host.name} --print` shows.",
            file=str(path),
        ) from error
    if wanted == data:
        return unchanged
    has_comments = any(sign in after for sign in ("//", "/*", "#"))
    is_made_by_us = removing and not kept and not wanted and not has_comments
    diff = tuple(line for edit in edits for line in _diff(form, edit, data, wanted, show_key=show_key))
    return replace(unchanged, after=None if is_made_by_us else after, diff=diff)


def _with_version(wanted: Json, copy: Json, host: Host, *, removing: bool) -> Json:
    """Return what a file of hooks is to say, with the version of its form where the host asks for one."""
    if host.hooks is None or host.hooks.version is None:
        return wanted
    if not removing:
        return {"version": host.hooks.version} | wanted
    is_as_before = {name: value for name, value in wanted.items() if name != "version"} == copy
    return copy if is_as_before else wanted


def _data(form: Form, text: str) -> Json:
    data = toml.read(text) if form == "toml" else jsonc.read(text)
    if not isinstance(data, dict):
        raise ValueError("it holds no object")
    return data


def _edited(form: Form, text: str, wanted: Json) -> str:
    return toml.edited(text, wanted) if form == "toml" else jsonc.edited(text, wanted)


def _carry_over(edit: Edit, data: Json, copy: Json) -> None:
    """Change what a file says as an edit wants it; taking out puts back what the copy of the file says there.

    Raises:
        ValueError: the place is of another form.
    """
    if not isinstance(data.get(edit.group, {}), dict):
        raise ValueError(f"{edit.group} is no object")
    before, original = _at(data, edit), _at(copy, edit)
    after: Any = original if edit.value is None else edit.value
    if edit.ours is not None:
        elements = [] if before is None else before
        if not isinstance(elements, list):
            raise ValueError(f"{edit.group}.{edit.name} is no list")
        wanted = [] if edit.value is None else [edit.value]
        others = [one for one in elements if not edit.ours(one)]
        is_done = [one for one in elements if edit.ours(one)] == wanted
        after = before if is_done else [*wanted, *others] or (None if original is None else [])
    if after is not None:
        data.setdefault(edit.group, {})[edit.name] = after
    elif before is not None:
        del data[edit.group][edit.name]
        if not data[edit.group] and edit.group not in copy:
            del data[edit.group]


def _without_empty(data: Json, edits: Sequence[Edit]) -> Json:
    """Return what a file says, where an empty group is as good as none: TOML knows none without a header."""
    groups = {edit.group for edit in edits}
    return {name: value for name, value in data.items() if value or name not in groups}


def _at(data: Json, edit: Edit) -> Any:
    group = data.get(edit.group)
    return group.get(edit.name) if isinstance(group, dict) else None


def _diff(form: Form, edit: Edit, before: Json, after: Json, *, show_key: bool) -> list[str]:
    """Return what goes and what comes at a place of a file, as a diff shows it."""
    was, becomes = _at(before, edit), _at(after, edit)
    gone, come = [] if was is None else [was], [] if becomes is None else [becomes]
    if edit.ours is not None:  # the elements of a list
        gone, come = was or [], becomes or []
    lines: list[str] = []
    for sign, values, others, shows in (("-", gone, come, False), ("+", come, gone, show_key)):
        for value in values:
            if value not in others:
                lines += [f"{sign}{line}" for line in _shown(form, edit, value, show_key=shows).splitlines()]
    return [f"@@ {edit.group}.{edit.name} @@", *lines] if lines else []


def _shown(form: Form, edit: Edit, value: Json, *, show_key: bool) -> str:
    if form == "toml":
        return entry_text(form, (edit.group, edit.name), value, show_key=show_key)
    return json.dumps(value if show_key else masked(value), ensure_ascii=False, indent=2)


def masked(value: Any) -> Any:
    """Return an entry of a host without what may be secret: texts of headers and of variables, references excepted."""
    if not isinstance(value, dict):
        return value
    return {
        name: {inner: _hidden(text) for inner, text in one.items()}
        if name in _SECRET_GROUPS and isinstance(one, dict)
        else one
        for name, one in value.items()
    }


def _hidden(text: Any) -> Any:
    if not isinstance(text, str):
        return "***"
    scheme, _, rest = text.rpartition(" ")
    return text if rest.startswith("$") else f"{scheme} ***".strip()


def entry_text(form: Form, path: tuple[str, str], value: Json, *, show_key: bool = False) -> str:
    """Return what stands at a place of a host's file, as one would write it; what may be secret is masked."""
    group, name = path
    value = value if show_key else masked(value)
    if form == "toml":
        return toml.table_text(group, name, value).rstrip("\n")
    return json.dumps({group: {name: value}}, ensure_ascii=False, indent=2)


def _read(path: Path) -> str | None:
    """Return the text of a file, None where there is none.

    Raises:
        ConfigurationError: it cannot be read as text.
    """
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}", file=str(path)) from error
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
        if keeps_copy and not change.backup.exists():  # else a second change would keep a copy of the first
            _write(change.backup, change.before or "", mode & 0o700, status)
        if change.after is None:
            path.unlink()
        else:
            _write(path, change.after, mode, status)
        if not keeps_copy:
            change.backup.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}", file=str(path)) from error


def _write(path: Path, text: str, mode: int, owner: os.stat_result | None) -> None:
    with written_whole(path) as file:
        file.write(text.encode())
        os.fchmod(file.fileno(), mode)
        if owner is not None:
            with suppress(PermissionError):
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
