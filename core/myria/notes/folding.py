"""Every projection that is folded in the append transaction, and the log that folds them all."""

from __future__ import annotations

from typing import Any

from myria.access.withdrawal_journal import WithdrawalJournal
from myria.db.database import Database
from myria.log.event_log import EventLog
from myria.log.projections import FoldingStatement, Projection
from myria.log.withdrawal.projection import WithdrawalProjection
from myria.notes.evaluations import EVALUATION_TYPE
from myria.notes.feedback import FEEDBACK_TYPE
from myria.notes.links import LINK_TYPE
from myria.notes.projection import NoteProjection
from myria.notes.registrations.model import RegistrationProjection
from myria.notes.sessions.model import SessionProjection
from myria.notes.turns.model import TurnProjection
from myria.settings import Settings


def every_projection(*, evaluates: bool = False) -> tuple[Projection, ...]:
    """Return all projections of the append transaction, in their order: each may read rows that those before it wrote.

    Args:
        evaluates: whether a model rates what is kept.
    """
    return (
        WithdrawalProjection(),
        WithdrawalJournal(),
        NoteProjection(evaluates=evaluates),
        SessionProjection(),
        FoldingStatement(LINK_TYPE, "links.fold"),
        FoldingStatement(FEEDBACK_TYPE, "feedback.fold"),
        FoldingStatement(EVALUATION_TYPE, "evaluations.fold"),
        TurnProjection(),
        RegistrationProjection(),
    )


def event_log(
    database: Database, settings: Settings | None = None, *, evaluates: bool = False, **options: Any
) -> EventLog:
    """Return the log of every tenant, with every projection.

    Args:
        settings: say how large a payload may be and what is taken out of it; left out, the defaults.
        evaluates: whether a model rates what is kept.
        options: as `EventLog` takes them.
    """
    made = {"projections": every_projection(evaluates=evaluates), **options}
    return EventLog(database, Settings() if settings is None else settings, **made)
