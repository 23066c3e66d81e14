"""Logs with questions whose answers are known, of each kind of talk: what benchmarks.retrieval asks.

A set of our own is a file of data/, whose half that nobody looks at while rules are written is called `_blind`. Its
`logs` have lines, and questions with the marks of the lines that answer them (`gold`) and of those that only seem to
(`wrong`). What is not ours stands in a folder outside the project.

A line that begins with "@" opens a session, "~ 6" stands for six lines of small talk by the people in turn, any other
is "speaker: text", "[mark]" before the text names it, and "\\n" in it is a new line.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import orjson

from benchmarks.in_memory import indexed
from myria.index import Corpus
from myria.log.payloads import searchable_text, speaker_of, whole_text

DATA = Path(__file__).parent / "data"
ASSISTANTS = frozenset({"assistant", "agent", "bot", "helper"})
MACHINES = frozenset({"git", "ci", "tool", "tracker"})
"""Speakers that are no people, in lower case."""

ADVERSARIAL = 5
"""Category of LoCoMo's questions without an answer in the conversation: left out."""

NOTES = "notes"
CLOSE_NOTES = "close notes"
Event = Mapping[str, Any]
"""Arguments of append_event."""
Told = tuple[dict[int, Event], dict[str, int]]
"""Events by number, from 1, and the numbers of the lines that have a mark."""

