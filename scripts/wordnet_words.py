"""Write core/myria/analysis/wordnet.txt from the database files of WordNet 3.1: wider words for those of questions.

Of each noun that its sample of texts has at least twice, in its most frequent sense: nouns for the same, and nouns for
kinds of it, up to three steps down, where these are at most 150 and the sample has them at least once. Only single
words that are nouns first of all, and whose first sense this is: a wrong word costs more than a missing one.

    python scripts/wordnet_words.py FOLDER      # with data.noun, index.noun, index.verb, index.adj and index.sense
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "core/myria/analysis/wordnet.txt"
DEEPEST = 3
MOST_KINDS = 150
ASKED = 2
LICENCE_LINES = 29
"""Lines of a database file that hold its licence, to be kept with every copy."""
_PARTS = {"1": "noun", "2": "verb", "3": "adj", "5": "adj", "4": "adv"}


@dataclass(frozen=True, slots=True)
class Nouns:
    """The nouns: words and kinds of each sense, senses of each word, and how often the sample has each word."""

    words: dict[str, list[str]]
    kinds: dict[str, list[str]]
    senses: dict[str, list[str]]
    count: Counter[tuple[str, str]]

    @classmethod
    def read(cls, folder: Path) -> Nouns:
        words: dict[str, list[str]] = {}
        kinds: dict[str, list[str]] = {}
        for line in _lines(folder / "data.noun"):
            sense, _, _, size, *rest = line.partition("|")[0].split()
            after = 2 * int(size, 16)
            words[sense] = [word.lower() for word in rest[:after:2]]
            pointers = rest[after + 1 : after + 1 + 4 * int(rest[after])]
            kinds[sense] = [to for how, to in zip(pointers[::4], pointers[1::4], strict=True) if how in ("~", "~i")]
        senses: dict[str, list[str]] = {}
        for line in _lines(folder / "index.noun"):
            word, _, _, skipped, *rest = line.split()
            senses[word] = rest[int(skipped) + 2 :]
        count: Counter[tuple[str, str]] = Counter()
        for line in (folder / "index.sense").read_text(encoding="latin-1").splitlines():
            key, _, _, times = line.split()
            word, _, number = key.partition("%")
            count[word, _PARTS[number[0]]] += int(times)
        return cls(words=words, kinds=kinds, senses=senses, count=count)

    def asked(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each word that questions may hold, with the words that answers may hold instead."""
        for word, senses in self.senses.items():
            if word.isalpha() and self.count[word, "noun"] >= ASKED:
                same = [other for other in self.words[senses[0]] if other != word and self._means(other, senses[0])]
                below = [
                    other
                    for sense in self._below(senses[0])
                    for other in self.words[sense]
                    if other != word and self._means(other, sense) and self._is_told(other)
                ]
                if same or below:
                    yield word, sorted(dict.fromkeys([*below, *same]))

    def _means(self, word: str, sense: str) -> bool:
        return word.isalpha() and self.senses.get(word, [None])[0] == sense

    def _is_told(self, word: str) -> bool:
        """Tell whether the sample has a word, and as a noun first of all."""
        times = self.count[word, "noun"]
        return times > 0 and self.count[word, "verb"] + self.count[word, "adj"] <= max(2, times)

    def _below(self, sense: str) -> list[str]:
        found: dict[str, None] = {}
        open_ = deque([(sense, 0)])
        while open_:
            above, depth = open_.popleft()
            for kind in self.kinds[above] if depth < DEEPEST else ():
                if kind not in found:
                    found[kind] = None
                    open_.append((kind, depth + 1))
        return list(found) if len(found) <= MOST_KINDS else []


def main() -> None:
    """Write the file."""
    folder = Path(sys.argv[1])
    with (folder / "data.noun").open(encoding="latin-1") as file:
        licence = [f"#{line[line.index(' ', 2) :].rstrip()}" for line in islice(file, LICENCE_LINES)]
    told = dict(Nouns.read(folder).asked())
    head = [
        "# Words that may stand in an answer for a word of a question, which begins the line: nouns for the same and",
        "# for kinds of it. Made from WordNet 3.1 by scripts/wordnet_words.py, which says by which rules.",
        "#",
        *licence,
    ]
    lines = [*head, *(f"{word}: {' '.join(told[word])}" for word in sorted(told))]
    TARGET.write_text("\n".join(lines) + "\n", "utf-8")


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a database file below its licence."""
    for line in path.read_text(encoding="latin-1").splitlines():
        if not line.startswith("  "):
            yield line


if __name__ == "__main__":
    main()
