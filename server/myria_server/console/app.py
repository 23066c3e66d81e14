"""The routes of the console, and what every page of it goes through: a visitor, their limits, and errors as pages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qsl, quote, unquote

from starlette.applications import Starlette
from starlette.datastructures import URL, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from myria.access.limits import CredentialLimits
from myria.access.principal import ApiName, Role
from myria.db.fairness import caller
from myria.errors import (
    AccessError,
    CredentialInvalid,
    CredentialMissing,
    DeadlineExceeded,
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
from myria_server.console.fields import id_of
from myria_server.console.forms import Form, Values, View
from myria_server.console.names import NAMES, PICKERS, names_offered
from myria_server.console.navigation import open_to, section_of
from myria_server.console.problems import FORM_REFUSED, Problem, problem_of
from myria_server.console.rendering import PROTECTION, STATIC, page, static_file
from myria_server.console.signing_in import CALLBACK, IssuerSignIn
from myria_server.console.visitors import PREFIX, Visitors, asked_as, is_same_origin
from myria_server.http.failure_limiter import FailureLimiter
from myria_server.mcp.toolbox import Toolbox

FORM_BYTES = 64 * 1024
"""Bytes of a form."""

FORM_S = 30.0
"""Seconds within which a form must have arrived."""

MAX_QUERY_BYTES = 8_000
"""Bytes of what an address asks for: the links of a page repeat it."""

MAX_NAMES_CHARACTERS = 600
"""Characters of all names as whom an address asks: every link of a page repeats them."""

_NOTHING = "A program's key for appending opens no page here. Sign out, and in with a key that may read or administer."

_MOST_FIELDS = 100
_SEE_OTHER = 303

T = TypeVar("T")

Act = Callable[[Desk, Request, Mapping[str, str]], Awaitable[str | tuple[str, Values] | Response]]
"""Carries out what a form asks for; returns the address to go on to, a page that is shown this once, or a file."""


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
        self._public_url = settings.auth.public_url
        self._toolboxes = toolboxes
        self._visitors = visitors
        self._issuer_sign_in = issuer_sign_in
        self._limits = limits
        self._limiter = limiter
        self._deadline_s = settings.mcp.request_deadline_s
        pages = changes.ChangePages(memory, live.LiveBuilds(memory, visitors, is_leaving=is_leaving))
        built = builds.BuildPages(memory, settings)
        differing = differences.DifferencePages(memory)
        operating = operations.OperationsPages(memory, settings)
        auditing = audit.AuditPages(memory)
        key_pages = keys.KeyPages(memory)
        remembering = remembered.RememberedPages(memory, limits)
        note_pages = notes.NotePages(memory, settings)
        asking = ask.AskPages(memory)
        reviewing = review.ReviewPages(settings)
        self._review = memory.review
        question, filters = Form(asking.form, ask.FIELDS), Form(auditing.form, audit.FIELDS)
        search, restored = Form(notes.form, notes.FIELDS), Form(notes.overview, notes.RESTORED)
        whom, confirmed = Form(people.whom, people.WHOM), Form(people.confirm_erasure, people.CONFIRMED)
        held, decided = Form(reviewing.form, review.FILTER), Form(reviewing.overview, review.DECIDED)
        new_key, changed_key = Form(key_pages.form, keys.FIELDS), Form(key_pages.confirm, keys.ACT)
        ended_grant, change = Form(key_pages.confirm_ending, keys.ACT), Form(pages.confirm, changes.FIELDS)
        self._app = Starlette(
            routes=[
                Route(PREFIX, self._start),
                Route(PREFIX + "/", self._start),
                Route(PREFIX + "/static/{name}", _static),
                Route(PREFIX + "/sign-in", self._sign_in, methods=["GET", "POST"]),
                Route(PREFIX + "/sign-in/with/{name}", self._begin_sign_in),
                Route(PREFIX + CALLBACK, self._finish_sign_in),
                Route(PREFIX + "/sign-out", self._acting(self._sign_out), methods=["POST"]),
                Route(PREFIX + "/ask", self._reading(asking.view, form=question)),
                Route(PREFIX + "/events/{event_id}", self._reading(events.EventPages(memory).event)),
                Route(PREFIX + "/events/{event_id}/forget", self._reading(events.confirm_forgetting)),
                Route(PREFIX + "/events/{event_id}/forget", self._acting(events.forget), methods=["POST"]),
                Route(PREFIX + "/events/{event_id}/restore", self._acting(events.restore), methods=["POST"]),
                Route(PREFIX + "/topics", self._reading(topics.TopicPages(memory).overview)),
                Route(PREFIX + "/topics/{topic_id}", self._reading(topics.TopicPages(memory).topic)),
                Route(PREFIX + "/notes", self._reading(notes.overview, form=search)),
                Route(PREFIX + "/notes/restore", self._acting(notes.restore, form=restored), methods=["POST"]),
                Route(PREFIX + "/notes/{note_id}", self._reading(note_pages.note)),
                Route(PREFIX + "/notes/{note_id}/forget", self._reading(note_pages.confirm_forgetting)),
                Route(PREFIX + "/notes/{note_id}/forget", self._acting(note_pages.forget), methods=["POST"]),
                Route(PREFIX + "/people", self._reading(people.PeoplePages(memory).overview)),
                Route(PREFIX + "/people/one", self._viewing(remembering.person)),
                Route(PREFIX + "/people/export", self._viewing(remembering.export)),
                Route(PREFIX + "/people/erase", self._viewing(people.confirm_erasure, ("erase",), form=whom)),
                Route(PREFIX + "/people/erase", self._acting(people.erase, form=confirmed), methods=["POST"]),
                Route(PREFIX + "/erasures/{erasure_id}", self._viewing(people.erasure, ("erase",))),
                Route(PREFIX + "/erasures/{erasure_id}/receipt", self._acting(people.receipt), methods=["POST"]),
                Route(PREFIX + "/review", self._viewing(reviewing.overview, ("admin",), form=held)),
                Route(PREFIX + "/review/decide", self._acting(reviewing.decide, form=decided), methods=["POST"]),
                Route(PREFIX + "/operations", self._viewing(operating.overview, ("admin",))),
                Route(PREFIX + "/settings", self._viewing(settings_page.SettingsPages(settings).overview, ("admin",))),
                Route(PREFIX + "/audit", self._viewing(auditing.overview, ("admin",), form=filters)),
                Route(PREFIX + "/audit.jsonl", self._viewing(auditing.export, ("admin",), form=filters)),
                Route(PREFIX + "/keys", self._viewing(key_pages.overview, ("admin",))),
                Route(PREFIX + "/keys/new", self._viewing(key_pages.form, ("admin",))),
                Route(PREFIX + "/keys/new", self._acting(key_pages.create, form=new_key), methods=["POST"]),
                Route(PREFIX + "/keys/grants", self._viewing(key_pages.grants, ("admin",))),
                Route(PREFIX + "/keys/grants/{grant_id}", self._viewing(key_pages.confirm_ending, ("admin",))),
                Route(
                    PREFIX + "/keys/grants/{grant_id}",
                    self._acting(key_pages.end_grant, form=ended_grant),
                    methods=["POST"],
                ),
                Route(PREFIX + "/keys/{key_id}/revoke", self._viewing(key_pages.confirm, ("admin",))),
                Route(
                    PREFIX + "/keys/{key_id}/revoke", self._acting(key_pages.revoke, form=changed_key), methods=["POST"]
                ),
                Route(PREFIX + "/keys/{key_id}/rotate", self._viewing(key_pages.confirm, ("admin",))),
                Route(
                    PREFIX + "/keys/{key_id}/rotate", self._acting(key_pages.rotate, form=changed_key), methods=["POST"]
                ),
                Route(PREFIX + "/changes", self._viewing(pages.overview, ("read", "admin"))),
                Route(PREFIX + "/changes/events", self._viewing(pages.events, ("read", "admin"))),
                Route(PREFIX + "/changes/builds/{build_id}", self._viewing(built.build, ("admin",))),
                Route(PREFIX + "/changes/diff", self._viewing(differing.overview, ("read", "admin"))),
                Route(PREFIX + "/changes/{act}", self._viewing(pages.confirm, ("read", "admin"))),
                Route(PREFIX + "/changes/{act}", self._acting(pages.act, form=change), methods=["POST"]),
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

    async def _desk(self, request: Request) -> Desk:
        visitor = await self._visitors.visitor(request)
        return Desk(
            visitor=visitor,
            names=asked_as(request.query_params.getlist("as")),
            toolboxes=self._toolboxes,
            address_of=lambda: self._limiter.address(request.scope),
            check_session=partial(self._visitors.visitor, request),
        )

    def _reading(self, view: View, *, form: Form | None = None) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page that is read as somebody; a visitor who must say as whom is asked first.

        Args:
            form: as of `_viewing`.
        """

        async def view_as_somebody(desk: Desk, request: Request) -> tuple[str, Values] | Response:
            # Where a form that scripts sent leads is a whole page, and no part of one.
            is_part = request.headers.get("hx-request") == "true" and "hx-boosted" not in request.headers
            if not desk.needs_name or is_part:
                return await view(desk, request)
            return await _as_whom(desk, request)

        return self._viewing(view_as_somebody, form=form)

    def _viewing(
        self, view: View, roles: Sequence[Role] = ("read",), *, form: Form | None = None
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page, for visitors with one of these roles.

        Args:
            form: shown where one of its fields is refused; None for one that asks as whom.
        """
        form = form or Form(_as_whom, NAMES)

        async def answer(request: Request) -> Response:
            try:
                desk = await self._desk(request)
            except MyriaError as error:
                return self._refused(request, error)
            usage = self._limits.of(desk.principal)
            try:
                if usage is not None:
                    usage.begin()
            except MyriaError as error:
                return await self._refusal(error, None, {}, desk, request)
            try:
                _need_address(desk, request)
                desk.principal.need(roles, what="this page")
                answered = await self._within_deadline(self._viewed(view, desk, request), desk)
                if isinstance(answered, Response):
                    return answered
                template, values = answered
                waiting = await self._waiting(desk, request)
                response = page(template, {**self._frame(desk, request), "waiting": waiting, **values})
            except (ToolRefused, MyriaError) as error:
                response = await self._refusal(error, form, request.query_params, desk, request)
            finally:
                if usage is not None:
                    usage.end()
            self._visitors.keep(response, desk.visitor, request)
            return response

        return answer

    async def _viewed(self, view: View, desk: Desk, request: Request) -> tuple[str, Values] | Response:
        """Return what a view answers, with the names that its page offers where somebody chooses as whom to ask."""
        answered = await view(desk, request)
        if isinstance(answered, Response) or answered[0] not in PICKERS:
            return answered
        template, values = answered
        return template, {**values, "names_offered": await names_offered(self._memory, desk.principal)}

    def _acting(self, act: Act, *, form: Form | None = None) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a form: it is carried out once it is proved to come from a page of this visitor.

        Args:
            form: shown again where one of its fields is refused.
        """

        async def answer(request: Request) -> Response:
            try:
                desk = await self._desk(request)
            except MyriaError as error:
                return self._refused(request, error)
            sent = await _form(request)
            if sent is None or not is_same_origin(request) or not desk.visitor.sent(sent.get("form_token", "")):
                message = "This form was not sent by a page of this session. Open the page again and repeat it."
                return self._problem(ToolRefused({"code": FORM_REFUSED, "message": message}, 403), desk, request)
            try:
                usage = self._limits.of(desk.principal)
                if usage is not None:
                    usage.begin()
                    usage.end()
                _need_address(desk, request)
                done = await self._within_deadline(act(desk, request, sent), desk)
            except (ToolRefused, MyriaError) as error:
                return await self._refusal(error, form, sent, desk, request)
            if isinstance(done, Response):
                return done
            if not isinstance(done, str):
                template, values = done
                return page(template, {**self._frame(desk, request), **values})
            response = RedirectResponse(done, _SEE_OTHER)
            if done.startswith(PREFIX + "/sign-in"):
                self._visitors.drop_session(response)
            return response

        return answer

    async def _within_deadline(self, work: Awaitable[T], desk: Desk) -> T:
        """Return what a page's work returns, which shares the database fairly with other callers.

        Raises:
            DeadlineExceeded: it takes longer than a request may.
        """
        token = caller.set(desk.principal.caller)
        try:
            async with asyncio.timeout(self._deadline_s):
                return await work
        except TimeoutError as error:
            message = f"The page was not ready within {self._deadline_s:g} s. Ask for less, or try again."
            raise DeadlineExceeded(message, deadline_s=self._deadline_s) from error
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
            "origin": self._public_url or str(request.base_url).rstrip("/"),
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
            return await self._review.waiting(desk.principal.tenant)
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
                answered = await self._within_deadline(self._viewed(form.view, desk, request), desk)
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
            came_from=None if came_from is None else _local(came_from),
        )
        return _problem_page(problem, frame)

    def _refused(self, request: Request, error: MyriaError) -> Response:
        """Send a browser without a valid session to sign in, and then back; any other refusal is a page."""
        if isinstance(error, CredentialMissing | CredentialInvalid):
            if request.headers.get("accept") == "text/event-stream":
                return live.ended()
            place = _page_of(request)
            address = f"{PREFIX}/sign-in?next={quote(place, safe='')}"
            if request.headers.get("hx-request") == "true":
                return Response(status_code=204, headers={"hx-redirect": address})
            return RedirectResponse(address, _SEE_OTHER)
        return _problem_page(problem_of(error, request), {})

    def _sign_in_page(self, place: str, error: MyriaError | None = None) -> Response:
        """Return the page that asks for a key, or leads to an issuer; with what went wrong before."""
        values = {
            "place": place,
            "problem": None if error is None else error.message,
            "issuers": [] if self._issuer_sign_in is None else self._issuer_sign_in.names,
        }
        return page("sign_in.html", values, status=200 if error is None else error.http_status)

    async def _start(self, request: Request) -> Response:
        """Lead to the first page that a visitor may open."""
        try:
            desk = await self._desk(request)
        except MyriaError as error:
            return self._refused(request, error)
        sections = open_to(desk.principal)
        if not sections:
            return self._problem(RoleRequired(_NOTHING), desk, request)
        return RedirectResponse(PREFIX + sections[0].place, _SEE_OTHER)

    async def _sign_in(self, request: Request) -> Response:
        """Show the page that asks for a key; on POST check the key and begin a session."""
        place = _place(request.query_params.get("next"))
        try:
            if not (await self._visitors.visitor(request)).can_sign_out:
                return RedirectResponse(place, _SEE_OTHER)  # no credentials are asked for here
        except MyriaError:  # nobody is signed in yet: that is what this page is for
            pass
        if request.method != "POST":
            return self._sign_in_page(place)
        form = await _form(request)
        if form is None or not is_same_origin(request):
            return self._sign_in_page(place, AccessError("This form was not sent by this page. Try again."))
        try:
            session = await self._visitors.sign_in(request, form.get("key", "").strip())
            await self._visitors.end_former(request)
        except MyriaError as error:
            await self._limiter.delay(error)
            return self._sign_in_page(place, error)
        response = RedirectResponse(_place(form.get("next")), _SEE_OTHER)
        self._visitors.set_session(response, session)
        return response

    async def _begin_sign_in(self, request: Request) -> Response:
        """Send a browser to an issuer. A link leads here: after a form, `form-action` would stop the browser."""
        place = _place(request.query_params.get("next"))
        if self._issuer_sign_in is None:
            return self._sign_in_page(place, PathNotFound("One signs in with a key here."))
        try:
            address, cookie = await self._issuer_sign_in.begin(request.path_params["name"], place)
        except MyriaError as error:
            return self._sign_in_page(place, error)
        response = RedirectResponse(address, _SEE_OTHER)
        self._issuer_sign_in.set_cookie(response, cookie)
        return response

    async def _finish_sign_in(self, request: Request) -> Response:
        """Take an issuer's answer, and begin a session."""
        if self._issuer_sign_in is None:
            return self._sign_in_page(PREFIX, PathNotFound("One signs in with a key here."))
        response: Response
        try:
            session, place = await self._issuer_sign_in.finish(request)
            await self._visitors.end_former(request)
        except MyriaError as error:
            await self._limiter.delay(error)
            response = self._sign_in_page(PREFIX, error)
        else:
            response = RedirectResponse(_place(place), _SEE_OTHER)
            self._visitors.set_session(response, session)
        self._issuer_sign_in.drop_cookie(response)
        return response

    async def _sign_out(self, desk: Desk, request: Request, _form: Mapping[str, str]) -> str:
        if desk.visitor.can_sign_out:
            await self._visitors.sign_out(desk.visitor, request)
        return PREFIX + "/sign-in"

    async def _not_served(self, request: Request, error: Exception) -> Response:
        try:
            desk = await self._desk(request)
        except MyriaError as refused:
            return self._refused(request, refused)
        if isinstance(error, HTTPException) and error.status_code == MethodNotAllowed.http_status:
            message = "This page does not take such a request. Open it again and repeat what you did."
            response = self._problem(MethodNotAllowed(message), desk, request)
            response.headers.update(error.headers or {})
            return response
        message = "There is no such page. What it named may be gone, or the address may be cut off."
        return self._problem(PathNotFound(message), desk, request)


