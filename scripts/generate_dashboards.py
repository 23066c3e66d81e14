"""Write the Grafana dashboards charts/myria/files/dashboards/{serving,builds}.json.

Usage: generate_dashboards.py [--check]

`--check` writes nothing and exits 1 when a file is not current. The first row of each dashboard is green when all is
well. Colours change at the limits of the alert rules beside the dashboards.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

FILES = Path(__file__).resolve().parent.parent / "charts/myria/files"
FOLDER = FILES / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
HERE = 'namespace=~"$namespace"'
"""All of the chosen installations; without Kubernetes there is no such label, and All matches that too."""
TENANT = f'{HERE}, tenant=~"$tenant"'
RATE = "$__rate_interval"
RARE = "10m"
"""The window for rare events such as builds."""
GREEN, YELLOW, RED, BLUE = "green", "#EAB839", "red", "blue"
WIDTH = 24

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `queries` are pairs of PromQL and legend, `steps` pairs of a value and the colour from there on."""

    title: str
    queries: Sequence[tuple[str, str]]
    description: str
    unit: str = "short"
    kind: str = "timeseries"
    steps: Sequence[tuple[float | None, str]] = ((None, GREEN),)
    words: dict[str, str] = field(default_factory=dict)
    stacked: bool = False
    limit: bool = False
    decimals: int | None = None


