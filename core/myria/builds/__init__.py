"""The build plane's work: from the log's new events to a published snapshot.

`run.run_build` drives one build to its end, in any number of processes at once; the other modules are its steps, in
order: `capture` (cutoff, staging snapshot, tasks), `tasks` (claim and lease), `compilation` (one scope), `finish`
(publish, hold, fail). `collect` removes what no kept snapshot reads. Every step may be killed anywhere and done again.

This package imports no step: who reads what a build is need not load the planner.
"""

from myria.builds.model import BuildRow, Outcome

__all__ = ["BuildRow", "Outcome"]
