"""What the sweep decides without asking anybody."""

from __future__ import annotations

from myria_operator.facts import Rebuild
from myria_operator.sweep import age


def test_resources_of_one_second_are_as_old_as_their_builds() -> None:
    """The API server's times have whole seconds; the names of resources say nothing of their age."""
    names = ("zeta", "beta", "omega", "alpha")
    made = [
        Rebuild.from_object(
            {
                "metadata": {"namespace": "n", "name": name, "uid": name, "creationTimestamp": "2026-03-01T12:00:00Z"},
                "spec": {"tenant": "default"},
                "status": {"buildID": f"bld_{number:012x}{'f0'[number % 2] * 20}"},
            }
        )
        for number, name in enumerate(names)
    ]
    later = Rebuild.from_object(
        {
            "metadata": {"namespace": "n", "name": "aa", "uid": "aa", "creationTimestamp": "2026-03-01T12:00:01Z"},
            "spec": {"tenant": "default"},
        }
    )
    assert [one.name for one in sorted([later, *made], key=age)] == [*names, "aa"]
