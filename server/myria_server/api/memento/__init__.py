"""The agent's API (Memento's contract): tools by which a model remembers, recalls and forgets."""

from __future__ import annotations

from collections.abc import Mapping

from myria.memory import Memory
from myria.settings import Settings
from myria_server.api.memento import input_schemas as inputs
from myria_server.api.memento import insight, notes, recalling, sessions
from myria_server.api.memento.calls import Handler, Work, refused, runs

__all__ = ["handlers", "refused"]

_READING: Mapping[str, tuple[type[inputs.AgentInput], Work]] = {
    "recall": (inputs.RecallInput, recalling.recall),
    "context": (inputs.ContextInput, sessions.context),
    "graph_explore": (inputs.GraphExploreInput, insight.graph_explore),
    "fragment_history": (inputs.NamedInput, insight.fragment_history),
    "memory_stats": (inputs.AgentInput, insight.memory_stats),
}
_CHANGING: Mapping[str, tuple[type[inputs.AgentInput], Work]] = {
    "remember": (inputs.RememberInput, notes.remember),
    "batch_remember": (inputs.BatchRememberInput, notes.batch_remember),
    "forget": (inputs.ForgetInput, notes.forget),
    "restore": (inputs.NamedInput, notes.restore),
    "amend": (inputs.AmendInput, notes.amend),
    "link": (inputs.LinkInput, notes.link),
    "reflect": (inputs.ReflectInput, sessions.reflect),
    "memory_consolidate": (inputs.AgentInput, sessions.consolidate),
    "tool_feedback": (inputs.FeedbackInput, insight.tool_feedback),
}


def handlers(memory: Memory, settings: Settings) -> Mapping[str, Handler]:
    """Return what runs each tool of this API, by its name."""
    return {
        name: runs(memory, settings, model, work, changes=changes)
        for changes, tools in ((False, _READING), (True, _CHANGING))
        for name, (model, work) in tools.items()
    }
