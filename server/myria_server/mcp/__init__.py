"""MCP over any transport: the toolbox, the SDK's server, stdio, and how bodies and answers are bounded."""
