"""Write core/myria/analysis/akin.txt: words akin to those of questions, by the vectors of single words.

Each noun, verb, adjective and adverb that WordNet's sample of texts has at least twice, and each word of the lists
written by hand, has the words beside it that lie nearest, of those that the sample has at least four times and of these
lists. The vectors are all-MiniLM-L6-v2's (Apache 2.0), less their mean and the two directions in which they vary most,
in which unlike words lie near to each other. Numbers and dates have none beside them, nor do words that say nothing of
what a question is about.

    python scripts/akin_words.py FOLDER      # with data.* and index.sense of WordNet 3.1; needs 'myria[embeddings]'
"""

from __future__ import annotations

import asyncio
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from myria.analysis import is_stopword, terms
from myria.analysis.dates import is_date_word
from myria.analysis.numbers import is_number
from myria.embeddings.local import LocalModel

ANALYSIS = Path(__file__).resolve().parent.parent / "core/myria/analysis"
TARGET = ANALYSIS / "akin.txt"
ASKED = 2
TOLD = 4
BESIDE = 40
LEAST = 0.2
"""The least cosine: rare words have hardly a word near to them."""
DIRECTIONS = 2
"""In which the vectors of single words vary most: how long and how technical they are, not what they mean."""
_PARTS = ("noun", "verb", "adj", "adv")
_LONGEST_S = 3_600.0
_AT_ONCE = 1_024
_ABOUT_NOTHING = frozenset(
    term
    for word in """
    according besides certain chat conversation current currently describe discuss due elapse event except happen item
    kind lapse mention message multiple new news particular regarding say several sort speak specific state talk tell
    time type various
    """.split()  # noqa: SIM905
    for term in terms(word)
)
HEAD = """\
# Words akin to a word of a question, which begins the line, the nearest first: what may be told where it is asked for.
# Made by scripts/akin_words.py, which says by which rules, from the words of WordNet 3.1 (its notice stands in
# wordnet.txt) and vectors of all-MiniLM-L6-v2 (Apache 2.0, https://www.apache.org/licenses/LICENSE-2.0). A list of
# words: no vector and no model is needed to read it."""


def main() -> None:
    """Write the file."""
    times = _sampled(Path(sys.argv[1]))
    by_hand = _by_hand()
    words = sorted({word for word in times if times[word] >= ASKED} | by_hand, key=lambda word: (-times[word], word))
    asked = _by_term(word for word in words if not _says_little(word))
    told = _by_term(word for word in words if (times[word] >= TOLD or word in by_hand) and not _is_count(word))
    vectors = asyncio.run(_vectors(dict.fromkeys([*asked.values(), *told.values()])))
    of_told = np.array([vectors[word] for word in told.values()])
    mean = of_told.mean(0)
    *_, directions = np.linalg.svd(of_told - mean, full_matrices=False)
    nearness = (
        _cleared([vectors[word] for word in asked.values()], mean, directions[:DIRECTIONS])
        @ _cleared(of_told, mean, directions[:DIRECTIONS]).T
    )
    candidates = list(told.items())
    lines = []
    for (term, word), near in zip(asked.items(), nearness, strict=True):
        beside = [candidates[at] for at in np.argsort(-near, kind="stable")[: BESIDE + 1] if near[at] >= LEAST]
        lines.append(f"{word}: {' '.join([other for of, other in beside if of != term][:BESIDE])}")
    TARGET.write_text("\n".join([HEAD, *sorted(lines)]) + "\n", "utf-8")


def _sampled(folder: Path) -> Counter[str]:
    """Return how often the sample has each word of plain small letters."""
    written: set[str] = set()
    for part in _PARTS:
        for line in (folder / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if not line.startswith("  "):
                _, _, _, size, *rest = line.partition("|")[0].split()
                written.update(word.partition("(")[0] for word in rest[: 2 * int(size, 16) : 2])
    times: Counter[str] = Counter()
    for line in (folder / "index.sense").read_text(encoding="latin-1").splitlines():
        key, _, _, count = line.split()
        word = key.partition("%")[0]
        if word in written and re.fullmatch(r"[a-z]{3,}", word):
            times[word] += int(count)
    return times


def _by_hand() -> set[str]:
    """Return the words of the lists written by hand."""
    texts = [re.search(r'_GROUPS = """(.*?)"""', (ANALYSIS / "related.py").read_text("utf-8"), re.DOTALL)[1]]  # type: ignore[index]
    for table in ("members.toml", "states.toml"):
        kinds = tomllib.loads((ANALYSIS / table).read_text("utf-8"))["kinds"]
        texts += [f"{kind['asked']} {kind['told']}" for kind in kinds]
    return set(re.findall(r"[a-z]{3,}", " ".join(texts)))


def _by_term(words: Iterable[str]) -> dict[str, str]:
    """Return the first word of each term."""
    by_term: dict[str, str] = {}
    for word in words:
        for term in terms(word):
            if not is_stopword(term):
                by_term.setdefault(term, word)
    return by_term


def _is_count(word: str) -> bool:
    return any(is_date_word(term) or is_number(term) for term in terms(word))


def _says_little(word: str) -> bool:
    return _is_count(word) or not _ABOUT_NOTHING.isdisjoint(terms(word))


async def _vectors(words: Iterable[str]) -> dict[str, np.ndarray]:
    model, wanted = LocalModel.installed(), list(words)
    found: list[bytes | None] = []
    for at in range(0, len(wanted), _AT_ONCE):
        found += await model.embed(wanted[at : at + _AT_ONCE], within_s=_LONGEST_S)
    vectors = [np.frombuffer(vector or b"", dtype=np.int8).astype(np.float64) for vector in found]
    return {word: vector / np.linalg.norm(vector) for word, vector in zip(wanted, vectors, strict=True)}


def _cleared(vectors: Sequence[np.ndarray] | np.ndarray, mean: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return vectors of length 1 without their mean and what lies in some directions."""
    less = np.array(vectors) - mean
    less -= (less @ directions.T) @ directions
    cleared: np.ndarray = less / np.linalg.norm(less, axis=1, keepdims=True)
    return cleared


if __name__ == "__main__":
    main()
