"""The console as an application: what every page goes through. A visitor, their limits, and errors as pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from myria.access.limits import CredentialLimits
from myria.access.principal import ApiName
from myria.db.fairness import caller
from myria.errors import (
    CredentialInvalid,
    CredentialMissing,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    MethodNotAllowed,
    MyriaError,
    PathNotFound,
    RoleRequired,
)
from myria.memory import Memory
from myria.settings import Settings
from myria_server.console import (
    ask,
    audit,
    builds,
    changes,
    correcting,
    differences,
    events,
    keys,
    live,
    notes,
    operations,
    people,
    remembered,
    review,
    topics,
)
from myria_server.console import settings as settings_page
from myria_server.console.desk import Desk, ToolRefused
from myria_server.console.done import led_to, said
from myria_server.console.fields import form_of, id_of
from myria_server.console.forms import Form, Page, Values, View
from myria_server.console.names import AS_WHOM, PICKERS, as_whom, names_offered
from myria_server.console.navigation import open_to, section_of
from myria_server.console.places import local_page, page_of
from myria_server.console.problems import FORM_REFUSED, Problem, problem_of
from myria_server.console.rendering import PROTECTION, STATIC, page, static_file
from myria_server.console.routes import FormRoute, PageRoute, Routes
from myria_server.console.sign_in_pages import SignInPages
from myria_server.console.signing_in import IssuerSignIn
from myria_server.console.visitors import Visitors, asked_as, is_same_origin
from myria_server.http.failure_limiter import FailureLimiter
from myria_server.mcp.toolbox import Toolbox
from myria_server.paths import CONSOLE_PREFIX as PREFIX

MAX_QUERY_BYTES = 8_000
"""Bytes of what an address asks for: the links of a page repeat it."""

MAX_NAMES_CHARACTERS = 600
"""Characters of all names as whom an address asks: every link of a page repeats them."""

_NOTHING = (
    "This key opens no page. Pages need the role read at the API core or agent, or the role admin or erase at the API "
    "admin"
)

_SEE_OTHER = 303

logger = logging.getLogger(__name__)

T = TypeVar("T")

Endpoint = Callable[[Request], Awaitable[Response]]


class Console:
    """The console as an ASGI application.

    Args:
        toolboxes: by API, with the tools of every profile.
        limits: what credentials may use; pages count as requests to an API do.
        issuer_sign_in: signs visitors in through issuers.
        is_leaving: tells whether this process shuts down, so that no stream holds it up.
    """

    def __init__(
        self,
        memory: Memory,
        settings: Settings,
        *,
        toolboxes: Mapping[ApiName, Toolbox],
        visitors: Visitors,
        issuer_sign_in: IssuerSignIn | None,
        limits: CredentialLimits,
        limiter: FailureLimiter,
        is_leaving: Callable[[], bool],
    ) -> None:
        self._memory = memory
        self._settings = settings
        self._toolboxes = toolboxes
        self._visitors = visitors
        self._limits = limits
        self._limiter = limiter
        live_parts = live.LiveParts(visitors, is_leaving=is_leaving)
        sign_in = SignInPages(visitors, issuer_sign_in, limiter)
        pages: Routes = (
            FormRoute("/sign-out", sign_in.sign_out),
            *ask.ROUTES,
            *events.ROUTES,
            *topics.ROUTES,
            *correcting.ROUTES,
            *notes.ROUTES,
            *people.ROUTES,
            *remembered.ROUTES,
            *review.ROUTES,
            *operations.ROUTES,
            *settings_page.ROUTES,
            *audit.ROUTES,
            *keys.ROUTES,
            *builds.routes(live_parts),
            *differences.ROUTES,
            *changes.routes(live_parts),
        )
        self._app = Starlette(
            routes=[
                Route(PREFIX, self._with_desk(self._start)),
                Route(PREFIX + "/", self._with_desk(self._start)),
                Route(PREFIX + "/static/{name}", _static),
                *sign_in.routes(),
                *map(self._protected, pages),
            ],
            exception_handlers={HTTPException: self._not_served},
        )
        # Such a redirect names the scheme and host of this server, which a proxy in front of it need not share.
        self._app.router.redirect_slashes = False

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes of every page, form, file and stream, in the order in which they are tried."""
        return self._app.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(PROTECTION)
            await send(message)

        await self._app(scope, receive, protected)

    def _protected(self, route: PageRoute | FormRoute) -> Route:
        """Return the route of a page or a form, behind the checks that are the same for all."""
        if isinstance(route, PageRoute):
            return Route(PREFIX + route.path, self._with_desk(partial(self._view, route)))
        return Route(PREFIX + route.path, self._with_desk(partial(self._act, route)), methods=["POST"])

    def _with_desk(self, answer: Callable[[Desk, Request], Awaitable[Response]]) -> Endpoint:
        """Return an endpoint for visitors; it sends a browser without a valid session to sign in."""

        async def endpoint(request: Request) -> Response:
            try:
                visitor = await self._visitors.visitor(request)
            except MyriaError as error:
                return self._refused(request, error)
            desk = Desk(
                visitor=visitor,
                names=asked_as(request.query_params.getlist("as")),
                memory=self._memory,
                settings=self._settings,
                toolboxes=self._toolboxes,
                limits=self._limits,
                address_of=lambda: self._limiter.address(request.scope),
                check_session=partial(self._visitors.visitor, request),
            )
            try:
                return await answer(desk, request)
            except HTTPException:
                raise
            except Exception:
                logger.exception("a page failed", extra={"action": "page_failed", "path": request.url.path})
                return self._problem(InternalError("An error of this service."), desk, request)

        return endpoint

    async def _view(self, route: PageRoute, desk: Desk, request: Request) -> Response:
        """Answer a page, to visitors with one of its roles."""
        usage = self._limits.of(desk.principal)
        try:
            if usage is not None:
                usage.begin()
        except MyriaError as error:
            return await self._refusal(error, None, {}, desk, request)
        try:
            _need_address(desk, request)
            desk.principal.need(route.roles, what="this page")
            view = as_whom if route.is_as_somebody and _must_say_as_whom(desk, request) else route.view
            answered = await self._within_deadline(_viewed(view, desk, request), desk)
            if isinstance(answered, Response):
                return answered
            template, values = answered
            waiting = await self._waiting(desk, request)
            response = page(template, {**self._frame(desk, request), "waiting": waiting, **values})
        except (ToolRefused, MyriaError) as error:
            response = await self._refusal(error, route.form or AS_WHOM, request.query_params, desk, request)
        finally:
            if usage is not None:
                usage.end()
        self._visitors.keep(response, desk.visitor, request)
        said(response, request)
        return response

    async def _act(self, route: FormRoute, desk: Desk, request: Request) -> Response:
        """Carry out a form, once it is proved to come from a page of this visitor."""
        sent = await form_of(request)
        if (
            sent is None
            or not is_same_origin(request)
            # Of a form that is refused anyway, the token may be lost.
            or (sent.refusal is None and not desk.visitor.sent(sent.fields.get("form_token", "")))
        ):
            message = "This form was not sent by a page of this session. Open the page again and repeat it."
            return self._problem(ToolRefused({"code": FORM_REFUSED, "message": message}, 403), desk, request)
        try:
            usage = self._limits.of(desk.principal)
            if usage is not None:
                usage.begin()
                usage.end()
            _need_address(desk, request)
            if sent.refusal is not None:
                raise sent.refusal
            done = await self._within_deadline(route.act(desk, request, sent.fields), desk)
        except (ToolRefused, MyriaError) as error:
            return await self._refusal(error, route.form, sent.fields, desk, request)
        if isinstance(done, Response):
            return done
        if isinstance(done, str):
            return led_to(done)
        template, values = done
        return page(template, {**self._frame(desk, request), **values})

    async def _within_deadline(self, work: Awaitable[T], desk: Desk) -> T:
        """Return what a page's work returns, which shares the database fairly with other callers.

        Raises:
            DeadlineExceeded: it takes longer than a request may.
        """
        deadline_s = self._settings.mcp.request_deadline_s
        token = caller.set(desk.principal.caller)
        try:
            async with asyncio.timeout(deadline_s):
                return await work
        except TimeoutError as error:
            message = f"The page was not ready within {deadline_s:g} s. Ask for less, or try again."
            raise DeadlineExceeded(message, deadline_s=deadline_s) from error
        finally:
            caller.reset(token)

    def _frame(self, desk: Desk, request: Request) -> Values:
        """Return the values that the frame of every page needs."""
        sections = open_to(desk.principal)
        return {
            "desk": desk,
            "sections": sections,
            "opens": [section.place for section in sections],
            "section": section_of(request.url.path.removeprefix(PREFIX), sections),
            # Every link repeats them, so a page that refuses too many holds none.
            "names": desk.names if _are_short(desk.names) else (),
            "path": request.url.path,
            "origin": self._settings.auth.public_url or str(request.base_url).rstrip("/"),
            "form_token": desk.visitor.form_token(),
            "is_part": request.headers.get("hx-request") == "true",
            "waiting": 0,
            "refusal": None,
            "sent": {},
        }

    async def _waiting(self, desk: Desk, request: Request) -> int:
        """Return how many notes wait for a review; 0 for who may not know, and while the database is away."""
        if not desk.is_admin or request.headers.get("hx-request") == "true":
            return 0
        try:
            return await self._memory.review.waiting(desk.tenant)
        except MyriaError:
            return 0

    async def _refusal(
        self, error: ToolRefused | MyriaError, form: Form | None, sent: Values, desk: Desk, request: Request
    ) -> Response:
        """Return the form in which a field is refused, else a page that says what was refused.

        Access that a page itself denies is noted, as tools note theirs.

        Args:
            sent: what the form was sent with.
        """
        if isinstance(error, MyriaError):
            section = request.url.path.removeprefix(PREFIX).split("/")[1]
            self._limiter.note(request.scope, {}, "core", desk.principal, error, action=f"{PREFIX}/{section}")
        refusal = None if form is None else form.refusal(error)
        if form is not None and refusal is not None:
            try:
                answered = await self._within_deadline(_viewed(form.view, desk, request), desk)
            except (ToolRefused, MyriaError):
                answered = None  # the form cannot be shown now either
            if isinstance(answered, tuple):
                template, values = answered
                values = {**self._frame(desk, request), **values, "refusal": refusal, "sent": sent}
                return page(template, values, status=error.http_status)
        return self._problem(error, desk, request)

    def _problem(self, refusal: MyriaError | ToolRefused, desk: Desk, request: Request) -> Response:
        """Return the page that says what was refused, what to do, and where to go on."""
        came_from = request.headers.get("referer")
        frame = self._frame(desk, request)
        problem = problem_of(
            refusal,
            request,
            sections=frame["sections"],
            names=frame["names"],
            came_from=None if came_from is None else local_page(came_from),
        )
        return _problem_page(problem, frame)

    def _refused(self, request: Request, error: MyriaError) -> Response:
        """Send a browser without a valid session to sign in, and then back; any other refusal is a page."""
        if isinstance(error, CredentialMissing | CredentialInvalid):
            if request.headers.get("accept") == "text/event-stream":
                return live.ended()
            address = f"{PREFIX}/sign-in?next={quote(page_of(request), safe='')}"
            if request.headers.get("hx-request") == "true":
                return Response(status_code=204, headers={"hx-redirect": address})
            return RedirectResponse(address, _SEE_OTHER)
        return _problem_page(problem_of(error, request), {})

    async def _start(self, desk: Desk, request: Request) -> Response:
        """Lead to the first page that a visitor may open."""
        sections = open_to(desk.principal)
        if not sections:
            return self._problem(RoleRequired(_NOTHING), desk, request)
        return RedirectResponse(PREFIX + sections[0].place, _SEE_OTHER)

    async def _not_served(self, request: Request, error: Exception) -> Response:
        return await self._with_desk(partial(self._missing, error))(request)

    async def _missing(self, error: Exception, desk: Desk, request: Request) -> Response:
        """Answer where there is no such page, or one that does not take such a request."""
        if isinstance(error, HTTPException) and error.status_code == MethodNotAllowed.http_status:
            message = "This page does not take such a request. Open it again and repeat what you did."
            response = self._problem(MethodNotAllowed(message), desk, request)
            response.headers.update(error.headers or {})
            return response
        message = "There is no such page. What it named may be gone, or the address may be cut off."
        return self._problem(PathNotFound(message), desk, request)


