"""Search blocks: immutable, content-addressed postings over the events of one part of a scope's tree."""
