"""A second look at the best hits of a question by a model that reads both: optional, off unless set.

`endpoint` asks the model, `looking` bounds and keeps its answers, `fusing` moves hits by them.
"""
