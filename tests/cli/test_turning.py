"""`myria turns`: the report of shadow mode, and a tenant's cut-over."""

from __future__ import annotations

import asyncio

from myria.db.database import Database as Pool
from myria.notes.turns.model import Session
from myria.notes.turns.shadow import Comparison, ShadowLog
from tests.cli.conftest import Call
from tests.support.postgres import Database


def test_the_mode_of_a_tenant(myria: Call) -> None:
    """It is set, shown with the tenant, put back, and noted; unknown tenants and modes are refused."""
    assert myria("tenant", "create", "team-a").status == 0
    assert myria("turns", "mode", "team-a", "shadow", "--json").json["turns"] == "shadow"
    assert myria("tenant", "show", "team-a", "--json").json["turns"] == "shadow"
    assert myria("turns", "mode", "team-a", "default", "--json").json["turns"] is None
    assert "tenant.turns" in myria("audit", "--access").out
    assert myria("turns", "mode", "team-a", "half").status == 2
    assert myria("turns", "mode", "nobody", "on").status == 3


def test_the_report_of_shadow_mode(myria: Call, database: Database) -> None:
    """Nothing yet, then the figures by call and aspect, and the turns that differ."""
    assert "nothing was compared" in myria("turns", "shadow").err
    assert myria("turns", "shadow", "--json").json == {"aspects": [], "differing": []}
    asyncio.run(_compare(database))
    report = myria("turns", "shadow", "--json").json
    assert [(row["aspect"], row["compared"], row["same"], row["extra"]) for row in report["aspects"]] == [
        ("facts", 1, 0, 2),
        ("tokens", 1, 1, 0),
    ]
    [differs] = report["differing"]
    assert (differs["context_id"], differs["turn_id"], differs["ours"], differs["theirs"]) == ("p/s", "t1", 5, 3)
    shown = myria("turns", "shadow").out
    assert "facts" in shown
    assert "p/s" in shown


async def _compare(database: Database) -> None:
    compared = [
        Comparison(aspect="facts", same=False, ours=5, theirs=3, extra=2),
        Comparison(aspect="tokens", same=True, ours=100, theirs=101),
    ]
    session = Session(own=("bot",), participants=("bot",), project="p", session_id="s")
    async with Pool(database.server_dsn) as pool:
        shadows = ShadowLog(pool)
        shadows.note("default", session, "t1", "before", lambda: compared, on_compared=lambda *_: None)
        await shadows.close()
