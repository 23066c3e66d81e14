"""Makes Secrets from within the cluster: they are created, and never read or changed.

The Jobs that use this have a Role of their own, which allows no more; the operator itself has no right to Secrets.
"""

from __future__ import annotations

from myria.errors import ClusterRefused
from myria_operator.api import Api
from myria_rebuilds.resource import Json


class SecretMaker(Api):
    """The API server, as an account sees it that may create Secrets."""

    async def make(self, manifest: Json) -> bool:
        """Make a Secret; return False when one of its name is there.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        try:
            await self._ask("create", "secrets", "POST", f"{self._core}/secrets", body=manifest)
        except ClusterRefused as error:
            if error.details["status"] != 409:
                raise
            return False
        return True
