"""Sessions: contexts with a beginning and an end, what is shown at the one, and what is kept at the other.

`model` says what the end of a session is and folds sessions in the append transaction, `opening` gathers what an agent
should know when it begins, `reflecting` keeps what it should know later.
"""
