"""Forty-odd ways in which a provider, or the model behind it, lets us down: each has a name and a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from tests.llm.oracle import Json, groups, plan, shown
from tests.llm.provider import Answer, Asked, calling, completion


def _good(asked: Asked) -> tuple[str, Json]:
    """Return the tool and the arguments that a sound model would call."""
    data = shown(asked)
    if "events" in data:
        return "submit_plan", plan(data)
    if "leaves" in data:
        return "submit_groups", groups(data)
    return "choose", {"add": [one["id"] for one in data["further"]][:3], "stop": True}


def _text(asked: Asked) -> bytes:
    """Return a sound reply as bytes."""
    return calling(asked, _good(asked)).body


def _spoilt(change: Callable[[Json], Any]) -> Callable[[Asked], Answer]:
    """Return a script whose arguments are changed by `change`, in place."""

    def script(asked: Asked) -> Answer:
        name, arguments = _good(asked)
        change(arguments)
        return calling(asked, (name, arguments))

    return script


def _leaf(**fields: Any) -> Callable[[Asked], Answer]:
    """Return a script that changes fields of the first leaf, or adds nonsense where there is none."""

    def change(arguments: Json) -> None:
        (arguments["leaves"][0] if "leaves" in arguments else arguments).update(fields)

    return _spoilt(change)


def _forget(arguments: Json) -> None:
    if "leaves" in arguments:
        arguments["leaves"] = arguments["leaves"][1:]
    else:
        arguments["add"] = "e1"


def _twice(arguments: Json) -> None:
    if "leaves" in arguments:
        arguments["leaves"].append(arguments["leaves"][0])
    else:
        arguments["add"] = ["e1", "e1", "e0"]


def _one_leaf(arguments: Json) -> None:
    """Collapse everything into one leaf (over-merge)."""
    if "leaves" in arguments:
        every = [one for leaf in arguments["leaves"] for one in leaf["events"]] * 2
        arguments["leaves"] = [{**arguments["leaves"][0], "events": every}]
    else:
        arguments["add"] = [f"e{n}" for n in range(1000)]


def _dust(arguments: Json) -> None:
    """Give every event a leaf of its own (under-merge)."""
    if "leaves" in arguments:
        events = [one for leaf in arguments["leaves"] for one in leaf["events"]]
        arguments["leaves"] = [
            {"events": [one], "label": one, "summary": one, "rests_on": [one], "continues": None} for one in events
        ]
    else:
        arguments["stop"] = "maybe"


def _foreign(name: str) -> Callable[[Asked], Answer]:
    def change(arguments: Json) -> None:
        if "leaves" in arguments:
            arguments["leaves"][0]["events"] = [*arguments["leaves"][0]["events"], name]
        else:
            arguments["add"] = [name]

    return _spoilt(change)


def _inspects_for_ever(asked: Asked) -> Answer:
    return calling(asked, ("inspect_subtree", {"root": "t1"}))


def _flaky(asked: Asked) -> Answer:
    return Answer(status=503) if asked.number % 2 else calling(asked, _good(asked))


HUGE = "\U0001f9e8" * 3000

Misbehaviours = Mapping[str, Callable[[Asked], Answer]]
"""By name, what the provider does with every request."""

OF_THE_PROVIDER: Misbehaviours = {
    # The connection.
    "hangs": lambda _: Answer(hang=True),
    "slow": lambda asked: Answer(body=_text(asked), after_s=5.0),
    "drips": lambda asked: Answer(body=_text(asked), drip=1, pause_s=0.05),
    "closes at once": lambda _: Answer(raw=b""),
    "cuts the body": lambda asked: Answer(body=_text(asked), cut=60),
    "speaks no http": lambda _: Answer(raw=b"220 smtp ready\r\n"),
    "wrong length": lambda asked: Answer(body=_text(asked), headers={"Content-Length": "999999"}, cut=100),
    # The status.
    "401": lambda _: Answer(status=401, body=b'{"error": {"message": "bad key"}}'),
    "402": lambda _: Answer(status=402),
    "404": lambda _: Answer(status=404),
    "redirects": lambda _: Answer(status=307, headers={"Location": "http://127.0.0.1:1/"}),
    "rate limited": lambda _: Answer(status=429, headers={"Retry-After": "3600"}),
    "rate limited a little": lambda _: Answer(status=429, headers={"Retry-After": "0"}),
    "500": lambda _: Answer(status=500),
    "502 with a page": lambda _: Answer(status=502, body=b"<html>Bad gateway</html>"),
    "every other request fails": _flaky,
    "error under 200": lambda _: Answer(body=b'{"error": {"code": 429, "message": "busy"}}'),
    # The body.
    "empty body": lambda _: Answer(body=b""),
    "html": lambda _: Answer(body=b"<!doctype html><p>hello"),
    "half a json": lambda asked: Answer(body=_text(asked)[:-20]),
    "deep json": lambda _: Answer(body=b"[" * 50_000 + b"]" * 50_000),
    "binary": lambda _: Answer(body=bytes(range(256)) * 20),
    "gzip without asking": lambda _: Answer(body=b"\x1f\x8b\x08\x00", headers={"Content-Encoding": "gzip"}),
    "too large": lambda _: Answer(body=b" " * 2_000_000 + b"{}"),
    "nan": lambda _: Answer(body=b'{"choices": NaN}'),
    "another schema": lambda _: Answer(body=b'{"output": [{"type": "message"}]}'),
    "no choices": lambda _: Answer(body=b'{"choices": []}'),
    "null message": lambda _: Answer(body=b'{"choices": [{"message": null}]}'),
}
"""No reply comes, or none that the client can read: builds and queries have one client."""

OF_THE_MODEL: Misbehaviours = {
    # What the model says.
    "length": lambda asked: calling(asked, _good(asked), finish="length"),
    "refuses": lambda _: Answer(body=completion(refusal="I cannot help with that")),
    "filtered": lambda asked: calling(asked, _good(asked), finish="content_filter"),
    "chats": lambda _: Answer(body=completion(content="Sure! Here is the plan you asked for.")),
    "says nothing": lambda _: Answer(body=completion(content="")),
    "unknown tool": lambda asked: calling(asked, ("run_sql", {"sql": "DROP TABLE myria.events"})),
    "arguments are no json": lambda asked: calling(asked, (_good(asked)[0], "{events: [e1")),
    "arguments are a list": lambda asked: calling(asked, (_good(asked)[0], [1, 2])),
    "arguments are null": lambda asked: calling(asked, (_good(asked)[0], None)),
    "unknown field": _leaf(participants=["everybody"]),
    "wrong types": _leaf(events=7, label=["x"], add=3),
    "too many tools at once": lambda asked: Answer(body=completion(calls=[_good(asked)] * 50)),
    "inspects for ever": _inspects_for_ever,
    "lies about usage": lambda asked: calling(
        asked, _good(asked), usage={"prompt_tokens": -1, "completion_tokens": 10**18, "cost": -5}
    ),
    "costs a fortune": lambda asked: calling(
        asked, _good(asked), usage={"prompt_tokens": 10, "completion_tokens": 1, "cost": 900.0}
    ),
    # What the plan or the choice says.
    "forgets events": _spoilt(_forget),
    "places events twice": _spoilt(_twice),
    "one giant leaf": _spoilt(_one_leaf),
    "dust": _spoilt(_dust),
    "invents an id": _foreign("e9999"),
    "names a real id": _foreign("evt_0198c1d2a3b4c5d6e7f8"),
    "empty summary": _leaf(summary=""),
    "summary of nothing": _leaf(rests_on=[]),
    "rests on others": _leaf(rests_on=["e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8"]),
    "control characters": _leaf(label="\x00\x1b[2J\u202e", summary="\x00"),
    "huge unicode": _leaf(label=HUGE, summary=HUGE),
    "continues the unknown": _leaf(continues="t99"),
    "lone surrogates": lambda asked: calling(
        asked, (_good(asked)[0], orjson.dumps(_good(asked)[1]).decode().replace('"label":"', '"label":"\\ud800'))
    ),
}

MISBEHAVIOUR: Misbehaviours = {**OF_THE_PROVIDER, **OF_THE_MODEL}
