"""One class for each way to remember, set up as somebody would who knows it: `SYSTEMS` names them.

Each keeps texts of conversations and finds those of one conversation for a question. What a class needs beyond the
standard library is imported when it is made: the others' packages are in an environment of their own, Myria's in
Myria's. A system that has stemming, a list of stop words or a filter uses its own; the others get those of this module.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

FOUND = 20
"""Texts that a question may find: R@10 and the reciprocal rank within 20 need no more."""

Vector = Sequence[float]
Uses = Literal["words", "vectors", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A message: `text` as this system gets it, `arguments` those of append_event."""

    number: int
    conversation: str
    text: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a system may keep things: a folder, PostgreSQL by role (empty where it has none), and known vectors."""

    folder: Path
    dsns: Mapping[str, str]
    vectors: Mapping[str, Vector]

    def vector(self, text: str) -> Vector:
        """Return the vector of a text or a question."""
        return self.vectors[text]


class System(ABC):
    """A way to remember.

    `title` names it in tables, `uses` says what it ranks by, `package` which distribution brings it (empty: none).
    """

    title: ClassVar[str]
    uses: ClassVar[Uses]
    package: ClassVar[str] = ""

    @abstractmethod
    def __init__(self, place: Place) -> None: ...

    @abstractmethod
    def add(self, events: Sequence[Event]) -> None:
        """Keep all events, and be ready for questions."""

    @abstractmethod
    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        """Return the numbers of at most `FOUND` events of a conversation, best first."""

    def close(self) -> None:  # noqa: B027 - most start nothing
        """End what was started."""


class Substrings(System):
    """The search of the reference MCP memory server: a text matches where it holds the words as they are written.

    That server takes one string. An agent that looks for each word of the question gets this: most words first, then
    the newest.
    """

    title = "substrings, as in the MCP memory server"
    uses = "words"

    def __init__(self, place: Place) -> None:
        self._texts: dict[str, list[tuple[int, str]]] = defaultdict(list)

    def add(self, events: Sequence[Event]) -> None:
        for event in events:
            self._texts[event.conversation].append((event.number, event.text.lower()))

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        words = content_words(question)
        counted = [(sum(word in text for word in words), number) for number, text in self._texts[conversation]]
        return [number for count, number in sorted(counted, reverse=True)[:FOUND] if count]


class SqliteFts5(System):
    """SQLite's FTS5: Porter's stems, any of the words, its BM25."""

    title = "SQLite FTS5"
    uses = "words"

    def __init__(self, place: Place) -> None:
        self._database = sqlite3.connect(place.folder / "memory.db")
        self._database.execute(
            "CREATE VIRTUAL TABLE memory USING fts5(text, conversation UNINDEXED, tokenize = 'porter unicode61')"
        )

    def add(self, events: Sequence[Event]) -> None:
        with self._database:
            self._database.executemany(
                "INSERT INTO memory (rowid, text, conversation) VALUES (?, ?, ?)",
                [(event.number, event.text, event.conversation) for event in events],
            )

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        asked = " OR ".join(f'"{word}"' for word in content_words(question))
        if not asked:
            return []
        rows = self._database.execute(
            "SELECT rowid FROM memory WHERE memory MATCH ? AND conversation = ? ORDER BY rank LIMIT ?",
            (asked, conversation, FOUND),
        )
        return [number for (number,) in rows]

    def close(self) -> None:
        self._database.close()


class _Postgres(System):
    """A table in PostgreSQL, by statements of benchmarks/statements.sql."""

    _name: ClassVar[str]
    _embedded: ClassVar[bool] = False

    def __init__(self, place: Place) -> None:
        import asyncpg  # noqa: PLC0415 - not in the environment of the other systems

        from benchmarks.statements import statement  # noqa: PLC0415

        self._place = place
        self._statement: Callable[[str], str] = lambda what: statement(f"peer_{self._name}_{what}")
        self._runner = asyncio.Runner()
        self._connection = self._runner.run(asyncpg.connect(place.dsns["superuser"]))

    def add(self, events: Sequence[Event]) -> None:
        self._runner.run(self._add(events))

    async def _add(self, events: Sequence[Event]) -> None:
        await self._connection.execute(self._statement("table"))
        rows = [(event.number, event.conversation, event.text, *self._vector(event.text)) for event in events]
        await self._connection.executemany(self._statement("insert"), rows)

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        arguments = (self._asked(question), conversation, FOUND, *self._vector(question))
        rows = self._runner.run(self._connection.fetch(self._statement("search"), *arguments))
        return [row["number"] for row in rows]

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()

    def _asked(self, question: str) -> Any:
        return question

    def _vector(self, text: str) -> tuple[str, ...]:
        return (str([float(value) for value in self._place.vector(text)]),) if self._embedded else ()


class PostgresWords(_Postgres):
    """PostgreSQL's full text: English stems, any of the words, a GIN index; `ts_rank`, as it finds more than `_cd`."""

    title = "PostgreSQL full text"
    uses = "words"
    _name = "words"