_FIRST_LINE = datetime(2025, 1, 1, tzinfo=UTC)
_APART = timedelta(seconds=25)
_MARKED = re.compile(r"(?:\[(?P<mark>[\w-]+)\] )?(?P<text>.*)", re.DOTALL)
_FACTS = 8
"""Facts of a pair in data/changed_facts.toml."""
_BEGIN = datetime(2025, 2, 3, 18, 0, tzinfo=UTC)
_LINES = 14
"""Lines of a session between the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question about one log.

    Attributes:
        gold: numbers of the events that answer it; none where the log does not say it.
        wrong: of those that answer something like it, which somebody could take for the answer.
    """

    text: str
    gold: frozenset[int]
    wrong: frozenset[int] = frozenset()
    category: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Events of one set of participants, by number, with the questions about them."""

    name: str
    events: Mapping[int, Event]
    questions: tuple[Asked, ...]

    def corpus(self) -> Corpus:
        """Return the log as the real planner plans it, indexed."""
        participants = next(iter(self.events.values()))["participants"]
        return indexed(tuple(sorted(participants)), list(self.events.items()))

    def texts(self) -> dict[int, str]:
        """Return what was said, by number."""
        return {number: searchable_text(event["payload"]) for number, event in self.events.items()}

    def whole_texts(self) -> dict[int, str]:
        """Return what has a vector, by number."""
        return {number: whole_text(event["payload"]) for number, event in self.events.items()}

    def said_by(self, number: int) -> str:
        """Return `assistant` or `user` of a log that an assistant takes part in; `other` are machines and, in a log of
        people alone, all.
        """
        event = self.events[number]
        if not any(name.casefold() in ASSISTANTS for name in event["participants"]):
            return "other"
        speaker = (speaker_of(event["payload"]) or "").casefold()
        return "assistant" if speaker in ASSISTANTS else "other" if speaker in MACHINES else "user"


class SetMissing(Exception):
    """The data of a kind are not there."""


def gold_data(name: str, folder: Path | None, *, blind: bool) -> list[Log]:
    """Return the logs of a data set outside the project: events.jsonl and questions.jsonl in a folder of that name.

    Raises:
        SetMissing: it is not there, or was asked for its blind half: what is here may be looked at.
    """
    if blind:
        raise SetMissing("has no blind half here")
    if folder is None or not (folder / name / "events.jsonl").is_file():
        raise SetMissing(f"needs {name}/ in the folder of --data")
    scopes: dict[tuple[str, ...], dict[int, Event]] = defaultdict(dict)
    numbers: dict[str, int] = {}
    for number, line in enumerate((folder / name / "events.jsonl").read_bytes().splitlines(), 1):
        event = orjson.loads(line)
        scopes[tuple(sorted(event["participants"]))][number] = event
        numbers[event["source_event_key"]] = number
    asked: dict[tuple[str, ...], list[Asked]] = defaultdict(list)
    for line in (folder / name / "questions.jsonl").read_bytes().splitlines():
        question = orjson.loads(line)
        if question["evidence"] and question["category"] != ADVERSARIAL:
            asked[tuple(sorted(question["participants"]))].append(
                Asked(
                    text=question["question"],
                    gold=frozenset(numbers[key] for key in question["evidence"]),
                    category=str(question.get("category_name", question["category"])),
                )
            )
    return [Log(name="-".join(scope), events=events, questions=tuple(asked[scope])) for scope, events in scopes.items()]


def chats(name: str, folder: Path | None, *, blind: bool) -> list[Log]:
    """Return one set of data/messy_chats.toml."""
    _no_blind_half(blind)
    told = _read("messy_chats")["chats"]
    return [_log(chat) for chat in told if chat.get("set", "first") == name]


def changed_once(folder: Path | None, *, blind: bool) -> list[Log]:
    """Return the questions for the present of data/changed_facts.toml: the newer statement is gold, the older wrong."""
    _no_blind_half(blind)
    return [_changed_once(pair, at) for at, pair in enumerate(_read("changed_facts")["pairs"])]


def _changed_once(pair: Mapping[str, Any], at: int) -> Log:
    """Return the conversation of two people: sixteen sessions, a week apart.

    A fact stands in one of the first eight and what replaced it eight sessions later, among small talk and what the
    other person says about the same kind of thing.
    """
    talk = _small_talk(at * 37)
    people: list[str] = pair["people"]
    events: dict[int, Event] = {}
    numbers: dict[tuple[int, str], int] = {}

    def say(speaker: str, text: str, when: datetime) -> int:
        number = len(events) + 1
        events[number] = {
            "participants": people,
            "timestamp": when.isoformat(),
            "channel": "chat",
            "source_event_key": str(number),
            "type": "message",
            "payload": {"speaker": speaker, "text": text},
        }
        return number

    for session in range(2 * _FACTS):
        which, kind = session % _FACTS, "older" if session < _FACTS else "newer"
        fact = pair["facts"][which]
        other = people[1 - people.index(fact["who"])]
        begin = _BEGIN + timedelta(days=7 * session, hours=session % 3)
        for line in range(_LINES):
            when = begin + timedelta(seconds=40 * line)
            if line == 4 + session % 5:
                numbers[which, kind] = say(fact["who"], fact[kind], when)
            elif line == 11 and session % 2 == (which // 4) % 2:
                say(other, fact["decoy"], when)
            else:
                say(people[line % 2], next(talk), when)
    questions = tuple(
        Asked(text=fact["now"], gold=frozenset({numbers[which, "newer"]}), wrong=frozenset({numbers[which, "older"]}))
        for which, fact in enumerate(pair["facts"])
    )
    return Log(name=f"{pair['half']} {at}", events=events, questions=questions)


def changed_often(data: str, folder: Path | None, *, blind: bool) -> list[Log]:
    """Return the same of facts that changed up to three times: of changed_states.toml or changed_in_talk.toml."""
    _no_blind_half(blind)
    logs = []
    for at, chat in enumerate(_read(data)["chats"]):
        events, numbers = written(chat["said"], chat["people"], _small_talk(at * 53))
        states = [(fact["now"], [numbers[mark] for mark in fact["states"]]) for fact in chat["facts"] if "now" in fact]
        questions = tuple(
            Asked(text=text, gold=frozenset({newest}), wrong=frozenset(older)) for text, (*older, newest) in states
        )
        logs.append(Log(name=chat["name"], events=events, questions=questions))
    return logs


def _small_talk(first: int) -> Iterator[str]:
    """Yield what is said between statements, again and again, from some line on."""
    return islice(cycle(_read("small_talk")["lines"]), first, None)


def own(name: str, folder: Path | None, *, blind: bool) -> list[Log]:
    """Return a set of our own; a log of the blind half may be one of the other half, asked other questions."""
    known = {log["name"]: log for log in read(name, blind=False)["logs"]}
    return [_log(known.get(log["name"], {}) | log) for log in read(name, blind=blind)["logs"]]


def read(name: str, *, blind: bool) -> dict[str, Any]:
    """Return what a file of data/ or its blind half says.

    Raises:
        SetMissing: it is not there.
    """
    return _read(f"{name}{'_blind' if blind else ''}")


def _read(name: str) -> dict[str, Any]:
    path = DATA / f"{name}.toml"
    if not path.is_file():
        raise SetMissing(f"needs {path.name}")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def absent(folder: Path | None, *, blind: bool) -> list[Log]:
    """Return logs of several kinds with questions that they do not answer; the category says of which kind a log is.

    Logs that are not there are left out, and notes, which are not asked in memory.
    """
    logs: list[Log] = []
    for kind, name, questions in _absent(blind=blind):
        try:
            log = _named(kind, name, folder, blind=blind) if kind != NOTES else None
        except SetMissing:
            continue
        if log is not None:
            logs.append(Log(name=name, events=log.events, questions=questions))
    return logs


def notes(kind: str, *, blind: bool) -> list[Log]:
    """Return the logs of `NOTES` or `CLOSE_NOTES`, whose events are to be kept as notes, with all questions about them.

    Questions about what changed have `wrong` notes, those about what no note says no gold.

    Raises:
        SetMissing: there is no blind half.
    """
    untold = {name: questions for of, name, questions in _absent(blind=blind) if of == kind}
    logs: list[Log] = []
    for given in read(kind.replace(" ", "_"), blind=blind)["logs"]:
        log = _log({**given, "questions": [*given["questions"], *given["changed"]], "category": given["name"]})
        questions = (
            *(_by_span(asked, log) if asked.gold else replace(asked, category=kind) for asked in log.questions),
            *untold.get(log.name, ()),
        )
        logs.append(Log(name=log.name, events=log.events, questions=questions))
    return logs


def _by_span(asked: Asked, log: Log) -> Asked:
    """Return a question with its language as its category, or with how far apart the two notes of a change are."""
    if not asked.wrong:
        return asked
    newer, older = (log.events[number]["timestamp"][:10] for number in (*asked.gold, *asked.wrong))
    return replace(asked, category="one day" if newer == older else "months")


def _absent(*, blind: bool) -> Iterator[tuple[str, str, tuple[Asked, ...]]]:
    """Yield a log's kind and name, and the questions that it does not answer."""
    for asked in read("absent", blind=blind)["absent"]:
        kind, _, name = asked["log"].partition("/")
        yield kind, name, tuple(Asked(text=text, gold=frozenset(), category=kind) for text in asked["asked"])


