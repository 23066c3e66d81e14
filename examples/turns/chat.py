"""A chat on the terminal that remembers, over plain HTTP with `myria-client`.

    myria up                                        # with turns.enabled: true
    python examples/turns/chat.py my-session

The model is any that speaks OpenAI's chat completions (MODEL_URL, MODEL_NAME, MODEL_KEY). Without MODEL_URL an echo
stands in, which shows what a model would have been given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpx

from myria_client import Client, Session

Model = Callable[[list[Any]], str]


def chat(session: Session, model: Model, lines: Iterable[str]) -> Iterator[str]:
    """Yield the model's answer to each line; what was said is remembered, also in a later run."""
    for line in lines:
        turn = session.openai(
            [{"role": "system", "content": "You are a friendly assistant."}, {"role": "user", "content": line}]
        )
        answer = model(turn.messages)
        turn.keep(answer)
        yield answer


def echo(messages: list[Any]) -> str:
    """Stand in for a model: tell what it was given."""
    return "\n".join(f"  {message['role']}: {message['content']}" for message in messages)


def completions(messages: list[Any]) -> str:
    """Ask the model that the environment names."""
    answer = httpx.post(
        f"{os.environ['MODEL_URL'].rstrip('/')}/chat/completions",
        json={"model": os.environ.get("MODEL_NAME", "default"), "messages": messages},
        headers={"authorization": f"Bearer {os.environ.get('MODEL_KEY', '')}"},
        timeout=120,
    )
    text: str = answer.raise_for_status().json()["choices"][0]["message"]["content"]
    return text


def main() -> None:
    """Chat until the input ends."""
    with Client(os.environ.get("MYRIA_URL", "http://127.0.0.1:8321"), key=os.environ.get("MYRIA_KEY")) as client:
        session = client.turns.session(sys.argv[1] if len(sys.argv) > 1 else "chat")
        for answer in chat(session, completions if "MODEL_URL" in os.environ else echo, sys.stdin):
            print(answer, flush=True)


if __name__ == "__main__":
    main()
