"""Notes: statements that are kept on purpose. `kinds` are policies, `drafting` fills in what a caller leaves out,
`projection` folds notes in the append transaction, `commands` makes and changes them.
"""
