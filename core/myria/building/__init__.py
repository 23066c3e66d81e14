"""The build plane's work: from the log's new events to a published snapshot.

`run_build` drives one build to its end, in any number of processes at once; the other modules are its steps, in
order: `capture` (cutoff, staging snapshot, tasks), `tasks` (claim and lease), `compilation` (one scope), `finish`
(publish, hold, fail). `collect` removes what no kept snapshot reads. Every step may be killed anywhere and done again.
"""

from myria.building.collect import Collected, collect_garbage
from myria.building.model import BuildRow, Outcome
from myria.building.run import run_build

__all__ = ["BuildRow", "Collected", "Outcome", "collect_garbage", "run_build"]
