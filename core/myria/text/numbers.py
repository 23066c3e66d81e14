"""Words that are numbers: what states are told by, and told anew ("88 kilos", "84 this morning").

Numbers up to 999 and the words for them. Longer ones are mostly years, telephone numbers and the like; "one" is mostly
no number.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from myria.text.words import term_id, terms

_WORDS = """
two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million half dozen couple twice
2x 3x 4x 5x 6x 7x 8x 9x 10x
"""


_NUMBERS: Final = frozenset((*terms(_WORDS), *map(str, range(1, 1000))))


@cache
def number_ids() -> npt.NDArray[np.int64]:
    """Return the ids of terms that are numbers, ascending."""
    return np.array(sorted(map(term_id, _NUMBERS)), dtype=np.int64)
