"""The serving plane: MCP tools over Streamable HTTP and stdio, health and metrics."""
