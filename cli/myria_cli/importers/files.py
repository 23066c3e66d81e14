"""Opening what people export: a file, a folder, or a ZIP archive of either, each read member by member."""

from __future__ import annotations

import codecs
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from myria.errors import BodyTooLarge, InvalidArgument, MalformedJson

MEMBER_BYTES = 2 * 1024**3
"""The largest file that is read at one go. A ZIP archive may claim any size: nothing larger is unpacked."""


@dataclass(frozen=True, slots=True)
class Source:
    """What an import reads. Names are relative to it, with slashes; a lone file has its own name."""

    path: Path

    def names(self, *suffixes: str) -> list[str]:
        """Return the names of its files that end in one of the suffixes, in their order."""
        if self.path.is_dir():
            names = [file.relative_to(self.path).as_posix() for file in self.path.rglob("*") if file.is_file()]
        elif self._is_archive():
            with zipfile.ZipFile(self.path) as archive:
                names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
        else:
            return [self.path.name]
        shown = [name for name in names if not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))]
        return sorted(name for name in shown if name.lower().endswith(suffixes))

    def read(self, name: str) -> bytes:
        """Return a file's content.

        Raises:
            InvalidArgument: it cannot be read.
            BodyTooLarge: it is larger than `MEMBER_BYTES`.
        """
        try:
            if not self.path.is_dir() and self._is_archive():
                with zipfile.ZipFile(self.path) as archive:
                    return _bounded(archive.getinfo(name).file_size, name) or archive.read(name)
            file = self.path / name if self.path.is_dir() else self.path
            return _bounded(file.stat().st_size, name) or file.read_bytes()
        except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise InvalidArgument(f"{name} cannot be read: {error}", field="file") from error

    def text(self, name: str) -> str:
        """Return a file's content as text: UTF-8, or UTF-16 with its mark.

        Raises:
            InvalidArgument: it is neither. No other encoding tells itself, and a wrong guess would spoil every name.
        """
        content = self.read(name)
        encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
        try:
            return content.decode(encoding)
        except UnicodeDecodeError as error:
            raise InvalidArgument(
                f"{name} is not UTF-8 (byte {error.start + 1}); save it as UTF-8 and run this again", field="file"
            ) from error

    def json(self, name: str) -> Any:
        """Return a file's content as JSON.

        Raises:
            MalformedJson: it is none.
        """
        content = self.read(name).removeprefix(b"\xef\xbb\xbf")
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError:
            pass
        try:
            # The standard library takes lone surrogates, which exports of chats hold; they cannot be stored.
            return _storable(json.loads(content))
        except (ValueError, RecursionError) as error:
            raise MalformedJson(f"{name} is not JSON: {error}") from error

    def json_lines(self, name: str) -> Iterator[Any]:
        """Yield the JSON texts of a file: one a line, or all of it as one.

        Raises:
            MalformedJson: it is neither.
        """
        try:
            yield self.json(name)
        except MalformedJson:
            for number, line in enumerate(self.read(name).splitlines(), 1):
                if line.strip():
                    try:
                        yield orjson.loads(line)
                    except orjson.JSONDecodeError as error:
                        raise MalformedJson(f"line {number} of {name} is not JSON: {error}") from error

    def _is_archive(self) -> bool:
        return zipfile.is_zipfile(self.path)


def _bounded(size: int, name: str) -> bytes | None:
    if size > MEMBER_BYTES:
        raise BodyTooLarge(f"{name} is larger than {MEMBER_BYTES} bytes; split it", limit=MEMBER_BYTES)
    return None


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return value
