"""What each module of pages lists: pages that are looked at, and forms that act. `app.py` serves them all alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from myria.access.principal import Role
from myria_server.console.desk import Desk
from myria_server.console.forms import Form, Page, View

Act = Callable[[Desk, Request, Mapping[str, str]], Awaitable[str | Page | Response]]
"""Carries out what a form asks for; returns the address to go on to, a page that is shown this once, or a file."""


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page, file or stream.

    Args:
        path: below the console's address.
        view: answers it.
        roles: a visitor needs one of these.
        form: shown where one of its fields is refused; None for a page that has no fields but as whom it is read.
        is_as_somebody: a visitor whose key speaks for many is asked first as whom to read it.
    """

    path: str
    view: View
    roles: Sequence[Role] = ("read",)
    form: Form | None = None
    is_as_somebody: bool = False


@dataclass(frozen=True, slots=True)
class FormRoute:
    """A form that does something, once it is proved to come from a page of this visitor.

    Args:
        path: below the console's address.
        act: carries it out; what it needs of roles, it checks.
        form: shown again where one of its fields is refused.
    """

    path: str
    act: Act
    form: Form | None = None


Routes = Sequence[PageRoute | FormRoute]
