"""The deterministic planner: a pure function from a scope's events to its topic tree."""
