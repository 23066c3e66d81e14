"""PostgreSQL's snapshots outside PostgreSQL: which transactions a `pg_current_snapshot()` could see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True, slots=True)
class Visibility:
    """A parsed `pg_snapshot`: everything below `xmin` is settled, nothing from `xmax` on is seen."""

    text: str
    xmin: int
    xmax: int
    in_progress: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Visibility:
        """Parse `xmin:xmax:xip,xip`.

        Raises:
            ValueError: not the text of a pg_snapshot.
        """
        xmin, xmax, listed = text.split(":")
        in_progress = tuple(int(xid) for xid in listed.split(",") if xid)
        return cls(text=text, xmin=int(xmin), xmax=int(xmax), in_progress=in_progress)

    def sees(self, xids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of `xids`, all of committed transactions, this snapshot sees."""
        seen: npt.NDArray[np.bool_] = xids < self.xmax
        if self.in_progress and bool((xids >= self.xmin).any()):
            seen &= ~np.isin(xids, np.asarray(self.in_progress, dtype=np.int64))
        return seen
