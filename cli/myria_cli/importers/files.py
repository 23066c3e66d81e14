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
"""The largest file that is read. A ZIP archive may claim any size: larger members are not unpacked."""


@dataclass(frozen=True, slots=True)
class Source:
    """What an import reads: a folder, a ZIP archive or a file. Names are paths within it, with slashes."""

    path: Path

    def names(self, *suffixes: str) -> list[str]:
        """Return the sorted names of files with one of the suffixes, without hidden ones; a lone file's own name."""
        if self.path.is_dir():
            names = [file.relative_to(self.path).as_posix() for file in self.path.rglob("*") if file.is_file()]
        elif self._is_archive():
            with zipfile.ZipFile(self.path) as archive:
                names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
        else:
            return [self.path.name]
        visible = [name for name in names if not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))]
        return sorted(name for name in visible if name.lower().endswith(suffixes))

    def read(self, name: str) -> bytes:
        """Return a file's content.

        Raises:
            InvalidArgument: it cannot be read.
            BodyTooLarge: it is larger than `MEMBER_BYTES`.
        """
        try:
            if not self.path.is_dir() and self._is_archive():
                with zipfile.ZipFile(self.path) as archive:
                    return _check_size(archive.getinfo(name).file_size, name) or archive.read(name)
            file = self.path / name if self.path.is_dir() else self.path
            return _check_size(file.stat().st_size, name) or file.read_bytes()
        except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise InvalidArgument(f"{name} cannot be read: {error}", field="file") from error

    def text(self, name: str) -> str:
        """Return a file's content as text: UTF-8, or UTF-16 with its mark.

        Raises:
            InvalidArgument: it is neither. Other encodings cannot be recognised, and a wrong guess spoils every name.
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
            # orjson refuses lone surrogates, which exports of chats hold; the standard library reads them, and
            # `_storable` replaces them.
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


def _check_size(size: int, name: str) -> bytes | None:
    """Refuse a file that is too large; return None always, so that `or` can follow."""
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
