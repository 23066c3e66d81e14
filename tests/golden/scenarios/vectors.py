"""A log with vectors of the local model: questions in other words than the answers, before and after a build.

Scores are left out: they may differ in their last digits between processors.
"""

from __future__ import annotations

from myria.settings import EmbeddingsSettings, Settings
from tests.golden.replay import Golden

# The first question waits for the model to be read, however long a busy machine takes for that.
SETTINGS = Settings(embeddings=EmbeddingsSettings(model="local", question_deadline_s=60.0))
COMMANDS = (("verify",), ("status", "--json"), ("export",))

_SAID = (
    "Our daughter gets anaphylaxis from peanuts.",
    "The car is at the garage until Thursday; the brakes were worn out.",
    "I moved into a flat by the sea in October.",
    "Ben plays the cello in the town's orchestra.",
    "The invoice of the plumber came to 430 euros.",
    "We saw otters on the river this morning.",
    "My flight leaves from Porto at six.",
    "The bread needs two hours to rise.",
    "The server ran out of memory last night.",
    "Grandmother turns ninety in May.",
)
_ASKED = (
    *(
        "food allergy of our child",
        "vehicle repair",
        "Where do I live now?",
        "musical instrument",
        "cost of fixing pipes",
    ),
    *("wild animals", "travel by plane", "baking", "computer crash", "birthday of an old relative"),
)


async def play(golden: Golden) -> None:
    """Ask of the log alone, of a snapshot with vectors, and of both; and recall notes by their meaning."""
    events = [
        {
            "timestamp": f"2026-03-{10 + number // 3:02}T{8 + number:02}:15:00Z",
            "channel": "home",
            "participants": ["ada", "ben"],
            "payload": {"text": text, "speaker": "ben" if number % 2 else "ada"},
            "source_event_key": f"home:{number}",
        }
        for number, text in enumerate(_SAID)
    ]
    await golden.tool("myria_append_events", events=events[:7])
    await golden.tool("myria_query_event_nodes", participants=["ada"], query=_ASKED[0], limit=2, view="lean")
    await golden.build()
    for query in _ASKED[:7]:
        await golden.tool("myria_query_event_nodes", participants=["ada"], query=query, limit=1, view="lean")
    await golden.tool("myria_append_events", events=events[7:])
    await golden.embed()
    for query in _ASKED[5:]:
        await golden.tool("myria_query_event_nodes", participants=["ada"], query=query, limit=1, format="text")
        await golden.tool("myria_query_references", participants=["ada"], query=query, max_nodes=4, view="lean")
    for content in ("Ana is allergic to shellfish.", "The boiler was repaired in 2024.", "Kai speaks Danish."):
        await golden.tool("remember", content=content, agentId="fern")
    await golden.embed()
    for text in ("seafood reaction", "heating fixed", "languages of Scandinavia"):
        await golden.tool("recall", text=text, agentId="fern", pageSize=1)
    await golden.build()
    await golden.tool("myria_query_event_nodes", participants=["ada"], query=_ASKED[9], limit=1, view="lean")
