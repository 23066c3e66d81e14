"""HTTP before MCP: credentials, limits, checks, OAuth and old transports."""
