"""Makes the Secret that holds an installation's first key, inside the cluster, so that no manifest holds a key.

A Secret that exists is left unchanged: running this again changes nothing. The key becomes known to the database by
`myria key create --key-env`, which never needs to read the Secret through the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from myria.access.secrets import make_key
from myria_operator.secret_objects import SecretMaker
from myria_rebuilds.connection import configuration
from myria_rebuilds.resource import Json

DEFAULT_FIELD: Final = "key"


def key_secret(name: str, field: str, labels: Mapping[str, str], key: str) -> Json:
    """Return the manifest of a Secret that holds a key's text in one field of its data."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": dict(labels)},
        "type": "Opaque",
        "stringData": {field: key},
    }


async def make_key_secret(
    name: str, *, field: str = DEFAULT_FIELD, labels: Mapping[str, str], namespace: str = ""
) -> bool:
    """Make a Secret with a new random key in `namespace` (empty: the pod's), unless one of this name is there.

    Returns:
        Whether it was made now.

    Raises:
        ConfigurationError: there is no way to the API server.
        ClusterUnavailable, ClusterRefused: it did not answer, or may not.
    """
    configured, own_namespace = await configuration()
    async with SecretMaker(configured, namespace or own_namespace) as api:
        return await api.make(key_secret(name, field, labels, make_key().text))
