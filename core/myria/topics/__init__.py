"""Topic trees as a pure function of events: segments, leaves, the calendar trie, subjects, labels and their identity.

No database and no network.
"""
