"""Search blocks: immutable, content-addressed, decoded without copying; and events that stand in no tree."""

from myria.index.block import MAX_DOCS, BlockNode, BlockView, Piece, View, build, decode, splice
from myria.index.corpus import Corpus, ScopeTable, Timeline
from myria.index.documents import Doc
from myria.index.loose import LooseBlock
from myria.index.pack import Pack, pack

__all__ = [
    "MAX_DOCS",
    "BlockNode",
    "BlockView",
    "Corpus",
    "Doc",
    "LooseBlock",
    "Pack",
    "Piece",
    "ScopeTable",
    "Timeline",
    "View",
    "build",
    "decode",
    "pack",
    "splice",
]
