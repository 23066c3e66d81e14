"""Search blocks: immutable, content-addressed, decoded without copying; and the loose lane beside them."""

from myria.index.block import (
    BLOCK_VERSION,
    MAX_DOCS,
    SEARCH_VERSION,
    BlockNode,
    BlockView,
    Doc,
    Piece,
    View,
    build,
    decode,
    encode,
    splice,
)
from myria.index.corpus import Corpus, ScopeTable, Timeline
from myria.index.loose import LooseBlock
from myria.index.pack import Pack, pack, repack

__all__ = [
    "BLOCK_VERSION",
    "MAX_DOCS",
    "SEARCH_VERSION",
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
    "encode",
    "pack",
    "repack",
    "splice",
]
