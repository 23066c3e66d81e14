"""Makes Secrets inside the cluster, so that no manifest holds a password or a key.

A Secret that exists is left unchanged, whoever made it: making it again changes nothing, and a reinstallation uses the
passwords of the one before. The Jobs that use this have a Role of their own, which allows them to create Secrets and
nothing else; the operator itself has no right to Secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_urlsafe
from typing import Final
from urllib.parse import quote

from myria.access.secrets import make_key
from myria.errors import ClusterRefused
from myria_operator.observed import MANAGER
from myria_rebuilds.connection import Connection, configuration
from myria_rebuilds.resource import SECRETS, Json

PASSWORD_BYTES: Final = 32


async def make_logins(
    roles: Mapping[str, str], *, host: str, port: int, database: str, labels: Mapping[str, str], namespace: str = ""
) -> list[str]:
    """Make the Secrets with which database roles log in: `username`, `password`, and `dsn`, which holds both.

    Args:
        roles: the role by the name of its Secret.
        host, port, database: where the roles log in.
        labels: of the Secrets.
        namespace: of the Secrets; empty for the pod's.

    Returns:
        The names of the Secrets that were missing.

    Raises:
        ConfigurationError: there is no way to the API server.
        ClusterUnavailable, ClusterRefused: it did not answer, or may not.
    """
    configured, own_namespace = await configuration()
    new_names = []
    async with Connection(configured, namespace or own_namespace, MANAGER) as api:
        for name, role in roles.items():
            password = token_urlsafe(PASSWORD_BYTES)
            login = f"{quote(role, safe='')}:{quote(password, safe='')}"
            dsn = f"postgresql://{login}@{host}:{port}/{quote(database, safe='')}"
            data = {"username": role, "password": password, "dsn": dsn}
            # CloudNativePG reads logins only from Secrets of this type.
            if await _make_secret(api, name, labels, data, "kubernetes.io/basic-auth"):
                new_names.append(name)
    return new_names


async def make_key_secret(name: str, *, field: str, labels: Mapping[str, str], namespace: str = "") -> bool:
    """Make a Secret that holds a new random key in one field, unless it is there; tell whether it was made.

    The key becomes known to the database by `myria key create --key-env`, which never reads the Secret through the API
    server. Raises as `make_logins` does.
    """
    configured, own_namespace = await configuration()
    async with Connection(configured, namespace or own_namespace, MANAGER) as api:
        return await _make_secret(api, name, labels, {field: make_key().text}, "Opaque")


async def _make_secret(
    api: Connection, name: str, labels: Mapping[str, str], data: Mapping[str, str], kind: str
) -> bool:
    """Create a Secret; return False, and leave it unchanged, if one of that name exists."""
    manifest: Json = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": dict(labels)},
        "type": kind,
        "stringData": dict(data),
    }
    try:
        await api.create(SECRETS, manifest)
    except ClusterRefused as error:
        if error.details["status"] != 409:
            raise
        return False
    return True
