"""Forms that are shown again where a field is refused: with what was typed, and why beside the field, in plain words.

A refusal names an argument of a tool; a form says which of its fields holds that, and what the page calls it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from myria.errors import MyriaError
from myria_server.console.desk import Desk, ToolRefused

Values = Mapping[str, Any]

Page = tuple[str, Values]
"""The name of a page's template, and the values in it."""

View = Callable[[Desk, Request], Awaitable[Page | Response]]
"""Answers a request that changes nothing: with a page, or with a file or a stream."""

Fields = Mapping[str, tuple[str, str]]
"""By the argument of a refusal, or its code where it names none: a field of a form, and what its page calls that."""

_BELOW = re.compile(r"[.\[].*")
"""What follows the name of an argument in the path of a part of it: `participants[0]`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldRefusal:
    """A field of a form that was refused: why, for a person, and the code of the error."""

    field: str
    message: str
    code: str


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a page.

    Args:
        view: shows it, and carries nothing out.
        fields: those that may be refused.
    """

    view: View
    fields: Fields

    def refusal(self, error: ToolRefused | MyriaError) -> FieldRefusal | None:
        """Return what a refusal says of a field of this form, None where it names none."""
        path = str(error.details.get("field") or "")
        by_name = {named[0]: named for named in self.fields.values()}
        field, label = self.fields.get(_BELOW.sub("", path) or error.code) or by_name.get(path) or ("", "")
        if not field:
            return None
        # Most messages begin with the argument: "max_tokens: must be a whole number", "channel is longer than ...".
        words = error.message.removeprefix(path).removeprefix(":") if path else error.message
        named = label if words != error.message else f"{label}:"
        return FieldRefusal(field=field, message=f"{named} {words.strip()}", code=error.code)


@pass_context
def marked_field(context: Context, field: str, described_by: str = "") -> Markup:
    """Return the attributes of a field: what describes it, and whether it was refused, for then it has the focus."""
    refusal: FieldRefusal | None = context.get("refusal")
    is_refused = refusal is not None and refusal.field == field
    describing = " ".join(name for name in (f"{field}-refused" if is_refused else "", described_by) if name)
    attributes = Markup(' aria-describedby="{}"').format(describing) if describing else Markup("")
    return attributes + (Markup(' aria-invalid="true" autofocus') if is_refused else Markup(""))


@pass_context
def refusal_of(context: Context, field: str) -> Markup:
    """Return why a field was refused, to stand below it; nothing where it was not."""
    refusal: FieldRefusal | None = context.get("refusal")
    if refusal is None or refusal.field != field:
        return Markup("")
    return Markup(
        '<p class="bad" role="alert" id="{}-refused">{} <span class="meta">Code: <code>{}</code></span></p>'
    ).format(field, refusal.message, refusal.code)


@pass_context
def typed(context: Context, field: str, default: str = "") -> str:
    """Return what was typed into a field of a form that is shown again; else its default."""
    return str((context.get("sent") or {}).get(field, default))


@pass_context
def ticked(context: Context, field: str, default: bool = False) -> Markup:
    """Return the attribute of a box that was ticked in a form that is shown again; else as by default."""
    sent = context.get("sent") or {}
    return Markup(" checked") if (field in sent if sent else default) else Markup("")
