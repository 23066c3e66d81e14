"""What a session is: the notes of one context within a scope, from one beginning to an end or to an idle hour.

Its end is an event of a reserved type. It is internal, so it is never part of a topic and no trigger counts it as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import orjson

from myria.log.event import NewEvent

SESSION_TYPE = "myria.session"
SESSION_CHANNEL = "myria"

EndReason = Literal["reflect", "closed"]


def session_end(
    session_id: str | None,
    participants: tuple[str, ...],
    *,
    timestamp: int,
    reason: EndReason,
    idle_s: int,
    key: str,
    about: Mapping[str, Any],
) -> NewEvent:
    """Return the event that ends a session of a scope.

    Args:
        session_id: None for what is kept of a session that nobody named: it ends nothing.
        participants: canonical; whose session it is.
        timestamp: in microseconds since 1970 UTC.
        idle_s: after how many seconds a session is over by itself.
        key: the same for a repeat.
        about: what is to be kept with the end.
    """
    said: dict[str, Any] = {"state": "ended", "reason": reason, "idle_s": idle_s}
    payload: dict[str, Any] = {"session": said}
    if about:
        payload["about"] = dict(about)
    return NewEvent(
        timestamp=timestamp,
        channel=SESSION_CHANNEL,
        participants=participants,
        payload_json=orjson.dumps(payload, option=orjson.OPT_SORT_KEYS),
        context_id=session_id,
        source_event_key=f"session:{key}",
        type=SESSION_TYPE,
        internal=True,
    )
