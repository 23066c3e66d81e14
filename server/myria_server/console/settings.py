"""The page of the settings in force: each with its value, where that came from, and what it does."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from myria.settings import Settings
from myria_server.console.desk import Desk, Json
from myria_server.console.forms import Page
from myria_server.console.routes import PageRoute, Routes

_SECRET = ("postgres.dsn",)
"""Settings whose values may hold a password, so that no page shows them."""


async def overview(desk: Desk, request: Request) -> Page:
    """List the settings whose name or description holds a text; with `changed`, those that are not the default."""
    desk.principal.need_api("admin")
    sought = request.query_params.get("q", "").strip()
    is_changed_only = request.query_params.get("changed") == "on"
    everything = _in_force(desk.settings)
    return "settings.html", {
        "settings": [
            setting
            for setting in everything
            if sought.lower() in f"{setting['key']} {setting['doc']}".lower()
            and not (is_changed_only and setting["source"] == "default")
        ],
        "total": len(everything),
        "sought": sought,
        "is_changed_only": is_changed_only,
    }


def _in_force(settings: Settings) -> list[Json]:
    return [
        {
            "key": setting.key,
            "variable": setting.variable,
            "value": _shown(settings, setting.key),
            "default": setting.default,
            "source": settings.source_of(setting.key),
            "doc": setting.doc,
        }
        for setting in Settings.describe()
    ]


def _shown(settings: Settings, key: str) -> Any:
    value = settings.get(key)
    return "(not shown)" if key in _SECRET and value else value


ROUTES: Routes = (PageRoute("/settings", overview, ("admin",)),)
