"""Those who failed to prove who they are: from where they come, and how often.

Asked only once a credential was found to be bad, so a good one is never refused for the failures of others.
"""

from __future__ import annotations

from starlette.types import Scope

from myria.access.addresses import Proxies
from myria.access.limits import Failures, network_of
from myria.errors import CredentialInvalid, MyriaError, RateLimited
from myria_server.authentication import Headers, claimed_id


class Door:
    """Counts failures by address and by the id of the key that was claimed."""

    def __init__(self, failures: Failures, proxies: Proxies) -> None:
        self._failures = failures
        self._proxies = proxies

    def judged(self, scope: Scope, headers: Headers, error: MyriaError) -> MyriaError:
        """Return the refusal to answer: `error`, or that there were too many like it."""
        if not isinstance(error, CredentialInvalid):
            return error
        names = ["address " + network_of(self.address(scope))]
        if (key_id := claimed_id(headers)) is not None:
            names.append("key " + key_id)
        try:
            self._failures.note(names)
        except RateLimited as limited:
            return limited
        return error

    def address(self, scope: Scope) -> str:
        """Return the address from which a request comes."""
        client = scope.get("client")
        forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        return self._proxies.client(None if client is None else client[0], forwarded)
