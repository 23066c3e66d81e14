"""The data-set adapter."""

from __future__ import annotations

import orjson
import pytest

from benchmarks.adapter import batches, event_arguments, event_lines
from benchmarks.synthetic import events
from myria.log.event import parse_event
from myria.log.limits import Limits


def test_labels_of_the_data_set_are_dropped() -> None:
    """Every generated line becomes arguments that the contract accepts, without the data set's label."""
    lines = [orjson.dumps(event) for event in events(50)]
    assert all(b'"conversation"' in line for line in lines)
    arguments = list(event_arguments(lines))
    assert all("conversation" not in event for event in arguments)
    assert [parse_event(event, Limits()).source_event_key for event in arguments] == [f"e{i:08d}" for i in range(50)]


def test_other_fields_pass_as_they_are() -> None:
    """A field that is no label is left to the contract, which knows what to say about it."""
    (line,) = event_lines([b'{"conversation": "c", "channel": "x", "mood": 1}', b"\n"])
    assert orjson.loads(line) == {"channel": "x", "mood": 1}


def test_the_file_is_streamed() -> None:
    """The first events are there before the last line has been read."""

    def lines() -> object:
        yield b'{"channel": "x"}'
        raise AssertionError("read too far")

    stream = event_arguments(lines())  # type: ignore[arg-type]
    assert next(stream) == {"channel": "x"}
    with pytest.raises(AssertionError):
        next(stream)


def test_batches_keep_order_and_size() -> None:
    """Items come in their order, no batch beyond the size, none empty."""
    assert list(batches(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(batches([], 2)) == []


def test_generated_events_are_reproducible() -> None:
    """The same arguments give the same events; another seed gives others."""
    assert list(events(200)) == list(events(200))
    assert list(events(200)) != list(events(200, seed=2))
    assert {event["channel"] for event in events(200, sets=1)} == {"s00000"}
