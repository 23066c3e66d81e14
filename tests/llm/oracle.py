"""The provider's scripts: a deterministic oracle that plans and walks well, and what is read out of prompts."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from tests.llm.fences import unfenced
from tests.llm.provider import Answer, Asked, calling

Json = dict[str, Any]


def shown(asked: Asked) -> Json:
    """Return the data of the first fence in a prompt: what the workflow was told to begin with."""
    for message in asked.body["messages"]:
        if message["role"] == "user" and "=== data " in str(message["content"]):
            data: Json = unfenced(message["content"])
            return data
    raise AssertionError("the prompt holds no data")


def last(asked: Asked) -> Any:
    """Return the data of the newest fence in a prompt."""
    return unfenced(asked.body["messages"][-1]["content"])


def words(ids: list[str], what: str) -> Json:
    """Return a label and a summary made of ids."""
    return {"label": f"{what} of {ids[0]}", "summary": f"{what}: {' '.join(ids)}"[:390], "rests_on": ids[:3]}


def plan(data: Json) -> Json:
    """Return a plan for a page: leaves that the deterministic planner would not make, some of them interleaved."""
    ids = [event["id"] for event in data["events"]]
    least, most = data["bounds"]["events_per_leaf"]
    size = max(least, min(4, most))
    leaves = []
    for start in range(0, len(ids), 2 * size):
        part = ids[start : start + 2 * size]
        # Every other event: no contiguous plan would do that.
        halves = [part[::2], part[1::2]] if len(part) >= 4 * least else [part]
        leaves += [half for half in halves if len(half) >= least] if len(part) >= least else []
    placed = {one for leaf in leaves for one in leaf}
    rest = [one for one in ids if one not in placed]
    if rest and leaves and len(leaves[-1]) + len(rest) <= most:
        leaves[-1] = leaves[-1] + rest
    elif rest:
        leaves.append(rest)
    earlier = data["earlier_topics"]
    result: Json = {
        "leaves": [
            {
                "events": leaf,
                **words(leaf, "talk"),
                "continues": earlier[-1]["id"] if earlier and number == 0 else None,
            }
            for number, leaf in enumerate(leaves)
        ],
        "groups": [],
        **words(ids, "conversation"),
    }
    if len(leaves) > 3:
        result["groups"] = [{"leaves": [1, 2], **words(sorted({*leaves[0], *leaves[1]}), "part")}]
    return result


def groups(data: Json) -> Json:
    """Return the groups of a unit of several pages."""
    return {"groups": [], **words(data["leaves"][0]["rests_on"], "conversation")}


@dataclass
class Oracle:
    """A script that always plans well; `plans` are the arguments it submitted, with what it was shown."""

    plans: list[tuple[Json, Json]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, asked: Asked) -> Answer:
        """Answer one request."""
        data = shown(asked)
        if "events" in data:
            arguments = plan(data)
            with self.lock:
                self.plans.append((data, arguments))
            return calling(asked, ("submit_plan", arguments))
        if "leaves" in data:
            return calling(asked, ("submit_groups", groups(data)))
        return calling(asked, ("choose", {"add": [one["id"] for one in data["further"]][:5], "stop": True}))
