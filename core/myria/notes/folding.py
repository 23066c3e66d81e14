"""Every projection that is folded in the append transaction, and the write path that folds them all."""

from __future__ import annotations

from typing import Any

from myria.db.database import Database
from myria.log.append import Ingest
from myria.log.projections import Projection
from myria.log.withdrawal.projection import WithdrawalProjection
from myria.notes.evaluations import EvaluationProjection
from myria.notes.feedback import FeedbackProjection
from myria.notes.links import LinkProjection
from myria.notes.memories.projection import MemoryProjection
from myria.notes.projection import NoteProjection
from myria.notes.registrations.projection import RegistrationProjection
from myria.notes.sessions.projection import SessionProjection
from myria.notes.turns.projection import TurnProjection


def every_projection(*, evaluates: bool = False) -> tuple[Projection, ...]:
    """Return all that is folded in the append transaction, in order: each looks at what those before it made.

    Args:
        evaluates: whether a model rates what is kept.
    """
    return (
        WithdrawalProjection(),
        MemoryProjection(evaluates=evaluates),
        NoteProjection(),
        SessionProjection(),
        LinkProjection(),
        FeedbackProjection(),
        EvaluationProjection(),
        TurnProjection(),
        RegistrationProjection(),
    )


def event_log(database: Database, *, evaluates: bool = False, **bounds: Any) -> Ingest:
    """Return the write path of one process, with every projection.

    Args:
        evaluates: whether a model rates what is kept.
        bounds: as `Ingest` takes them.
    """
    return Ingest(database, **{"projections": every_projection(evaluates=evaluates), **bounds})
