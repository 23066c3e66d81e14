"""Turns: what a host hands over before and after each one (memory-tools).

`items` says what an item of a turn is, `facts` finds and ranks what it says of whoever speaks, `model` makes the
events, `projection` folds them in the append transaction, `storing` keeps a turn, `preparing` gathers what goes before
the next, `maintaining` withdraws facts that have expired.
"""