def _problem_page(problem: Problem, frame: Values) -> Response:
    response = page("problem.html", {**frame, "problem": problem}, status=problem.status)
    if problem.wait_s is not None:
        response.headers["retry-after"] = str(problem.wait_s)
    return response


async def _as_whom(desk: Desk, request: Request) -> tuple[str, Values]:
    """Ask as whom a page is to be read; the form keeps what else its address says."""
    kept = [(field, value) for field, value in request.query_params.multi_items() if field != "as"]
    return "ask_as.html", {"patterns": desk.principal.may_ask, "kept": kept}


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


async def _form(request: Request) -> Mapping[str, str] | None:
    """Return the fields of a form; None where the body is none, too large, or too late."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return None
    body = b""
    try:
        async with asyncio.timeout(FORM_S):
            async for part in request.stream():
                body += part
                if len(body) > FORM_BYTES:
                    return None
    except TimeoutError:
        return None
    try:
        text = body.decode("ascii")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"))
    except ValueError:
        return None


def _page_of(request: Request) -> str:
    """Return the page that a browser shows: for a part of a page, and for a form, not what was asked for just now."""
    shown = request.headers.get("hx-current-url") or (
        request.headers.get("referer") if request.method == "POST" else None
    )
    return _local(str(request.url) if shown is None else shown)


def _local(address: str) -> str:
    """Return the page of the console that an address names, whatever its host; the first one for any other address."""
    try:
        url = URL(address)
        return _place(url.path + (f"?{url.query}" if url.query else ""))
    except ValueError:  # a browser sends no such header
        return PREFIX + "/"


def _place(text: str | None) -> str:
    """Return the page of the console to go on to; the first one for an address of anything else."""
    # Browsers read a backslash as a slash, and resolve dots, also escaped ones.
    path = unquote((text or "").partition("?")[0])
    if text is None or not path.startswith(PREFIX + "/") or ".." in path or "\\" in text or not text.isprintable():
        return PREFIX + "/"
    return text
