"""Search blocks: immutable, content-addressed, decoded without copying; and the loose lane beside them."""

from myria.index.block import (
    BLOCK_VERSION,
    MAX_DOCS,
    SEARCH_VERSION,
    BlockNode,
    BlockView,
    Doc,
    Piece,
    build,
    decode,
    encode,
    splice,
)
from myria.index.corpus import Corpus, Timeline
from myria.index.loose import LooseBlock

__all__ = [
    "BLOCK_VERSION",
    "MAX_DOCS",
    "SEARCH_VERSION",
    "BlockNode",
    "BlockView",
    "Corpus",
    "Doc",
    "LooseBlock",
    "Piece",
    "Timeline",
    "build",
    "decode",
    "encode",
    "splice",
]