def _named(kind: str, name: str, folder: Path | None, *, blind: bool) -> Log:
    # a blind question may be about a log that everybody may read: it is the question that nobody has seen
    for half in (blind, False):
        try:
            return next(log for log in KINDS[kind](folder, blind=half) if log.name == name)
        except (SetMissing, StopIteration):
            continue
    raise SetMissing(f"no log {kind}/{name}")


Kind = Callable[..., list[Log]]
KINDS: Mapping[str, Kind] = {
    "talk": partial(gold_data, "locomo-dev"),
    "agents": partial(gold_data, "agents-dev"),
    "chats 1": partial(chats, "first"),
    "chats 2": partial(chats, "second"),
    "chats 3": partial(chats, "third"),
    "changed once": changed_once,
    "changed often": partial(changed_often, "changed_states"),
    "changed in talk": partial(changed_often, "changed_in_talk"),
    "code": partial(own, "code_log"),
    "support": partial(own, "support_log"),
    "languages": partial(own, "five_languages"),
    "unchanged": partial(own, "unchanged"),
    "wishes": partial(own, "standing_wishes"),
    "absent": absent,
}
"""Where each kind's logs are read, by the folder of --data and whether the blind half is asked for."""


def written(said: str, people: Sequence[str], talk: Iterator[str] | None = None) -> Told:
    """Return the conversation that some lines tell.

    Args:
        said: the lines.
        people: who speaks; all of them take part in everything.
        talk: where small talk comes from.

    Raises:
        ValueError: a line is none of a conversation of these people, or a mark is given twice.
    """
    events: dict[int, Event] = {}
    numbers: dict[str, int] = {}
    when = _FIRST_LINE
    for line in said.strip().splitlines():
        if line.startswith("@ "):
            when = datetime.fromisoformat(line[2:]).replace(tzinfo=UTC)
            continue
        for speaker, mark, text in _turns(line, people, talk or iter(())):
            number = len(events) + 1
            if mark is not None:
                if mark in numbers:
                    raise ValueError(f"a mark given twice: {mark}")
                numbers[mark] = number
            events[number] = {
                "participants": list(people),
                "timestamp": when.isoformat(),
                "channel": "chat",
                "source_event_key": str(number),
                "type": "message",
                "payload": {"speaker": speaker, "text": text},
            }
            when += _APART
    return events, numbers


def _turns(line: str, people: Sequence[str], talk: Iterator[str]) -> Iterator[tuple[str, str | None, str]]:
    if line.startswith("~ "):
        for at in range(int(line[2:])):
            yield people[at % len(people)], None, next(talk)
        return
    speaker, _, said = line.partition(": ")
    marked = _MARKED.fullmatch(said)
    if marked is None or not said or speaker not in people:
        raise ValueError(f"not a line of a chat: {line}")
    yield speaker, marked["mark"], marked["text"].replace("\\n", "\n")


def _no_blind_half(blind: bool) -> None:
    if blind:
        raise SetMissing("has no blind half")


def _log(log: Mapping[str, Any]) -> Log:
    events, numbers = written(log["said"], log["people"])
    return Log(
        name=log["name"],
        events=events,
        questions=tuple(_questions(log["questions"], numbers, log.get("category", ""))),
    )


def _questions(given: Sequence[Mapping[str, Any]], numbers: Mapping[str, int], category: str) -> Iterator[Asked]:
    for question in given:
        yield Asked(
            text=question["asked"],
            gold=frozenset(numbers[mark] for mark in question["gold"]),
            wrong=frozenset(numbers[mark] for mark in question.get("wrong", ())),
            category=question.get("category", category),
        )
