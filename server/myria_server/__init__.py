"""The serving plane: MCP tools over Streamable HTTP and stdio, health and metrics.

`build_app` makes the ASGI application over a memory, `serve_http` runs it, `serve_stdio` serves one client.
"""

from myria_server.app import ServerApp, build_app
from myria_server.http import Departure, HttpServer, reserve_port, serve_http
from myria_server.metrics import ServerMetrics
from myria_server.stdio import serve_stdio

__all__ = [
    "Departure",
    "HttpServer",
    "ServerApp",
    "ServerMetrics",
    "build_app",
    "reserve_port",
    "serve_http",
    "serve_stdio",
]