def main(arguments: Sequence[str]) -> int:
    """Write or check the files; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is not current")
    options = parser.parse_args(arguments)
    stale = []
    for path, made in ((FOLDER / "serving.json", serving()), (FOLDER / "builds.json", builds())):
        text = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.name)
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if options.check and stale:
        print(f"not current, run scripts/generate_dashboards.py: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


def serving() -> Json:
    """Return the dashboard of the serving plane."""
    failures = service_errors()
    failed, refused = f'outcome=~"{failures}"', f'outcome!~"ok|{failures}"'
    rows: list[tuple[str, Sequence[Panel]]] = [
        (
            "Is all well?",
            (
                stat(
                    "Servers ready",
                    f"sum(myria_ready{{{HERE}}})",
                    "Serving processes that take requests. Red: nobody can read or write.",
                    steps=((None, RED), (1, GREEN)),
                ),
                database_is_up(),
                stat(
                    "Calls",
                    f"sum(rate(myria_requests_total{{{HERE}}}[{RATE}]))",
                    "Tool calls per second, good and bad.",
                    unit="reqps",
                    steps=((None, BLUE),),
                ),
                stat(
                    "Failed calls",
                    f"(sum(rate(myria_requests_total{{{HERE}, {failed}}}[{RATE}])) or vector(0)) "
                    f"/ sum(rate(myria_requests_total{{{HERE}}}[{RATE}]))",
                    "Share of calls that failed through the service's own fault. Callers' mistakes do not count.",
                    unit="percentunit",
                    steps=((None, GREEN), (0.01, YELLOW), (0.05, RED)),
                ),
                stat(
                    "Query, p95",
                    quantile(0.95, "myria_request_duration_seconds", 'tool=~"query_.*"'),
                    "One query in twenty takes longer.",
                    unit="s",
                    steps=((None, GREEN), (0.5, YELLOW), (1, RED)),
                ),
                stat(
                    "Append, p95",
                    quantile(0.95, "myria_request_duration_seconds", 'tool=~"append_.*"'),
                    "One append in twenty takes longer.",
                    unit="s",
                    steps=((None, GREEN), (0.5, YELLOW), (1, RED)),
                ),
                stat(
                    "Degraded answers",
                    f"(sum(rate(myria_answers_degraded_total{{{HERE}}}[{RATE}])) or vector(0)) "
                    f'/ sum(rate(myria_requests_total{{{HERE}, outcome="ok"}}[{RATE}]))',
                    "Share of answers given without the model that was asked for: right, but plainer.",
                    unit="percentunit",
                    steps=((None, GREEN), (0.01, YELLOW), (0.1, RED)),
                ),
                stat(
                    "Memory lag",
                    f"max(myria_memory_lag_seconds{{{TENANT}}})",
                    "Age of the oldest event that is in no topic yet. More on the other dashboard.",
                    unit="s",
                    steps=((None, GREEN), (1800, YELLOW), (3600, RED)),
                ),
            ),
        ),
        (
            "Calls",
            (
                graph(
                    "Calls by tool",
                    "Tool calls per second, good and bad, at each face.",
                    (f"sum by (face, tool) (rate(myria_requests_total{{{HERE}}}[{RATE}])) > 0", "{{face}} {{tool}}"),
                    unit="reqps",
                ),
                graph(
                    "Latency by tool, p95",
                    "From the call to its answer. The line is where MyriaLatencyHigh begins.",
                    (quantile(0.95, "myria_request_duration_seconds", by="tool"), "{{tool}}"),
                    unit="s",
                    steps=((None, "transparent"), (1, RED)),
                    limit=True,
                ),
                graph(
                    "Failures by code",
                    "The service's own faults per second (docs/errors.md). Empty is good.",
                    (
                        f"sum by (outcome) (rate(myria_requests_total{{{HERE}, {failed}}}[{RATE}])) > 0",
                        "{{outcome}}",
                    ),
                    unit="reqps",
                    stacked=True,
                ),
                graph(
                    "Refused calls by code",
                    "What callers did wrong, and what was refused before it became a call, per second.",
                    (
                        f"sum by (outcome) (rate(myria_requests_total{{{HERE}, {refused}}}[{RATE}])) > 0",
                        "{{outcome}}",
                    ),
                    (
                        f"sum by (reason) (rate(myria_http_refusals_total{{{HERE}}}[{RATE}])) > 0",
                        "HTTP: {{reason}}",
                    ),
                    unit="reqps",
                    stacked=True,
                ),
            ),
        ),
        (
            "Reading and appending",
            (
                graph(
                    "Query latency",
                    "Half, nineteen in twenty, and 99 in 100 queries take less.",
                    *(
                        (quantile(q, "myria_request_duration_seconds", 'tool=~"query_.*"'), f"p{q * 100:.0f}")
                        for q in (0.5, 0.95, 0.99)
                    ),
                    unit="s",
                ),
                graph(
                    "Append latency",
                    "Half, nineteen in twenty, and 99 in 100 appends take less.",
                    *(
                        (quantile(q, "myria_request_duration_seconds", 'tool=~"append_.*"'), f"p{q * 100:.0f}")
                        for q in (0.5, 0.95, 0.99)
                    ),
                    unit="s",
                ),
                graph(
                    "Events appended",
                    "Events stored per second, and the commits they shared.",
                    (f"sum(rate(myria_append_batch_events_sum{{{HERE}}}[{RATE}]))", "events"),
                    (f"sum(rate(myria_append_batch_events_count{{{HERE}}}[{RATE}]))", "commits"),
                    unit="cps",
                ),
                graph(
                    "Degraded answers",
                    "Answers per second without the model that was asked for, and why. Empty is good.",
                    (
                        f"sum by (tool, reason) (rate(myria_answers_degraded_total{{{HERE}}}[{RATE}])) > 0",
                        "{{tool}}: {{reason}}",
                    ),
                    unit="reqps",
                    stacked=True,
                ),
            ),
        ),
        (
            "Turns (where /mcp/turns is on)",
            (
                graph(
                    "Turns",
                    "Calls per second by how they ended; turn_busy is no fault: the host tries again.",
                    (
                        f'sum by (tool, outcome) (rate(myria_requests_total{{{HERE}, face="turns"}}[{RATE}])) > 0',
                        "{{tool}}: {{outcome}}",
                    ),
                    unit="reqps",
                    stacked=True,
                ),
                graph(
                    "Latency of turns, p95",
                    "The lines are the objectives, where MyriaTurnsSlow begins: 300 ms before a turn, 500 ms after it.",
                    (
                        quantile(0.95, "myria_request_duration_seconds", 'face="turns"', by="tool"),
                        "{{tool}}",
                    ),
                    unit="s",
                    steps=((None, "transparent"), (0.3, YELLOW), (0.5, RED)),
                    limit=True,
                ),
                graph(
                    "Facts by tier",
                    "Facts per second that were found by rule, and by a model: L0 stays, L1 lasts a day, L2 a week.",
                    (f"sum by (tier) (rate(myria_turn_facts_total{{{HERE}}}[{RATE}]))", "{{tier}}"),
                    (f"sum by (tier) (rate(myria_turn_facts_found_total{{{HERE}}}[{RATE}]))", "{{tier}}, by a model"),
                    unit="cps",
                ),
                graph(
                    "Repeats, compactions, differences",
                    "Turns that came again (stored: nothing is done; under_way: refused), prompts with a summary, and "
                    "answers that differ from those of hosts in shadow mode.",
                    (f"sum by (state) (rate(myria_turn_conflicts_total{{{HERE}}}[{RATE}]))", "again: {{state}}"),
                    (f"sum(rate(myria_turn_compactions_total{{{HERE}}}[{RATE}]))", "compacted"),
                    (
                        f'sum by (aspect) (rate(myria_turn_comparisons_total{{{HERE}, outcome!="same"}}[{RATE}]))',
                        "differs: {{aspect}}",
                    ),
                    unit="cps",
                ),
            ),
        ),
        (
            "What it takes",
            (
                graph(
                    "Calls at work",
                    "Calls being worked on; beyond mcp.max_in_flight per process they are answered `overloaded`.",
                    (f"sum by (pod) (myria_requests_in_flight{{{HERE}}})", "{{pod}}"),
                ),
                graph(
                    "Database connections",
                    "Used of the pools, their bound, and how often per second somebody had to wait for one.",
                    (f'sum(myria_pool_connections{{{HERE}, state="used"}})', "used"),
                    (f"sum(myria_pool_limit{{{HERE}}})", "bound"),
                    (f"sum(rate(myria_pool_waits_total{{{HERE}}}[{RATE}]))", "waits per second"),
                ),
                graph(
                    "Cache hits",
                    "Share of look-ups that the cache answered.",
                    (
                        f'sum by (cache) (rate(myria_cache_lookups_total{{{HERE}, result="hit"}}[{RATE}])) '
                        f"/ sum by (cache) (rate(myria_cache_lookups_total{{{HERE}}}[{RATE}]))",
                        "{{cache}}",
                    ),
                    unit="percentunit",
                ),
                graph(
                    "Memory",
                    "What the processes use, and what of it is cache (bounded by retrieval.cache_bytes per process).",
                    (
                        f"sum by (pod) (process_resident_memory_bytes{{{HERE}}} "
                        f"and on (namespace, job, instance) myria_ready{{{HERE}}})",
                        "process {{pod}}",
                    ),
                    (f"sum(myria_cache_bytes{{{HERE}}})", "caches"),
                    unit="bytes",
                ),
            ),
        ),
    ]
    return dashboard("myria-serving", "Myria / Serving", "How fast, how much, how well memory answers.", rows)


def builds() -> Json:
    """Return the dashboard of memory's freshness, builds and the operator."""
    rows: list[tuple[str, Sequence[Panel]]] = [
        (
            "Is all well?",
            (
                stat(
                    "Memory lag",
                    f'max(myria_memory_lag_seconds{{{TENANT}, paused!="true"}})',
                    "Age of the oldest event that is in no topic yet; tenants that are paused left out.",
                    unit="s",
                    steps=((None, GREEN), (1800, YELLOW), (3600, RED)),
                ),
                stat(
                    "Fresh tail",
                    f"sum(myria_tail_events{{{TENANT}}})",
                    "Events that wait for a build, over all tenants.",
                    steps=((None, BLUE),),
                ),
                stat(
                    "Tenants paused",
                    f"sum(myria_tenants_paused{{{HERE}}})",
                    "They build nothing by themselves: after a rollback, or while a held snapshot waits.",
                    steps=((None, GREEN), (1, YELLOW)),
                ),
                stat(
                    "Tenants failing",
                    f"sum(myria_tenants_backing_off{{{HERE}}})",
                    "Their last build failed and none has succeeded since.",
                    steps=((None, GREEN), (1, RED)),
                ),
                stat(
                    "Builds at work",
                    f'sum(myria_builds{{{HERE}, state="running"}})',
                    "Builds that run now.",
                    steps=((None, BLUE),),
                ),
                stat(
                    "Last success",
                    f"time() - max(myria_last_build_success_timestamp_seconds{{{TENANT}}} > 0)",
                    "Since a build last ended well. Long is no fault when nothing was appended.",
                    unit="s",
                    steps=((None, BLUE),),
                ),
                stat(
                    "Operator",
                    f"(time() - max(myria_operator_last_progress_timestamp_seconds{{{HERE}}})) < bool 300",
                    "Whether its queue moved within five minutes. Empty where there is none (one machine).",
                    steps=((None, RED), (1, GREEN)),
                    words={"0": "stands", "1": "works"},
                ),
                database_is_up(),
            ),
        ),
        (
            "Freshness",
            (
                graph(
                    "Memory lag",
                    "Age of the oldest event that is in no topic yet, by tenant where metrics.tenant_label is on. The "
                    "line is where MyriaMemoryStale begins.",
                    (
                        f'max by (tenant) (myria_memory_lag_seconds{{{TENANT}, paused!="true"}})',
                        "building {{tenant}}",
                    ),
                    (f'max by (tenant) (myria_memory_lag_seconds{{{TENANT}, paused="true"}})', "paused {{tenant}}"),
                    unit="s",
                    steps=((None, "transparent"), (3600, RED)),
                    limit=True,
                ),
                graph(
                    "Fresh tail",
                    "Events that wait for a build. A build empties the tail; a saw-tooth is health.",
                    (f"sum by (tenant) (myria_tail_events{{{TENANT}}})", "waiting {{tenant}}"),
                    (f"max(myria_tail_events_max{{{HERE}}})", "longest of one tenant"),
                ),
                graph(
                    "Active snapshot's age",
                    "Since it was activated; the oldest of those whose tenants have events waiting.",
                    (f"max by (tenant) (myria_snapshot_age_seconds{{{TENANT}}})", "age {{tenant}}"),
                    unit="s",
                ),
                graph(
                    "Pauses",
                    "Tenants that build nothing by themselves, and why.",
                    (f"sum by (reason) (myria_tenants_paused{{{HERE}}}) > 0", "{{reason}}"),
                    stacked=True,
                ),
            ),
        ),
        (
            "Builds",
            (
                graph(
                    "Builds ended in 10 minutes",
                    "By how they ended (docs/architecture.md, Snapshots).",
                    (f"sum by (outcome) (increase(myria_builds_finished_total{{{HERE}}}[{RARE}])) > 0", "{{outcome}}"),
                    stacked=True,
                ),
                graph(
                    "Builds unfinished",
                    "Running, and waiting for their turn.",
                    (f"sum by (state) (myria_builds{{{HERE}}})", "{{state}}"),
                ),
                graph(
                    "Duration of builds",
                    "From the capture of the cutoff to the end, over 10 minutes; and how long the oldest has run.",
                    (quantile(0.5, "myria_build_duration_seconds", over=RARE), "p50"),
                    (quantile(0.95, "myria_build_duration_seconds", over=RARE), "p95"),
                    (f"max(myria_oldest_running_build_seconds{{{HERE}}})", "oldest that runs"),
                    unit="s",
                ),
                graph(
                    "Where the time goes",
                    "Mean time per build over 10 minutes: waiting for a turn, starting (slot, Job, pod), compiling.",
                    (
                        f"sum by (phase) (rate(myria_build_phase_duration_seconds_sum{{{HERE}}}[{RARE}])) "
                        f"/ sum by (phase) (rate(myria_build_phase_duration_seconds_count{{{HERE}}}[{RARE}]))",
                        "{{phase}}",
                    ),
                    unit="s",
                ),
                graph(
                    "What was wrong in 10 minutes",
                    "Broken rules of validation, and tasks that did without the model. Empty is good.",
                    (
                        f"sum by (rule) (increase(myria_validation_failures_total{{{HERE}}}[{RARE}])) > 0",
                        "rule {{rule}}",
                    ),
                    (
                        f'sum(increase(myria_build_tasks_total{{{HERE}, outcome="degraded"}}[{RARE}])) > 0',
                        "degraded tasks",
                    ),
                    stacked=True,
                ),
                graph(
                    "Moves of the pointer in 10 minutes",
                    "What is read changed: published forward, rolled back.",
                    (f"sum by (kind) (increase(myria_pointer_moves_total{{{HERE}}}[{RARE}])) > 0", "{{kind}}"),
                    stacked=True,
                ),
            ),
        ),
        (
            "Language model (where one is asked)",
            (
                graph(
                    "Requests to the model in 10 minutes",
                    "By how they ended (docs/llm.md, Degraded): `ok`, or the name of the failure.",
                    (f"sum by (outcome) (increase(myria_llm_calls_total{{{HERE}}}[{RARE}])) > 0", "{{outcome}}"),
                    stacked=True,
                ),
                graph(
                    "Duration of a request",
                    "Over 10 minutes; builds and walks have limits of their own.",
                    (
                        quantile(0.95, "myria_llm_call_duration_seconds", by="workflow", over=RARE),
                        "{{workflow}}, p95",
                    ),
                    unit="s",
                ),
                graph(
                    "Units planned in 10 minutes",
                    "With a model's plan, with one that was kept, or without because it failed (degraded).",
                    (f"sum by (result) (increase(myria_llm_units_total{{{HERE}}}[{RARE}])) > 0", "{{result}}"),
                    stacked=True,
                ),
                graph(
                    "Cost per hour",
                    "US dollars, as the provider reports them or as the prices in the settings say.",
                    (f"sum by (workflow) (rate(myria_llm_cost_usd_total{{{HERE}}}[1h])) * 3600", "{{workflow}}"),
                    unit="currencyUSD",
                ),
            ),
        ),
        (
            "Log and database",
            (
                graph(
                    "Size on disk",
                    "The event log with its indexes, and the whole database. The log is never trimmed.",
                    (f"max by (namespace) (myria_log_bytes{{{HERE}}})", "log {{namespace}}"),
                    (f"max by (namespace) (myria_database_bytes{{{HERE}}})", "database {{namespace}}"),
                    unit="bytes",
                ),
                graph(
                    "Snapshots kept",
                    "By status; retention.keep_snapshots bounds them.",
                    (f"sum by (status) (myria_snapshots{{{HERE}}}) > 0", "{{status}}"),
                    stacked=True,
                ),
            ),
        ),
        (
            "What agents say of answers",
            (
                graph(
                    "Feedback in an hour",
                    "By tool, of tool_feedback. `myria feedback` shows the words.",
                    (f"sum by (tool) (increase(myria_tool_feedback_total{{{HERE}}}[1h])) > 0", "{{tool}}"),
                    stacked=True,
                ),
                graph(
                    "Share that was relevant, and enough",
                    "Of the feedback in a day.",
                    (
                        f'sum(increase(myria_tool_feedback_total{{{HERE}, relevant="true"}}[1d])) '
                        f"/ sum(increase(myria_tool_feedback_total{{{HERE}}}[1d]))",
                        "relevant",
                    ),
                    (
                        f'sum(increase(myria_tool_feedback_total{{{HERE}, sufficient="true"}}[1d])) '
                        f"/ sum(increase(myria_tool_feedback_total{{{HERE}}}[1d]))",
                        "enough",
                    ),
                    unit="percentunit",
                ),
            ),
        ),
        (
            "Erasures",
            (
                graph(
                    "Erasures in an hour",
                    "What has begun, and what is done and has its receipt.",
                    (f"sum by (stage) (increase(myria_erasures_total{{{HERE}}}[1h]))", "{{stage}}"),
                ),
                graph(
                    "Rows erased in an hour",
                    "By the table in which they were emptied or removed.",
                    (f"sum by (place) (increase(myria_erased_rows_total{{{HERE}}}[1h])) > 0", "{{place}}"),
                    stacked=True,
                ),
                graph(
                    "Oldest erasure that is not done",
                    "Its events are in no answer already; something keeps it from its end if this grows for long.",
                    (f"max(myria_oldest_open_erasure_seconds{{{HERE}}})", "oldest"),
                    unit="s",
                ),
            ),
        ),
        (
            "Operator (Kubernetes)",
            (
                graph(
                    "Resources that wait",
                    "MyriaRebuilds in the operator's queue.",
                    (f"sum(myria_operator_queue_length{{{HERE}}})", "queue"),
                ),
                graph(
                    "One pass, and from event to end",
                    "How long a reconciliation takes, and how long after its cause it ends.",
                    (quantile(0.95, "myria_operator_reconcile_duration_seconds"), "pass, p95"),
                    (quantile(0.95, "myria_operator_event_latency_seconds"), "from event to end, p95"),
                    unit="s",
                ),
                graph(
                    "Requests to the API server",
                    "Per second, by answer. 403 is a missing right; 409 is ordinary; 5xx is the API server's trouble.",
                    (f"sum by (code) (rate(myria_operator_api_requests_total{{{HERE}}}[{RATE}]))", "{{code}}"),
                    unit="reqps",
                    stacked=True,
                ),
                graph(
                    "Since it last moved",
                    "Age of the queue's last tick and of the last sweep over everything.",
                    (f"time() - max(myria_operator_last_progress_timestamp_seconds{{{HERE}}})", "queue"),
                    (f"time() - max(myria_operator_last_sweep_timestamp_seconds{{{HERE}}} > 0)", "sweep"),
                    unit="s",
                ),
                graph(
                    "MyriaRebuilds by reason",
                    "As the last sweep saw them (docs/kubernetes.md, Reading).",
                    (f"sum by (reason) (myria_operator_rebuilds{{{HERE}}}) > 0", "{{reason}}"),
                    stacked=True,
                ),
            ),
        ),
    ]
    return dashboard(
        "myria-builds", "Myria / Memory and builds", "How fresh memory is, and what becomes of builds.", rows
    )


