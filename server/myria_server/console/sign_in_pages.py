"""The pages of signing in, with a key or through an issuer, and the form of signing out."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from myria.errors import AccessError, CredentialInvalid, MyriaError, PathNotFound
from myria_server.console.desk import Desk
from myria_server.console.fields import form_of
from myria_server.console.places import place_of
from myria_server.console.rendering import page
from myria_server.console.signing_in import CALLBACK, IssuerSignIn
from myria_server.console.visitors import Visitors, is_same_origin
from myria_server.http.failure_limiter import FailureLimiter
from myria_server.paths import CONSOLE_PREFIX as PREFIX

_SEE_OTHER = 303


class SignInPages:
    """The pages of signing in; they are open to everybody.

    Args:
        issuer_sign_in: signs visitors in through issuers; None where there are none.
    """

    def __init__(self, visitors: Visitors, issuer_sign_in: IssuerSignIn | None, limiter: FailureLimiter) -> None:
        self._visitors = visitors
        self._issuer_sign_in = issuer_sign_in
        self._limiter = limiter

    def routes(self) -> list[Route]:
        """Return the routes that need no session."""
        return [
            Route(PREFIX + "/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route(PREFIX + "/sign-in/with/{name}", self._begin),
            Route(PREFIX + CALLBACK, self._finish),
        ]

    async def sign_out(self, desk: Desk, request: Request, _form: Mapping[str, str]) -> Response:
        """End a visitor's session, and take it from the browser."""
        if desk.visitor.can_sign_out:
            await self._visitors.sign_out(desk.visitor, request)
        response = RedirectResponse(PREFIX + "/sign-in", _SEE_OTHER)
        self._visitors.drop_session(response)
        return response

    def _page(self, place: str, error: MyriaError | None = None, *, has_ended: bool = False) -> Response:
        """Return the page that asks for a key, or leads to an issuer; with what went wrong before.

        Args:
            has_ended: the browser comes with a session that is no longer good.
        """
        values = {
            "place": place,
            "problem": None if error is None else error.message,
            "has_ended": has_ended,
            "issuers": [] if self._issuer_sign_in is None else self._issuer_sign_in.names,
        }
        return page("sign_in.html", values, status=200 if error is None else error.http_status)

    async def _sign_in(self, request: Request) -> Response:
        """Show the page that asks for a key; on POST check the key and begin a session."""
        place, has_ended = place_of(request.query_params.get("next")), False
        try:
            if not (await self._visitors.visitor(request)).can_sign_out:
                return RedirectResponse(place, _SEE_OTHER)  # no credentials are asked for here
        except MyriaError as error:  # nobody is signed in yet: that is what this page is for
            has_ended = isinstance(error, CredentialInvalid)
        if request.method != "POST":
            return self._page(place, has_ended=has_ended)
        form = await form_of(request)
        if form is None or not is_same_origin(request):
            return self._page(place, AccessError("This form was not sent by this page. Try again."))
        try:
            if form.refusal is not None:
                raise form.refusal
            session = await self._visitors.sign_in(request, form.fields.get("key", "").strip())
            await self._visitors.end_former(request)
        except MyriaError as error:
            await self._limiter.delay(error)
            return self._page(place, error)
        response = RedirectResponse(place_of(form.fields.get("next")), _SEE_OTHER)
        self._visitors.set_session(response, session)
        return response

    async def _begin(self, request: Request) -> Response:
        """Send a browser to an issuer. A link leads here: after a form, `form-action` would stop the browser."""
        place = place_of(request.query_params.get("next"))
        if self._issuer_sign_in is None:
            return self._page(place, PathNotFound("One signs in with a key here."))
        try:
            address, cookie = await self._issuer_sign_in.begin(request.path_params["name"], place)
        except MyriaError as error:
            return self._page(place, error)
        response = RedirectResponse(address, _SEE_OTHER)
        self._issuer_sign_in.set_cookie(response, cookie)
        return response

    async def _finish(self, request: Request) -> Response:
        """Take an issuer's answer, and begin a session."""
        if self._issuer_sign_in is None:
            return self._page(PREFIX, PathNotFound("One signs in with a key here."))
        response: Response
        try:
            session, place = await self._issuer_sign_in.finish(request)
            await self._visitors.end_former(request)
        except MyriaError as error:
            await self._limiter.delay(error)
            response = self._page(PREFIX, error)
        else:
            response = RedirectResponse(place_of(place), _SEE_OTHER)
            self._visitors.set_session(response, session)
        self._issuer_sign_in.drop_cookie(response)
        return response
