"""The formats by name, for `myria import --from`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo

from myria.errors import InvalidArgument
from myria_cli.importers import assistants, memories, messengers, tables
from myria_cli.importers.files import Source
from myria_cli.importers.records import Record


@dataclass(frozen=True, slots=True)
class Format:
    """An export format. `takes` describes FILE in words; with `is_local` its times are local, and need a zone."""

    read: Callable[..., Iterator[Record]]
    takes: str
    is_local: bool = False

    def records(self, source: Source, zone: tzinfo = UTC) -> Iterator[Record]:
        """Yield what a source holds.

        Raises:
            InvalidArgument: it is not of this format.
        """
        try:
            yield from self.read(source, zone) if self.is_local else self.read(source)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            # Readers check what they use; a shape that no release has exported must still end in a sentence.
            raise InvalidArgument(f"the file is not what is expected: {self.takes} ({error})", field="file") from error


FORMATS: Mapping[str, Format] = {
    "chatgpt": Format(assistants.chatgpt, "conversations.json, or the ZIP that ChatGPT sends"),
    "claude": Format(assistants.claude, "conversations.json, or the ZIP that Claude sends"),
    "slack": Format(messengers.slack, "the ZIP of a workspace's export, or its folder"),
    "whatsapp": Format(messengers.whatsapp, "a chat exported as text, or its ZIP", is_local=True),
    "telegram": Format(messengers.telegram, "result.json of Telegram Desktop", is_local=True),
    "mem0": Format(memories.mem0, "what get_all returns, as JSON"),
    "zep": Format(memories.zep, "edges, facts, episodes or messages of the API, as JSON"),
    "basic-memory": Format(memories.basic_memory, "a project's folder of Markdown files, or its ZIP"),
    "memory-server": Format(memories.memory_server, "memory.jsonl of MCP's reference memory server"),
    "csv": Format(tables.table, "a table with columns for time and text", is_local=True),
}
