"""Putting the memory into a host's files, and taking it out again.

The new content is computed from the file's parsed data. Then only the parts of the text that differ are changed, and
the text is parsed again: if it does not have exactly the new content, nothing is written. The first change leaves a
copy of the file beside it, an empty one if there was no file. Undoing removes what was put in, and restores what the
copy has under the same name; all other changes since then stay.
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
    """The new value of the member `name` of the object `group` in a file; None removes the member.

    With `ours` the member is a list, of which only Myria's elements are changed: those for which `ours` returns true.
    """

    group: str
    name: str
    value: Json | None
    ours: Callable[[Any], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """The change of one file. `before` is None if there is no file yet; `after` is None if the file is deleted."""

    path: Path
    before: str | None
    after: str | None
    diff: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """Whether the file changes at all."""
        return self.before != self.after

    @property
    def backup(self) -> Path:
        """The path of the copy from before the first change; the copy is empty if there was no file."""
        return self.path.with_name(self.path.name + BACKUP_SUFFIX)

    @property
    def copy(self) -> Path | None:
        """The path of the copy, or None if there is none or it is empty."""
        return self.backup if self.backup.exists() and self.backup.stat().st_size else None


def plan_changes(
    host: Host,
    *,
    file: Path,
    name: str,
    entry: Json | None,
    hooks_file: Path | None,
    command: str | None,
    show_key: bool = False,
) -> list[FileChange]:
    """Compute the changes of a host's files that put the memory in, or remove it if `entry` is None.

    Args:
        file: the host's file with its MCP servers.
        hooks_file: the host's file with its hooks; None leaves them alone.
        command: what the hooks run; None removes them.
        show_key: whether the diff of a change shows what may be secret.

    Raises:
        ConfigurationError: a file cannot be read, or is not of its form.
    """
    edits = {file: [Edit(group=host.group, name=name, value=entry)]}
    if hooks_file is not None and host.hooks is not None:
        element = None if command is None else host.hooks.written(command)
        edits.setdefault(hooks_file, []).extend(
            Edit(group="hooks", name=event, value=element, ours=lambda value: _runs_hook(value, host.name))
            for event in host.hooks.events
        )
    return [
        _plan_change(path, host.form if path == file else "json", file_edits, host, show_key=show_key)
        for path, file_edits in edits.items()
    ]


def _runs_hook(element: Any, host: str) -> bool:
    """Return whether an element of an event's list runs our hook, however the command is quoted."""
    inner = element.get("hooks", [element]) if isinstance(element, dict) else []
    return isinstance(inner, list) and any(
        isinstance(hook, dict) and f"myria hook {host}" in _normalized_command(hook.get("command")) for hook in inner
    )


def _normalized_command(command: Any) -> str:
    """Normalise a command for comparison: without quotes, and `myria` without its path."""
    text = str(command or "").replace('"', "").replace("'", "").replace("\\", "/").replace("myria.exe", "myria")
    return " ".join(word.rpartition("/")[2] if word.endswith("/myria") else word for word in text.split())


def _plan_change(path: Path, form: Form, edits: Sequence[Edit], host: Host, *, show_key: bool) -> FileChange:
    """Compute the change that edits make to one file."""
    before = _read(path)
    unchanged = FileChange(path=path, before=before, after=before, diff=())
    removing = all(edit.value is None for edit in edits)
    copy_or_none = _read(unchanged.backup) if removing else None
    bom = _BOM if (before or "").startswith(_BOM) else ""
    text, copy_text = ((content or "").removeprefix(_BOM) for content in (before, copy_or_none))
    try:
        data, new_data, copy = (_parse(form, content) for content in (text, text, copy_text))
        for edit in edits:
            _apply_edit(edit, new_data, copy)
        if any(edit.ours for edit in edits):
            new_data = _with_version(new_data, copy, host, removing=removing)
        if copy_or_none and new_data == copy and _text_with(form, copy_text, data) == text:
            after = copy_or_none  # only Myria has changed the file since: restore it to the byte
        else:
            after = bom + _text_with(form, text, new_data)
        if _without_empty(_parse(form, after.removeprefix(_BOM)), edits) != _without_empty(new_data, edits):
            raise ValueError("what else it says would change")
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} cannot be changed safely: {error}. It is left as it is: mend it, or put in by hand what "
            f"`myria connect {host.name} --print` shows.",
            file=str(path),
        ) from error
    if new_data == data:
        return unchanged
    has_comments = any(sign in after for sign in ("//", "/*", "#"))
    is_made_by_us = removing and not copy_or_none and not new_data and not has_comments
    diff = tuple(line for edit in edits for line in _diff(form, edit, data, new_data, show_key=show_key))
    return replace(unchanged, after=None if is_made_by_us else after, diff=diff)


