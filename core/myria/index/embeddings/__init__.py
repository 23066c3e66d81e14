"""Vectors of what events say, for questions asked in other words: optional, and local unless told otherwise.

`model` is what computes them, `local` and `endpoint` are two of it; `keeping` computes and stores those of events.
Those of questions are `myria.search.vectors`.
"""
