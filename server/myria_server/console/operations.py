"""The page on how a memory does: its parts with what to do, what went wrong last, what is used, and what agents say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from starlette.requests import Request

from myria.access import journal
from myria.db.clock import rfc3339_of
from myria.db.queries import sql
from myria.errors import MyriaError
from myria.llm.waits import Work
from myria.notes.feedback import feedback_report
from myria.versions import ANALYSIS_VERSION, PLANNER_VERSION, RANKING_VERSION
from myria_migrations import migrations
from myria_server.console import audit
from myria_server.console.desk import Desk, Json
from myria_server.console.forms import Page
from myria_server.console.notes import open_notes
from myria_server.console.rendering import counted
from myria_server.console.routes import PageRoute, Routes

_REMARKS = 10
_ERRORS = 5
_REFUSALS = 50
"""Refusals that are looked at, the newest, and shown as one for each actor and code."""

_BUILDS_LOOKED_AT = 50

_WAITING = {Work.VECTORS: "vectors of new events", Work.RATINGS: "ratings of notes", Work.FACTS: "facts of turns"}
"""What waits where a model does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartHealth:
    """A part of the memory, how it does, and what to do where it is not well.

    `state` is good, running, paused or failed, and `text` says it, `since` a moment. `details` is a text of somebody
    else's. `runbook` names a page of docs/runbooks.
    """

    name: str
    state: str
    text: str
    since: str | None = None
    details: str | None = None
    advice: str | None = None
    runbook: str | None = None


async def overview(desk: Desk, _request: Request) -> Page:
    """Show how the parts do, what went wrong last, what the tenant uses, and what agents say of answers."""
    desk.principal.need_api("admin")
    values: Json = {
        "tenant": None,
        "failed_builds": [],
        "refusals": [],
        "key_names": {},
        "feedback": None,
        "versions": {
            "Myria": version("myria"),
            "Schema": str(migrations()[-1]),
            "Planner": PLANNER_VERSION,
            "Ranking": RANKING_VERSION,
            "Analysis of texts": ANALYSIS_VERSION,
        },
        "grafana": desk.settings.console.grafana_url,
        "runbooks": desk.settings.console.runbooks_url,
    }
    try:
        await desk.memory.ready()
    except MyriaError as error:
        return "operations.html", {**values, "parts": [_database_away(error)]}
    status = await desk.call("get_snapshot_status")
    return "operations.html", {**values, "parts": _parts(desk, status), **await _of_tenant(desk)}


async def _of_tenant(desk: Desk) -> Json:
    """Return what the database says of the visitor's tenant."""
    memory, tenant = desk.memory, desk.tenant
    async with memory.database.read(tenant) as connection:
        row = await connection.fetchrow(sql("access.tenant_in_use"), tenant)
    builds = await memory.registry.builds(tenant, limit=_BUILDS_LOOKED_AT)
    refusals: list[Json] = []
    if desk.principal.proof is not None:
        entries, _ = await journal.entries_for(
            memory.appending, desk.principal.proof, journal.Sought(text="refusal"), before=None, limit=_REFUSALS
        )
        refusals = _grouped([entry for entry in entries if entry["kind"] == "refusal"])[:_ERRORS]
    feedback = await feedback_report(memory.database, tenant, limit=_REMARKS)
    return {
        "tenant": None if row is None else _with_defaults(desk, dict(row)),
        "failed_builds": [build for build in builds if build["status"] == "failed"][:_ERRORS],
        "refusals": refusals,
        "key_names": await desk.key_names(entry["actor"] for entry in refusals),
        "feedback": feedback,
        "open_notes": await open_notes(desk, {note_id for said in feedback["newest"] for note_id in said["notes"]}),
    }


def _grouped(refusals: Sequence[Json]) -> list[Json]:
    """Return the newest refusal of each actor and code, the newest first, with how often there was one like it."""
    groups: dict[tuple[str, str], Json] = {}
    for entry in refusals:
        alike = groups.setdefault(
            (entry["actor"], entry["outcome"]), entry | {"did": audit.did(entry), "times": 0, "kinds": set()}
        )
        alike["times"] += entry["times"]
        alike["kinds"].add(audit.did(entry))
    return list(groups.values())


