"""What the sweep decides without asking anybody."""

from __future__ import annotations

from myria_operator.observed import Rebuild
from myria_operator.sweep import age


def resource(name: str, time: str, **status: str) -> Rebuild:
    """Return a resource made at that time of one day."""
    metadata = {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1"}
    return Rebuild.from_object(
        {
            "metadata": {**metadata, "creationTimestamp": f"2026-03-01T{time}Z"},
            "spec": {"tenant": "default"},
            "status": status,
        }
    )


def test_resources_of_one_second_are_as_old_as_their_builds() -> None:
    """The API server's times have whole seconds; the names of resources say nothing of their age."""
    names = ("zeta", "beta", "omega", "alpha")
    made = [
        resource(name, "12:00:00", buildID=f"bld_{number:012x}{'f0'[number % 2] * 20}")
        for number, name in enumerate(names)
    ]
    later = resource("aa", "12:00:01")
    assert [one.name for one in sorted([later, *made], key=age)] == [*names, "aa"]