async def _viewed(view: View, desk: Desk, request: Request) -> Page | Response:
    """Return what a view answers, with the names that its page offers where somebody chooses as whom to ask."""
    answered = await view(desk, request)
    if isinstance(answered, Response) or answered[0] not in PICKERS:
        return answered
    template, values = answered
    return template, {**values, "names_offered": await names_offered(desk)}


def _must_say_as_whom(desk: Desk, request: Request) -> bool:
    """Tell whether a visitor must say first as whom to read a page; a part is loaded by a page that asked already."""
    # Where a form that scripts sent leads is a whole page, and no part of one.
    is_part = request.headers.get("hx-request") == "true" and "hx-boosted" not in request.headers
    return desk.needs_name and not is_part


def _problem_page(problem: Problem, frame: Values) -> Response:
    response = page("problem.html", {**frame, "problem": problem}, status=problem.status)
    if problem.wait_s is not None:
        response.headers["retry-after"] = str(problem.wait_s)
    return response


def _are_short(names: Sequence[str]) -> bool:
    return sum(map(len, names)) <= MAX_NAMES_CHARACTERS


def _need_address(desk: Desk, request: Request) -> None:
    """Check an address before anything looks for what it names.

    Raises:
        InvalidArgument: its fields are longer than links may be, or nothing has an id that it holds.
    """
    for named in request.path_params.values():
        id_of(named)
    if len(request.scope["query_string"]) > MAX_QUERY_BYTES:
        raise InvalidArgument(f"A page takes {MAX_QUERY_BYTES:,} bytes of fields. Ask for less, or use a tool.")
    if not _are_short(desk.names):
        message = f"A page asks as names of {MAX_NAMES_CHARACTERS} characters together. Name fewer, or use a tool."
        raise InvalidArgument(message, field="as")


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    # Its address holds a digest of its content.
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(static_file(name), media_type=STATIC[name], headers=headers)
