"""The kinds of what can be taken out of payloads."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["secret", "password", "card", "email", "phone"]
KINDS: tuple[Kind, ...] = get_args(Kind)