class PostgresTrigrams(_Postgres):
    """pg_trgm: the sum of `word_similarity` over the question's words."""

    title = "PostgreSQL pg_trgm"
    uses = "words"
    _name = "trigrams"

    def _asked(self, question: str) -> Any:
        return content_words(question)


class PostgresFused(_Postgres):
    """pgvector and full-text search in one statement, the 60 best of each fused by reciprocal ranks."""

    title = "PostgreSQL full text + pgvector"
    uses = "both"
    _name = "fused"
    _embedded = True


class RankBm25(System):
    """rank_bm25's BM25Okapi over English stems without stop words; an index for each conversation."""

    title = "rank_bm25"
    uses = "words"
    package = "rank-bm25"

    def __init__(self, place: Place) -> None:
        from rank_bm25 import BM25Okapi  # noqa: PLC0415
        from Stemmer import Stemmer  # noqa: PLC0415

        self._make, self._stem = BM25Okapi, Stemmer("english").stemWords
        self._indexes: dict[str, tuple[Any, list[int]]] = {}

    def add(self, events: Sequence[Event]) -> None:
        for conversation, members in by_conversation(events).items():
            words = [self._stem(content_words(event.text)) for event in members]
            self._indexes[conversation] = self._make(words), [event.number for event in members]

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        index, numbers = self._indexes[conversation]
        scores = index.get_scores(self._stem(content_words(question)))
        best = sorted(range(len(numbers)), key=lambda at: -scores[at])[:FOUND]
        return [numbers[at] for at in best if scores[at]]


class Bm25s(System):
    """bm25s with its longer list of English stop words and Snowball's stems; an index for each conversation."""

    title = "bm25s"
    uses = "words"
    package = "bm25s"

    def __init__(self, place: Place) -> None:
        import bm25s  # noqa: PLC0415
        from Stemmer import Stemmer  # noqa: PLC0415

        self._bm25s, self._stemmer = bm25s, Stemmer("english")
        self._indexes: dict[str, tuple[Any, list[int]]] = {}

    def add(self, events: Sequence[Event]) -> None:
        for conversation, members in by_conversation(events).items():
            index = self._bm25s.BM25()
            index.index(self._words([event.text for event in members]), show_progress=False)
            self._indexes[conversation] = index, [event.number for event in members]

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        index, numbers = self._indexes[conversation]
        most = min(FOUND, len(numbers))
        places, scores = index.retrieve(self._words([question]), k=most, show_progress=False)
        return [numbers[at] for at, score in zip(places[0], scores[0], strict=True) if score > 0]

    def _words(self, texts: list[str]) -> Any:
        return self._bm25s.tokenize(texts, stopwords="en_plus", stemmer=self._stemmer, show_progress=False)


