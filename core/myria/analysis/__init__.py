"""Text analysis: the pinned tokenizer and stemmer; integers and strings only, the same on every machine."""