def stat(
    title: str,
    query: str,
    description: str,
    *,
    unit: str = "short",
    steps: Sequence[tuple[float | None, str]],
    words: dict[str, str] | None = None,
) -> Panel:
    """Return a panel of one number."""
    return Panel(
        title=title,
        queries=((query, ""),),
        description=description,
        unit=unit,
        kind="stat",
        steps=steps,
        words=words or {},
    )


def graph(
    title: str,
    description: str,
    *queries: tuple[str, str],
    unit: str = "short",
    steps: Sequence[tuple[float | None, str]] = ((None, GREEN),),
    stacked: bool = False,
    limit: bool = False,
) -> Panel:
    """Return a panel of lines over time."""
    return Panel(
        title=title,
        queries=queries,
        description=description,
        unit=unit,
        steps=steps,
        stacked=stacked,
        limit=limit,
    )


def database_is_up() -> Panel:
    """Return the panel that tells whether the database is there; both dashboards begin with it."""
    return stat(
        "Database",
        f"min(myria_database_up{{{HERE}}})",
        "Whether every process reaches PostgreSQL.",
        steps=((None, RED), (1, GREEN)),
        words={"0": "away", "1": "up"},
    )


def quantile(q: float, histogram: str, matchers: str = "", *, by: str = "", over: str = RATE) -> str:
    """Return PromQL for a quantile of a histogram."""
    chosen = f"{HERE}, {matchers}" if matchers else HERE
    grouped = f"{by}, le" if by else "le"
    return f"histogram_quantile({q:g}, sum by ({grouped}) (rate({histogram}_bucket{{{chosen}}}[{over}])))"


