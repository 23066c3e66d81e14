"""`myria review`: notes that the policy of review holds back, and what a reviewer decides about them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from myria_cli import console
from myria_cli.commands.builds import PANEL
from myria_cli.options import Options, actor, command
from myria_cli.place import administration_of

if TYPE_CHECKING:
    from myria.builds.administration import Administration
    from myria.notes.reviewing import Review, Verdict

UNDECIDED = 1
"""The exit status where a note was not decided."""

_PREVIEW = 100

app = typer.Typer(rich_help_panel=PANEL)
review = typer.Typer(
    rich_help_panel=PANEL,
    help="Notes that review.* holds back until somebody approves them.",
    no_args_is_help=True,
)
app.add_typer(review, name="review", rich_help_panel=PANEL)

Notes = Annotated[list[str], typer.Argument(metavar="NOTE...", help="Ids of the notes.")]
Reason = Annotated[str | None, typer.Option(help="Why, for the record.")]


@command(review, "list")
async def list_(
    options: Options,
    *,
    state: Annotated[
        Literal["held", "refused", "approved", "decided"], typer.Option(help="Decided: refused and approved ones.")
    ] = "held",
    kind: Annotated[str | None, typer.Option(help="Only this kind.")] = None,
    participant: Annotated[str | None, typer.Option(help="Only what this one may see once it is approved.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=50, help="How many, the last held or decided first.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="next_cursor of the answer before.")] = None,
) -> None:
    """List the notes that wait for a review, or those decided lately.

    Examples:
        myria review list
        myria review list --state decided --json
    """
    from myria.log.scopes import canonical_participants

    names = None if participant is None else canonical_participants([participant], field="participant")
    async with _review_of(options) as (_, reviewing):
        answer = await reviewing.listed(
            options.tenant,
            states=("approved", "refused") if state == "decided" else (state,),
            kind=kind,
            participant=None if names is None else names[0],
            limit=limit,
            cursor=cursor,
        )
    columns: dict[str, console.Column] = {
        "note": "note_id",
        "state": "state",
        "since": lambda note: console.to_the_second(note["since"]),
        "kind": "kind",
        "by": lambda note: note["speaker"] or "",
        "held by": "rule",
        "text": lambda note: console.one_line(note["text"], _PREVIEW),
    }
    notes, next_cursor = answer["under_review"], answer["next_cursor"]
    options.answer(
        answer,
        console.table(columns, notes) if notes else f"no note is {state}",
        f"--cursor {next_cursor}" if next_cursor else None,
    )


@command(review, "approve")
async def approve(options: Options, *, notes: Notes, reason: Reason = None) -> int:
    """Let held notes in: they are found from now on, and replace what they would replace.

    Exit 1 if one of them was not decided.

    Examples:
        myria review approve note_0193c1…
    """
    return await _decide(options, notes, "approve", reason)


@command(review, "refuse")
async def refuse(options: Options, *, notes: Notes, reason: Reason = None) -> int:
    """Refuse held notes: nobody finds them. `myria review undo` takes that back.

    Exit 1 if one of them was not decided.

    Examples:
        myria review refuse note_0193c1… note_0193c2… --reason 'not agreed'
    """
    return await _decide(options, notes, "refuse", reason)


@command(review, "undo")
async def undo(options: Options, *, notes: Notes, reason: Reason = None) -> int:
    """Take approvals or refusals back: the notes wait again, and what they replaced stands again.

    Exit 1 if one of them was not decided.

    Examples:
        myria review undo note_0193c1…
    """
    return await _decide(options, notes, "hold", reason)


async def _decide(options: Options, notes: list[str], verdict: Verdict, reason: str | None) -> int:
    from myria.access.journal import Act, Journal

    async with _review_of(options) as (administration, reviewing):
        answer = await reviewing.decide_all(options.tenant, notes, verdict, by=actor(), why=reason or "")
        journal = Journal(administration.appending, administration.settings.audit)
        act = Act(tenant=options.tenant, actor=actor(), action="decide_notes")
        await journal.command(act, {"decision": verdict}, answer)
    columns: dict[str, console.Column] = {
        "note": "note_id",
        "what became of it": lambda note: note["error"]["message"] if "error" in note else note["state"],
    }
    options.answer(answer, console.table(columns, answer["decided"]))
    return UNDECIDED if any("error" in note for note in answer["decided"]) else 0


@asynccontextmanager
async def _review_of(options: Options) -> AsyncIterator[tuple[Administration, Review]]:
    """Open the review of a command's place, and what it stands on."""
    from myria.notes.folding import event_log
    from myria.notes.reviewing import Review

    async with administration_of(options) as administration:
        settings = administration.settings
        log = event_log(administration.appending, settings, deadline=settings.mcp.append_deadline_s)
        try:
            yield administration, Review(log, page_bytes=settings.retrieval.answer_bytes)
        finally:
            await log.close()
