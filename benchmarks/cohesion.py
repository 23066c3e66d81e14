"""Whether subjects bring together what a question needs from several conversations: LoCoMo, in memory.

Of the multi-hop questions whose gold turns lie in two units or more, the share that has two gold turns of different
units under one node of subjects with at most 30 leaves. Each conversation is planned by the real planner and filed by
the real rules.

    python -m benchmarks.cohesion --data DIR [--show SUBJECTS]

`--show` prints labels and summaries of the largest subjects of each scope.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.locomo_offline import GoldQuestion, gold_questions, planned_events
from myria.planning.model import LEAF, Node, PlanEvent
from myria.planning.scope import plan_unit, split_units
from myria.planning.settings import PlannerSettings
from myria.planning.subjects.trie import keys_of
from myria.planning.subjects.update import NoSubjects, PlacedLeaf, SubjectUpdate, leaves_of, update_subjects

MOST_LEAVES = 30
CATEGORY = "multi-hop"


def main() -> None:
    """Print the share by scope, and how large the subjects are."""
    parser = argparse.ArgumentParser(description="Cohesion of subjects on LoCoMo, in memory.")
    parser.add_argument("--data", type=Path, required=True, help="folder with events.jsonl and questions.jsonl")
    parser.add_argument("--show", type=int, default=0, help="print the largest subjects of each scope")
    options = parser.parse_args()
    questions = [question for question in gold_questions(options.data) if question.category == CATEGORY]
    asked = together = 0
    for scope, events in sorted(planned_events(options.data).items()):
        leaves = _leaves(scope, events)
        update = asyncio.run(
            update_subjects(None, (), leaves, NoSubjects(), participants=scope, settings=PlannerSettings())
        )
        known = {node.rendering_id: node for node in [*update.nodes, *(placed.leaf for placed in leaves)]}
        unit_by_seq = {ref.event_seq: placed.unit for placed in leaves for ref in placed.leaf.refs}
        mine = [
            question
            for question in questions
            if tuple(sorted(question.participants)) == scope
            and len({unit_by_seq[event_seq] for event_seq in question.gold}) > 1
        ]
        found = sum(_brings_together(question, update, known, unit_by_seq) for question in mine)
        asked, together = asked + len(mine), together + found
        print(f"{' and '.join(scope):24}{len(mine):4} questions  {found / max(1, len(mine)):.3f}  {_sizes(update)}")
        if options.show:
            _show(update, options.show)
    print(f"{'all':24}{asked:4} questions  {together / max(1, asked):.3f}")


def _leaves(scope: tuple[str, ...], events: Sequence[PlanEvent]) -> list[PlacedLeaf]:
    return [
        placed
        for unit in split_units(events, PlannerSettings())
        for placed in leaves_of(plan_unit(scope, unit, PlannerSettings()))
    ]


def _brings_together(
    question: GoldQuestion, update: SubjectUpdate, known: Mapping[bytes, Node], unit_by_seq: Mapping[int, bytes]
) -> bool:
    for node in update.nodes:
        if node.leaves <= MOST_LEAVES and keys_of(node.metadata["prefix"]):
            units = {
                unit_by_seq[ref.event_seq]
                for leaf in _leaves_under(node, known)
                for ref in leaf.refs
                if ref.event_seq in question.gold
            }
            if len(units) > 1:
                return True
    return False


def _leaves_under(node: Node, known: Mapping[bytes, Node]) -> list[Node]:
    if node.node_type == LEAF:
        return [node]
    return [leaf for child in node.children for leaf in _leaves_under(known[child], known)]


def _sizes(update: SubjectUpdate) -> str:
    subjects = [node for node in update.nodes if node.is_unit]
    filed = sum(node.leaves for node in subjects)
    return (
        f"{len(subjects)} subjects of {filed / max(1, len(subjects)):.1f} leaves, the largest of "
        f"{max((node.leaves for node in subjects), default=0)}"
    )


def _show(update: SubjectUpdate, most: int) -> None:
    subjects = sorted((node for node in update.nodes if node.is_unit), key=lambda node: (-node.leaves, node.label))
    for node in subjects[:most]:
        print(f"  {node.label} ({node.leaves} leaves)\n      {node.summary}")


if __name__ == "__main__":
    main()
