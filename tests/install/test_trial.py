"""The first ten minutes: `helm install` with the trial's PostgreSQL, with every pod really running."""

from __future__ import annotations

from tests.install.node import Node
from tests.install.releases import Release

TRIAL = {"crds": {"enabled": False}, "postgres": {"mode": "trial"}}


def test_the_trial_installs_and_passes_its_own_test(release: Release, node: Node) -> None:
    """`helm install --wait` ends with everything ready; `helm test` appends, rebuilds and queries."""
    release.install(TRIAL, wait_s=120)
    release.test()
