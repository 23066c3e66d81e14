"""The filters of a question: what holds for one event holds for the columns of many."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from myria.index import Corpus, Doc, LooseBlock, ScopeTable
from myria.search.ranking import Filters

FACTS = st.fixed_dictionaries(
    {
        "channel": st.sampled_from(("chat", "mail")),
        "type": st.sampled_from((None, "message", "task")),
        "context_id": st.sampled_from((None, "x", "y")),
        "timestamp": st.integers(1, 9),
    }
)

FILTERS = st.builds(
    Filters,
    channel=st.sampled_from((None, "chat", "fax")),
    types=st.sampled_from(((), ("task",), ("task", "message"), ("note",))),
    context_id=st.sampled_from((None, "x", "z")),
    since=st.none() | st.integers(0, 10),
    until=st.none() | st.integers(0, 10),
)


@given(st.lists(st.tuples(FACTS, st.booleans()), min_size=1, max_size=12), FILTERS, st.booleans())
def test_one_event_and_columns_agree(events: list[tuple[dict[str, Any], bool]], filters: Filters, shared: bool) -> None:
    """A visible event fits by its facts exactly where the columns of its corpus allow it, in shared scopes too."""
    docs = [
        Doc.of_payload({"text": "tea"}, event_seq=seq, scope_id=1 + seq % 2 if shared else 0, **facts)
        for seq, (facts, _) in enumerate(events)
    ]
    tail = LooseBlock().extended(docs)
    corpus = Corpus(
        table=ScopeTable(ids=np.array([1, 2]), participants=(("Anna",), ("Bob",))) if shared else None,
        tail=tail,
        tail_mask=np.array([events[seq][1] for seq in tail.seq.tolist()]),
    )
    timeline = corpus.laid_out
    allowed = filters.allowed(timeline, corpus.parts)
    seqs = timeline.seq if allowed is None else timeline.seq[allowed]
    assert sorted(seqs.tolist()) == [
        seq for seq, (facts, visible) in enumerate(events) if visible and filters.fits(**facts)
    ]
