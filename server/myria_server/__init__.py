"""The serving plane: MCP tools over Streamable HTTP and stdio, health and metrics.

`app.build_app` makes the ASGI application over a memory, `serving.serve_http` runs it, `mcp.stdio.serve_stdio` serves
one client. Nothing is imported here: `http.listening` must not cost a second of the MCP library.
"""
