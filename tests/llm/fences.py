"""Reading the fenced data of a prompt, as a model would."""

from __future__ import annotations

import json
import re
from typing import Any


def unfenced(content: str) -> Any:
    """Return the data of the last fence in a message, the reverse of `fenced`.

    Raises:
        ValueError: the message has no fence.
    """
    fences = re.findall(r"^=== data ([0-9a-f]{16}) ===\n(.*)\n=== data \1 ===$", content, re.MULTILINE)
    if not fences:
        raise ValueError("the message holds no fenced data")
    return json.loads(fences[-1][1])