def dashboard(uid: str, title: str, description: str, rows: Sequence[tuple[str, Sequence[Panel]]]) -> Json:
    """Return a whole dashboard; each row of panels begins with a heading, but for the first."""
    ids, panels, y = count(1), [], 0
    for number, (heading, row) in enumerate(rows):
        if number:
            panels.append(heading_panel(next(ids), heading, y))
            y += 1
        stats = [panel for panel in row if panel.kind == "stat"]
        across = len(stats) or (3 if len(row) % 3 == 0 or len(row) == 5 else 2)
        height = 4 if stats else 8
        for place, panel in enumerate(row):
            left = len(row) - place // across * across
            columns = min(across, left)
            width = WIDTH // columns
            grid = {"x": place % across * width, "y": y + place // across * height, "w": width, "h": height}
            panels.append(drawn(next(ids), panel, grid))
        y += -(-len(row) // across) * height
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["myria"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": "Myria",
                "tags": ["myria"],
                "asDropdown": False,
                "icon": "external link",
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "tooltip": "",
            }
        ],
        "annotations": {
            "list": [annotation("Published", "publish", GREEN), annotation("Rolled back", "rollback", RED)]
        },
        "templating": {"list": list(variables())},
        "panels": panels,
    }


def annotation(name: str, kind: str, colour: str) -> Json:
    """Return marks on every graph where the pointer moved."""
    expression = f'sum by (namespace) (increase(myria_pointer_moves_total{{{HERE}, kind="{kind}"}}[1m])) > 0'
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "iconColor": colour,
        "target": {"refId": "A", "expr": expression, "interval": "1m"},
        "titleFormat": name,
        "textFormat": "{{namespace}}",
        "tagKeys": "namespace",
        "useValueForTime": False,
    }