class Tantivy(System):
    """tantivy in memory: its English stems, any of the words, its BM25."""

    title = "tantivy"
    uses = "words"
    package = "tantivy"

    def __init__(self, place: Place) -> None:
        import tantivy  # noqa: PLC0415

        self._tantivy = tantivy
        fields = tantivy.SchemaBuilder()
        fields.add_integer_field("number", stored=True)
        fields.add_text_field("conversation", tokenizer_name="raw", index_option="basic")
        fields.add_text_field("text", tokenizer_name="en_stem")
        self._schema = fields.build()
        self._index = tantivy.Index(self._schema)

    def add(self, events: Sequence[Event]) -> None:
        writer = self._index.writer()
        for event in events:
            writer.add_document(
                self._tantivy.Document(number=event.number, conversation=event.conversation, text=event.text)
            )
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        words = content_words(question)
        if not words:
            return []
        query, must = self._tantivy.Query, self._tantivy.Occur.Must
        within = query.const_score_query(query.term_query(self._schema, "conversation", conversation), 0.0)
        asked = self._index.parse_query(" ".join(words), ["text"])
        hits = self._searcher.search(query.boolean_query([(must, within), (must, asked)]), FOUND).hits
        return [self._searcher.doc(address)["number"][0] for _, address in hits]


class LlamaIndexBm25(System):
    """LlamaIndex's BM25Retriever with English stems and its longer list of stop words; one for each conversation."""

    title = "LlamaIndex BM25Retriever"
    uses: ClassVar[Uses] = "words"
    package = "llama-index-retrievers-bm25"

    def __init__(self, place: Place) -> None:
        from llama_index.core.schema import TextNode  # noqa: PLC0415
        from llama_index.retrievers.bm25 import BM25Retriever  # noqa: PLC0415
        from Stemmer import Stemmer  # noqa: PLC0415

        self._node, self._retriever, self._stemmer = TextNode, BM25Retriever, Stemmer("english")
        self._retrievers: dict[str, Any] = {}

    def add(self, events: Sequence[Event]) -> None:
        for conversation, members in by_conversation(events).items():
            self._retrievers[conversation] = self._made([self._as_node(event) for event in members])

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        return [int(hit.node.node_id) for hit in self._retrievers[conversation].retrieve(question)]

    def _as_node(self, event: Event) -> Any:
        return self._node(id_=str(event.number), text=event.text)

    def _made(self, nodes: list[Any]) -> Any:
        most = min(FOUND, len(nodes))
        return self._retriever.from_defaults(
            nodes=nodes, stemmer=self._stemmer, language="en_plus", similarity_top_k=most
        )


class LlamaIndexFused(LlamaIndexBm25):
    """LlamaIndex's QueryFusionRetriever over BM25Retriever and a VectorStoreIndex, by reciprocal ranks."""

    title = "LlamaIndex QueryFusionRetriever"
    uses = "both"
    package = "llama-index-core"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        from llama_index.core import MockEmbedding, VectorStoreIndex  # noqa: PLC0415
        from llama_index.core.llms import MockLLM  # noqa: PLC0415
        from llama_index.core.retrievers import QueryFusionRetriever  # noqa: PLC0415
        from llama_index.core.schema import QueryBundle  # noqa: PLC0415

        self._place, self._index, self._fusion, self._bundle = (
            place,
            VectorStoreIndex,
            QueryFusionRetriever,
            QueryBundle,
        )
        self._unused = MockEmbedding(embed_dim=1), MockLLM()

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        asked = self._bundle(query_str=question, embedding=list(self._place.vector(question)))
        return [int(hit.node.node_id) for hit in self._retrievers[conversation].retrieve(asked)]

    def _as_node(self, event: Event) -> Any:
        return self._node(id_=str(event.number), text=event.text, embedding=list(self._place.vector(event.text)))

    def _made(self, nodes: list[Any]) -> Any:
        embedding, model = self._unused
        vectors = self._index(nodes, embed_model=embedding).as_retriever(similarity_top_k=FOUND)
        return self._fusion(
            [super()._made(nodes), vectors],
            llm=model,
            mode="reciprocal_rerank",
            num_queries=1,
            similarity_top_k=FOUND,
            use_async=False,
        )


