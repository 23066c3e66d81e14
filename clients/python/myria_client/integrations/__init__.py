"""Memory for agent frameworks: one module each, which imports its framework. Each names an extra of this package."""