def _with_defaults(desk: Desk, tenant: Json) -> Json:
    """Return what a tenant uses and may: where its row does not say, the settings do."""
    defaults = {
        "events_per_s": desk.settings.auth.tenant_events_per_s,
        "bytes_stored": desk.settings.auth.tenant_bytes_stored,
        "model_tokens_per_day": desk.settings.llm.tenant_tokens_per_day,
    }
    limits = {name: default if tenant[name] is None else tenant[name] for name, default in defaults.items()}
    return {**tenant, **limits, "created_at": rfc3339_of(tenant["created_at"])}


def _parts(desk: Desk, status: Json) -> list[PartHealth]:
    """Return how each part does while the database answers."""
    parts = [PartHealth(name="Database", state="good", text="answers"), _builds(status), _tail(status)]
    if status["degraded"]:
        degraded = status["degraded"]
        parts.append(
            PartHealth(
                name="Topics",
                state="paused",
                text=f"{counted(degraded['standing'], 'part was', 'parts were')} planned without the model",
                details=degraded["reason"],
                advice="Mend the cause, then ask for a full build.",
                runbook="MyriaBuildsDegraded",
            )
        )
    for work, wait in status["waits"].items():
        if work == Work.VECTORS and desk.settings.embeddings.model == "off":
            continue  # switched off since; the builder's next clean-up forgets it
        parts.append(
            PartHealth(
                name="Models",
                state="paused",
                text=f"{_WAITING[Work(work)]} wait since",
                since=wait["since"],
                details=wait["reason"],
                advice="It goes on by itself when the provider answers.",
                runbook="MyriaAnswersDegraded",
            )
        )
    if desk.settings.auth.mode != "keys":
        parts.append(
            PartHealth(
                name="Sign-in",
                state="paused",
                text="off: whoever reaches this server may do everything",
                advice="Set auth.mode: keys wherever others reach it.",
            )
        )
    return [*parts, PartHealth(name="Embeddings", state="good", text="", details=desk.memory.embeddings)]


def _database_away(error: MyriaError) -> PartHealth:
    return PartHealth(
        name="Database",
        state="failed",
        text=error.code,
        details=error.message,
        advice="Appends and questions fail until it answers. Look at PostgreSQL and the network between.",
        runbook="MyriaDatabaseUnreachable",
    )


def _builds(status: Json) -> PartHealth:
    if status["consecutive_failures"]:
        return PartHealth(
            name="Builds",
            state="failed",
            text=f"{status['consecutive_failures']:,} failed in a row",
            advice="The active snapshot stays, and new events are found without topics. Open the newest failed build.",
            runbook="MyriaBuildsFailing",
        )
    if status["paused"]:
        held = status["held_snapshot_id"]
        return PartHealth(
            name="Builds",
            state="paused",
            text="paused: a held snapshot waits" if held else "paused by a rollback",
            advice="Publish or discard it on the page Changes." if held else "Resume them on the page Changes.",
            runbook="MyriaBuildsPaused",
        )
    return PartHealth(name="Builds", state="good", text="building" if status["building"] else "idle")


def _tail(status: Json) -> PartHealth:
    tail, most = status["tail_events"], status["triggers"]["tail_threshold"]["max_unindexed_events"]
    queued = counted(status["queued"], "build is queued", "builds are queued")
    text = f"{counted(tail, 'event waits', 'events wait')} for a build, {queued}"
    if status["triggers"]["tail_threshold"]["enabled"] and tail > 2 * most and not status["building"]:
        advice = f"More than {most:,} should begin a build. Look whether a builder runs."
        return PartHealth(name="Tail", state="paused", text=text, advice=advice, runbook="MyriaTailGrowing")
    return PartHealth(name="Tail", state="good", text=text)


ROUTES: Routes = (PageRoute("/operations", overview, ("admin",)),)
