"""A second look at the best hits of a question by a model that reads both: optional, off unless set.

`endpoint` asks a model that re-ranks and `chat` a chat model (both are a `source`), `looking` bounds and keeps their
answers, `fusing` moves hits by them.
"""