def _with_version(new_data: Json, copy: Json, host: Host, *, removing: bool) -> Json:
    """Return a hooks file's new data with the format version, if the host requires one."""
    if host.hooks is None or host.hooks.version is None:
        return new_data
    if not removing:
        return {"version": host.hooks.version} | new_data
    is_as_before = {name: value for name, value in new_data.items() if name != "version"} == copy
    return copy if is_as_before else new_data


def _parse(form: Form, text: str) -> Json:
    data = toml.read(text) if form == "toml" else jsonc.read(text)
    if not isinstance(data, dict):
        raise ValueError("it holds no object")
    return data


def _text_with(form: Form, text: str, wanted: Json) -> str:
    return toml.edited(text, wanted) if form == "toml" else jsonc.edited(text, wanted)


def _apply_edit(edit: Edit, data: Json, copy: Json) -> None:
    """Apply an edit to a file's data in place; a removal restores what the file's copy has there."""
    if not isinstance(data.get(edit.group, {}), dict):
        raise ValueError(f"{edit.group} is no object")
    before, copied_value = _value_at(data, edit), _value_at(copy, edit)
    after: Any = copied_value if edit.value is None else edit.value
    if edit.ours is not None:
        elements = [] if before is None else before
        if not isinstance(elements, list):
            raise ValueError(f"{edit.group}.{edit.name} is no list")
        our_elements = [] if edit.value is None else [edit.value]
        others = [element for element in elements if not edit.ours(element)]
        is_done = [element for element in elements if edit.ours(element)] == our_elements
        after = before if is_done else [*our_elements, *others] or (None if copied_value is None else [])
    if after is not None:
        data.setdefault(edit.group, {})[edit.name] = after
    elif before is not None:
        del data[edit.group][edit.name]
        if not data[edit.group] and edit.group not in copy:
            del data[edit.group]


def _without_empty(data: Json, edits: Sequence[Edit]) -> Json:
    """Return a file's data without empty groups, for comparison: in TOML an empty group without a header is absent."""
    groups = {edit.group for edit in edits}
    return {name: value for name, value in data.items() if value or name not in groups}


def _value_at(data: Json, edit: Edit) -> Any:
    group = data.get(edit.group)
    return group.get(edit.name) if isinstance(group, dict) else None


def _diff(form: Form, edit: Edit, before: Json, after: Json, *, show_key: bool) -> list[str]:
    """Return the lines of a diff for the place that an edit changes."""
    old_value, new_value = _value_at(before, edit), _value_at(after, edit)
    removed_values, added_values = [] if old_value is None else [old_value], [] if new_value is None else [new_value]
    if edit.ours is not None:  # the elements of a list
        removed_values, added_values = old_value or [], new_value or []
    lines: list[str] = []
    for sign, values, opposite_values, shows_key in (
        ("-", removed_values, added_values, False),
        ("+", added_values, removed_values, show_key),
    ):
        for value in values:
            if value not in opposite_values:
                lines += [f"{sign}{line}" for line in _value_text(form, edit, value, show_key=shows_key).splitlines()]
    return [f"@@ {edit.group}.{edit.name} @@", *lines] if lines else []


def _value_text(form: Form, edit: Edit, value: Json, *, show_key: bool) -> str:
    if form == "toml":
        return entry_text(form, (edit.group, edit.name), value, show_key=show_key)
    return json.dumps(value if show_key else masked(value), ensure_ascii=False, indent=2)


def masked(value: Any) -> Any:
    """Return a host's entry with secrets masked: values of headers and variables, except references to variables."""
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
    """Return a value as text in the host's format, within its group; secrets are masked unless `show_key`."""
    group, name = path
    value = value if show_key else masked(value)
    if form == "toml":
        return toml.table_text(group, name, value).rstrip("\n")
    return json.dumps({group: {name: value}}, ensure_ascii=False, indent=2)


def _read(path: Path) -> str | None:
    """Return the text of a file, None where there is none."""
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
    """Write a change, whole or not at all, after making the copy of the file if there is none yet.

    The file keeps its mode and owner; a file with a secret becomes readable by its owner alone.

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
