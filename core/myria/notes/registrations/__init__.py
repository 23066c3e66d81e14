"""Registrations: an organisation's agents and the sessions they work in (Memtrace's contract), folded from the log."""
