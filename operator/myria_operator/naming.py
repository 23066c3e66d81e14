"""Names of what the operator makes: deterministic, so that a second attempt finds the object of the first."""

from __future__ import annotations

import hashlib
import re
from typing import Final

MAX_JOB_NAME: Final = 52
"""Characters of a Job's name: its pods' names add to it and must stay labels."""

_HASH: Final = 10


def job_name(rebuild: str, uid: str) -> str:
    """Return the name of the Job of a resource: the start of its name, and a hash of its uid."""
    return _name(rebuild, uid, MAX_JOB_NAME)


def rebuild_name(tenant: str, trigger: str, cause_key: str) -> str:
    """Return the name of the resource that is made out of a request."""
    return _name(f"{tenant}-{trigger}", f"{tenant}\n{cause_key}", 63)


def event_name(rebuild: str, *parts: str) -> str:
    """Return the name of the Kubernetes Event that tells of one transition."""
    return _name(rebuild, "\n".join(parts), 63)


def _name(words: str, distinct: str, length: int) -> str:
    """Return a name of at most `length` characters: `words` for people, then a hash of `distinct`, for uniqueness."""
    slug = re.sub(r"[^a-z0-9-]+", "-", words.lower()).strip("-") or "myria"
    digest = hashlib.sha256(distinct.encode()).hexdigest()[:_HASH]
    return f"{slug[: length - _HASH - 1].rstrip('-')}-{digest}"