def variables() -> Iterator[Json]:
    """Yield what can be chosen above the panels."""
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "includeAll": False,
        "multi": False,
        "hide": 0,
    }
    for name, label, metric in (
        ("namespace", "Installation", "myria_build_info"),
        ("tenant", "Tenant", 'myria_memory_lag_seconds{namespace=~"$namespace"}'),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": f"label_values({metric}, {name})", "refId": f"Variable-{name}"},
            "refresh": 2,
            "sort": 1,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            "hide": 0,
        }


def heading_panel(number: int, title: str, y: int) -> Json:
    """Return the heading of a row."""
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
        "panels": [],
    }


def drawn(number: int, panel: Panel, grid: dict[str, int]) -> Json:
    """Return a panel as Grafana keeps it."""
    defaults: Json = {
        "unit": panel.unit,
        "thresholds": {
            "mode": "absolute",
            "steps": [{"value": value, "color": colour} for value, colour in panel.steps],
        },
        "mappings": [
            {"type": "value", "options": {value: {"text": word, "index": index}}}
            for index, (value, word) in enumerate(panel.words.items())
        ],
    }
    if panel.kind != "stat":
        defaults |= {"min": 0, "custom": lines(panel)}
        if panel.unit == "percentunit":
            defaults["max"] = 1
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": grid,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend or "__auto",
                "range": True,
            }
            for index, (expression, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": number_options() if panel.kind == "stat" else line_options(),
    }


def lines(panel: Panel) -> Json:
    """Return how the lines of a graph look."""
    return {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 2,
        "fillOpacity": 25 if panel.stacked else 6,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if panel.limit else "off"},
    }


def number_options() -> Json:
    """Return the options of a stat: the last value on a coloured ground, with a small line of its past."""
    return {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "orientation": "auto",
        "colorMode": "background",
        "graphMode": "area",
        "justifyMode": "center",
        "textMode": "value",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }


def line_options() -> Json:
    """Return the options of a graph."""
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def service_errors() -> str:
    """Return the outcomes that are the service's own fault, as the alert rules list them."""
    rules = (FILES / "alerts/serving.yaml").read_text(encoding="utf-8")
    lists: set[str] = set(re.findall(r'outcome=~"([^"]*)"', rules))
    assert len(lists) == 1, "the rules disagree"
    return lists.pop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
