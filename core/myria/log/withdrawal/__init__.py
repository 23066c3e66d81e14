"""Withdrawals: events that take other events out of every answer, or bring them back.

`model` says what a withdrawal is, `projection` folds it in the append transaction, `commands` makes it.
"""
