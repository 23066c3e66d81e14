"""The deterministic planner: a pure function from a scope's events to its topic tree.

Events are cut into units (`stretches`), units into leaves (`leaves`), both are described (`describe`) and given
identities (`identity`), and a content-defined trie of units makes one tree (`trie`). `scope` puts this together for
full and incremental builds; `validation` checks any tree against the rules of a served tree.
"""