class Chroma(System):
    """Chroma in memory: a collection with cosine distance, filtered by conversation."""

    title = "Chroma"
    uses = "vectors"
    package = "chromadb"

    def __init__(self, place: Place) -> None:
        import chromadb  # noqa: PLC0415

        self._place = place
        client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
        self._memory = client.create_collection(
            "memory", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )

    def add(self, events: Sequence[Event]) -> None:
        for start in range(0, len(events), 1000):
            some = events[start : start + 1000]
            self._memory.add(
                ids=[str(event.number) for event in some],
                documents=[event.text for event in some],
                embeddings=[self._place.vector(event.text) for event in some],
                metadatas=[{"conversation": event.conversation} for event in some],
            )

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        found = self._memory.query(
            query_embeddings=[self._place.vector(question)],
            n_results=FOUND,
            where={"conversation": conversation},
            include=[],
        )
        return [int(number) for number in found["ids"][0]]


class LanceDb(System):
    """LanceDB: vectors and its full-text index (English stems, no stop words), fused by its RRFReranker."""

    title = "LanceDB hybrid"
    uses = "both"
    package = "lancedb"

    def __init__(self, place: Place) -> None:
        import lancedb  # noqa: PLC0415
        from lancedb.index import FTS  # noqa: PLC0415
        from lancedb.rerankers import RRFReranker  # noqa: PLC0415

        self._place, self._words, self._fused = place, FTS, RRFReranker()
        self._database = lancedb.connect(place.folder / "lance")

    def add(self, events: Sequence[Event]) -> None:
        self._memory = self._database.create_table(
            "memory",
            [
                {
                    "number": event.number,
                    "conversation": event.conversation,
                    "text": event.text,
                    "vector": list(self._place.vector(event.text)),
                }
                for event in events
            ],
        )
        self._memory.create_index("text", config=self._words(stem=True, remove_stop_words=True, language="English"))

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        hits = (
            self._memory.search(query_type="hybrid")
            .vector(list(self._place.vector(question)))
            .text(question)
            .distance_type("cosine")
            .where(f"conversation = '{conversation}'", prefilter=True)
            .rerank(self._fused)
            .limit(FOUND)
            .to_list()
        )
        return [hit["number"] for hit in hits]


class LangGraphStore(System):
    """LangGraph's InMemoryStore with an embedding function; a namespace for each conversation."""

    title = "LangGraph InMemoryStore"
    uses = "vectors"
    package = "langgraph"

    def __init__(self, place: Place) -> None:
        from langgraph.store.memory import InMemoryStore  # noqa: PLC0415

        def embed(texts: Sequence[str]) -> list[list[float]]:
            return [list(place.vector(text)) for text in texts]

        dimensions = len(next(iter(place.vectors.values())))
        self._store = InMemoryStore(index={"dims": dimensions, "embed": embed, "fields": ["text"]})

    def add(self, events: Sequence[Event]) -> None:
        for event in events:
            self._store.put((event.conversation,), str(event.number), {"text": event.text})

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        return [int(item.key) for item in self._store.search((conversation,), query=question, limit=FOUND)]


class Mem0(System):
    """mem0 with `add(infer=False)`, which keeps a text as it is, and its own local Qdrant.

    Its facts are made by a language model, and its words are matched by files from a hub: neither is there offline.
    """

    title = "mem0, infer=False"
    uses = "vectors"
    package = "mem0ai"

    def __init__(self, place: Place) -> None:
        os.environ |= {
            "MEM0_TELEMETRY": "False",
            "MEM0_DIR": str(place.folder),
            "OPENAI_API_KEY": "none, nothing is asked",
        }
        from mem0 import Memory  # noqa: PLC0415

        store = {
            "collection_name": "memory",
            "path": str(place.folder / "qdrant"),
            "embedding_model_dims": len(next(iter(place.vectors.values()))),
        }
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": str(place.folder / "history.db"),
            }
        )
        self._memory.embedding_model = _Known(place)

    def add(self, events: Sequence[Event]) -> None:
        for event in events:
            self._memory.add(event.text, user_id=event.conversation, metadata={"number": event.number}, infer=False)

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        found = self._memory.search(question, filters={"user_id": conversation}, top_k=FOUND, threshold=0.0)
        return [hit["metadata"]["number"] for hit in found["results"]]


class _Known:
    """The embedder of mem0: vectors that are known."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """Return a text's vector."""
        return list(self._place.vector(text))


