"""Programs that host agents: where each keeps its MCP servers and hooks, and how they are changed there."""
