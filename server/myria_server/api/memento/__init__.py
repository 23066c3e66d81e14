"""The agent's face (Memento's contract): tools by which a model remembers, recalls and forgets."""

from __future__ import annotations

from collections.abc import Mapping

from myria.memory import Memory
from myria.settings import Settings
from myria_server.api.memento.answering import Handler, refused
from myria_server.api.memento.insight import InsightTools
from myria_server.api.memento.links import LinkTools
from myria_server.api.memento.notes import NoteTools
from myria_server.api.memento.recalling import RecallTools
from myria_server.api.memento.sessions import SessionTools

__all__ = ["handlers", "refused"]


def handlers(memory: Memory, settings: Settings) -> Mapping[str, Handler]:
    """Return what runs each tool of the face, by its name."""
    groups = (NoteTools, RecallTools, LinkTools, SessionTools, InsightTools)
    return {name: run for group in groups for name, run in group(memory, settings).handlers().items()}
