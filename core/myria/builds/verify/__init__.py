"""Proof of the invariants on a live database: everything stored is recomputed from the log and compared.

The whole examination sees one state of the database (one REPEATABLE READ transaction), so builds and appends may go on
meanwhile; it holds back vacuum for as long as it runs. It streams: its memory grows with the longest scope's number of
events (a few dozen bytes each), not with their text or with the log.

`log`, `identities`, `snapshots`, `trees`, `blocks` and `replan` each prove what their first line says.
"""

from myria.builds.verify.report import CHECKS, DEEP, SHOWN_FAILURES, Check, Progress, Report
from myria.builds.verify.run import verify

__all__ = ["CHECKS", "DEEP", "SHOWN_FAILURES", "Check", "Progress", "Report", "verify"]
