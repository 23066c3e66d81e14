"""The storage under CrewAI's own memory, with a scripted model."""

# mypy: ignore-errors
# Checked against nothing: CrewAI is in an environment of its own.

import os
import sys
from datetime import UTC, datetime, timedelta

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false", OTEL_SDK_DISABLED="true")

from crewai import BaseLLM
from crewai.memory.storage.backend import StorageBackend
from crewai.memory.types import MemoryRecord

from examples.integrations.crewai_storage import build
from myria_client import Client
from myria_client.integrations.crewai import MyriaStorage

URL = sys.argv[1]


class Scripted(BaseLLM):
    """Answers nothing that could be analysed: CrewAI then keeps texts as they are."""

    def call(self, *_args, **_named):
        return "no"


def backend(client):
    """Every call of a storage does what CrewAI's protocol says."""
    storage = MyriaStorage(client, agent="backend")
    assert isinstance(storage, StorageBackend)
    old = datetime.now(UTC) - timedelta(days=9)
    records = [
        MemoryRecord(id="1", content="The oven is a Rofco", scope="/k/ovens", categories=["oven"], metadata={"n": 1}),
        MemoryRecord(id="2", content="Flour comes on Monday", scope="/k/flour", categories=["flour"], created_at=old),
        MemoryRecord(id="3", content="Taxes are due", scope="/office", categories=["money"]),
    ]
    storage.save(records)
    (asked,) = storage.embedder(["Which oven is it?"])
    found = storage.search(asked, scope_prefix="/k", limit=2)
    assert found[0][0] == records[0]
    assert 0 < found[0][1] <= 1
    assert [r.id for r, _ in storage.search(asked, categories=["money"], limit=5)] == ["3"]
    assert [r.id for r, _ in storage.search(asked, metadata_filter={"n": 1}, limit=5)] == ["1"]
    assert storage.search(asked, scope_prefix="/k", min_score=0.99) == []
    try:
        storage.search([0.5] * 8)
    except ValueError:
        pass
    else:
        raise AssertionError("an embedding of somebody else was taken")
    assert storage.get_record("2") == records[1]
    assert storage.get_record("4") is None
    assert [r.id for r in storage.list_records("/k")] == ["2", "1"]
    assert [r.id for r in storage.list_records(limit=1, offset=1)] == ["2"]
    assert storage.list_scopes("/") == ["/k", "/office"]
    assert storage.list_scopes("/k") == ["/k/flour", "/k/ovens"]
    assert storage.list_categories("/k") == {"flour": 1, "oven": 1}
    info = storage.get_scope_info("/k")
    assert (info.record_count, info.child_scopes, info.oldest_record) == (2, ["/k/flour", "/k/ovens"], old)
    storage.update(records[0].model_copy(update={"content": "The oven is a Miele", "scope": "/k"}))
    assert storage.count() == 3
    assert storage.get_record("1").content == "The oven is a Miele"
    assert storage.delete(older_than=datetime.now(UTC) - timedelta(days=1)) == 1
    assert storage.delete(record_ids=["9"]) == 0
    storage.reset("/k")
    assert [r.id for r in storage.list_records()] == ["3"]
    storage.reset()
    assert storage.count() == 0


with Client(URL) as client:
    backend(client)
    memory = build(Scripted(model="scripted"), client)
    memory.remember("The oven is a Rofco from 2019", scope="/ovens", categories=["oven"], importance=0.8)
    memory.remember("Flour comes on Monday", scope="/flour", categories=["flour"], importance=0.5)
    again = build(Scripted(model="scripted"), client)
    best = again.recall("Which oven do we use?", depth="shallow")[0].record
    assert best.content == "The oven is a Rofco from 2019"
    assert best.scope.startswith("/kitchen")
    assert again.forget(scope="/ovens") == 1
    left = [match.record.content for match in again.recall("When does flour come?", depth="shallow")]
    assert left == ["Flour comes on Monday"], left
    memory.close()
    again.close()
print("sound")
sys.stdout.flush()
os._exit(0)  # CrewAI's threads for telemetry do not end by themselves
