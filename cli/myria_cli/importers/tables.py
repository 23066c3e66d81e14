"""Tables of messages: CSV as spreadsheets and scripts write it, with a row for each message and names of columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, tzinfo
from io import StringIO

from myria.errors import InvalidArgument, InvalidTimestamp
from myria_cli.importers.files import Source
from myria_cli.importers.records import NO_TEXT, Message, Record, identified, moment

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "timestamp": ("timestamp", "time", "date", "datetime", "date time", "created at", "sent at"),
    "text": ("text", "message", "content", "body", "message text", "message body"),
    "speaker": ("speaker", "author", "from", "sender", "user", "name", "role", "sender name", "user name"),
    "conversation": ("conversation", "channel", "thread", "chat", "context id", "session id", "conversation id"),
    "key": ("key", "id", "message id", "source event key"),
    "people": ("participants", "people", "members"),
}
"""The fields of a message, each with the names of columns that may hold it; the first that is found counts.

Spelling makes no difference: "Created At", "created_at" and "createdAt (UTC)" are the same name.
"""

_FIELD_BYTES = 16 * 1024 * 1024


def table(source: Source, zone: tzinfo = UTC) -> Iterator[Record]:
    """Yield the messages of CSV files with commas, semicolons or tabs.

    Args:
        zone: the zone of times without one.

    Raises:
        InvalidArgument: no column has a time, or none a text.
    """
    csv.field_size_limit(_FIELD_BYTES)
    names = source.names(".csv", ".tsv", ".txt")
    if not names:
        raise InvalidArgument("a table is a file whose name ends in .csv, .tsv or .txt; none was found", field="file")
    for name in names:
        text = re.sub(r"\Asep=.\r?\n", "", source.text(name))  # names the delimiter, for spreadsheets
        try:
            dialect = csv.Sniffer().sniff(text.partition("\n")[0], ",;\t|").delimiter
        except csv.Error:
            dialect = ","
        rows = csv.reader(StringIO(text, newline=""), delimiter=dialect)
        header = [_plain(column) for column in next(rows, [])]
        column_of = {
            field: next((header.index(column) for column in columns if column in header), None)
            for field, columns in COLUMNS.items()
        }
        missing = [field for field in ("timestamp", "text") if column_of[field] is None]
        if missing:
            raise InvalidArgument(
                f"{name} has no column for {' and '.join(missing)}; its first row must name the columns, such as "
                f"{' or '.join(COLUMNS[missing[0]])}",
                field="file",
            )
        unread_columns = ", ".join(
            column for position, column in enumerate(header) if column and position not in column_of.values()
        )
        yield from _messages(
            rows, column_of, zone, f"have columns that were left out: {unread_columns}" if unread_columns else None
        )


def _plain(column: str) -> str:
    """Normalise a column's name: lower-case words, without a remark in brackets."""
    words = re.findall(r"[^\W_]+", re.sub(r"\(.*?\)|(?<=[a-z])(?=[A-Z])", " ", column))
    return " ".join(words).lower()


def _messages(
    rows: Iterator[list[str]], column_of: Mapping[str, int | None], zone: tzinfo, remark: str | None
) -> Iterator[Record]:
    """Yield a record for each row.

    A row without an id is identified by its content; equal rows are numbered, so that each stays a message.
    """
    repeats: dict[str, int] = {}
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield InvalidArgument(f"the row is no CSV: {error}", field="file")
            continue
        if row is None:
            return
        cells = {
            field: row[position].strip() if position is not None and position < len(row) else ""
            for field, position in column_of.items()
        }
        if not cells["text"]:
            if any(row):
                yield NO_TEXT
            continue
        try:
            at = moment(cells["timestamp"], zone)
        except InvalidTimestamp as error:
            yield error
            continue
        row_key = identified(*row)
        repeats[row_key] = repeats.get(row_key, 0) + 1
        speaker = cells["speaker"] or "user"
        yield Message(
            at=at,
            channel="csv",
            conversation=cells["conversation"] or "csv",
            key=cells["key"] or f"{row_key}-{repeats[row_key]}",
            speaker=speaker,
            text=cells["text"],
            people=tuple({speaker, *filter(None, map(str.strip, cells["people"].split(";")))}),
            remark=remark,
        )
