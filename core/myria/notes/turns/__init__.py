"""Turns: what a host hands over before and after each one (memory-tools).

`items` says what an item of a turn is, `stating` finds what it says of whoever speaks, `facts` keeps that, `ranking`
chooses from it. `model` makes the events of a turn and folds them in the append transaction, `storing` keeps a turn,
`preparing` gathers what goes before the next, `extracting` lets a model look for facts, and `maintaining` withdraws
those that have expired.
"""
