"""Names of tenants."""

from __future__ import annotations

import re

from myria.errors import InvalidArgument

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def checked_tenant(name: str) -> str:
    """Check a tenant's name, and return it unchanged.

    Raises:
        InvalidArgument: the name is not 1..63 letters, digits, dots, underscores and dashes, a letter or digit first.
    """
    if not isinstance(name, str) or not _TENANT.fullmatch(name):
        raise InvalidArgument(
            "tenant must be 1..63 letters, digits, '.', '_' or '-', starting with a letter or digit",
            field="tenant",
        )
    return name