class Myria(System):
    """Myria: events appended durably in batches of 500, one build, then query_event_nodes; without MCP."""

    title = "Myria"
    uses: ClassVar[Uses] = "words"
    _model: ClassVar[Literal["off", "local"]] = "off"
    _batch: ClassVar[int] = 500

    def __init__(self, place: Place) -> None:
        from myria.memory import Memory  # noqa: PLC0415 - not in the environment of the other systems
        from myria.settings import EmbeddingSettings, Settings  # noqa: PLC0415

        # for the builder, a process of its own; no control plane runs that would give the rest their vectors
        os.environ |= {"MYRIA_EMBEDDINGS_MODEL": self._model, "MYRIA_EMBEDDINGS_BUILD_EVENTS": "1000000"}
        self._place = place
        self._runner = asyncio.Runner()
        # a slow moment of the machine shall not take a question's vector away
        settings = Settings(embeddings=EmbeddingSettings(model=self._model, question_deadline_s=30.0))
        self._memory = self._runner.run(Memory(place.dsns["server"], settings).__aenter__())

    def add(self, events: Sequence[Event]) -> None:
        self._runner.run(self._add(events))

    async def _add(self, events: Sequence[Event]) -> None:
        from benchmarks.building import TENANT, build  # noqa: PLC0415
        from myria.contract.event import parse_event  # noqa: PLC0415
        from myria.contract.limits import Limits  # noqa: PLC0415
        from myria_embedded import RoleDsns  # noqa: PLC0415

        limits = Limits()
        for start in range(0, len(events), self._batch):
            some = [parse_event(event.arguments, limits) for event in events[start : start + self._batch]]
            await self._memory.append_events(TENANT, some)
        await build(RoleDsns(**self._place.dsns), self._place.folder / "build.log", full=True)

    def search(self, question: str, conversation: str, participants: Sequence[str]) -> list[int]:
        return self._runner.run(self._search(question, participants))

    async def _search(self, question: str, participants: Sequence[str]) -> list[int]:
        from benchmarks.building import TENANT  # noqa: PLC0415
        from myria.contract.queries import EventNodesQuery  # noqa: PLC0415

        query = EventNodesQuery(participants=tuple(sorted(participants)), query=question, limit=FOUND)
        answer = await self._memory.query_event_nodes(TENANT, query)
        return [int(key) for key in _source_keys(answer["root"])]

    def close(self) -> None:
        self._runner.run(self._memory.__aexit__(None, None, None))
        self._runner.close()


class MyriaEmbeddings(Myria):
    """Myria with `embeddings.model: local`."""

    title = "Myria with embeddings"
    uses = "both"
    _model = "local"


SYSTEMS: Mapping[str, type[System]] = {
    "substrings": Substrings,
    "postgres-trigrams": PostgresTrigrams,
    "postgres-words": PostgresWords,
    "sqlite-fts5": SqliteFts5,
    "rank-bm25": RankBm25,
    "bm25s": Bm25s,
    "tantivy": Tantivy,
    "llama-index-bm25": LlamaIndexBm25,
    "mem0": Mem0,
    "langgraph-store": LangGraphStore,
    "chroma": Chroma,
    "postgres-fused": PostgresFused,
    "llama-index-fused": LlamaIndexFused,
    "lancedb-fused": LanceDb,
    "myria": Myria,
    "myria-embeddings": MyriaEmbeddings,
}


def content_words(text: str) -> list[str]:
    """Return the words of a text in lower case without stop words, in order."""
    return [word for word in re.findall(r"\w+", text.lower()) if word not in _STOP_WORDS]


def by_conversation(events: Sequence[Event]) -> dict[str, list[Event]]:
    """Return the events of each conversation, in order."""
    found: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        found[event.conversation].append(event)
    return found


def _source_keys(node: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for child in node["children"]:
        found += [child["source_event_key"]] if child["kind"] == "event" else _source_keys(child)
    return found


_STOP_WORDS = frozenset(
    """
    a about after all also am an and any are as at be because been before being but by can could did do does doing
    for from had has have having he her hers him his how i if in into is it its just me more most my no not of on or
    our out over own s she should so some such t than that the their them then there these they this those through to
    too until up very was we were what when where which while who whom why will with would you your
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
