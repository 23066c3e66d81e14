"""One pass through a running memory, from outside: append, rebuild, ask. What `helm test` runs.

It writes as a participant of its own, so nobody else sees its events; each run leaves one event behind.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
from mcp import Client

from myria.errors import DeadlineExceeded, InternalError
from myria_cli.mcp_client import admin_url, call, connected, innermost, refuse_failed, unwrapped
from myria_server.paths import CONSOLE_PREFIX

PARTICIPANT = "myria-smoke"
POLL_S = 0.5

Json = dict[str, Any]
Tell = Callable[[str], None]


async def smoke(
    url: str, *, build: bool, timeout_s: float, tell: Tell, key: str | None = None, console: bool = False
) -> Json:
    """Append an event to the memory at `url`, have it built, and find it again; return its id and its snapshot's.

    Args:
        build: whether to ask for a build; without one, the event is looked for in the fresh tail.
        console: whether to look for it on a page of the console, too.
        timeout_s: seconds for everything together, the server's start included.
        tell: called with a sentence after each step.
        key: what the server asks for; the event then belongs to the key's own participants.

    Raises:
        DeadlineExceeded: it took longer.
        BuildInvalid: the build failed.
        InternalError: a tool refused, or the event was not found.
    """
    try:
        async with asyncio.timeout(timeout_s) as limit:
            await _wait_until_reachable(url, key, tell)
            with unwrapped():
                async with AsyncExitStack() as stack:
                    client = await stack.enter_async_context(connected(url, key))
                    admin = await stack.enter_async_context(connected(admin_url(url), key)) if build else None
                    passed = await _run_pass(
                        client, admin, participants_field={} if key else {"participants": [PARTICIPANT]}, tell=tell
                    )
            if console:
                await _find_on_page(url, key, passed["event_id"])
                tell("found it in the console")
            return passed
    except Exception as problem:
        # When the limit cancels it, the client's transport may raise an error of its own instead of a TimeoutError.
        if not isinstance(problem, TimeoutError) and not limit.expired():
            raise
        raise DeadlineExceeded(f"{url} did not go through append, build and query within {timeout_s:g} s") from None


async def _wait_until_reachable(url: str, key: str | None, tell: Tell) -> None:
    """Return once the server lets a client in; it may be starting."""
    announced = False
    while True:
        try:
            async with connected(url, key) as client:
                await client.list_tools()
        except Exception as problem:  # noqa: BLE001 - whatever the client's transport raises while nobody listens
            if not announced:
                tell(f"waiting for {url}: {innermost(problem)}")
                announced = True
            await asyncio.sleep(POLL_S)
        else:
            return


async def _run_pass(client: Client, admin: Client | None, *, participants_field: Json, tell: Tell) -> Json:
    """Append an event with a unique word, then query for it: once without `admin`, else until indexed or held."""
    word = f"smoke{secrets.token_hex(6)}"
    appended = await call(
        client,
        "myria_append_event",
        {
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "channel": PARTICIPANT,
            **participants_field,
            "type": "message",
            "payload": {"text": f"The smoke test passed by: {word}.", "speaker": PARTICIPANT},
            "source_event_key": word,
        },
    )
    event_id: str = appended["event_id"]
    tell(f"appended {event_id}")
    previous_build_id = await _ask_for_build(admin, tell) if admin is not None else None
    held = False
    while True:
        answer = await call(client, "myria_query_references", {**participants_field, "query": word, "max_nodes": 20})
        reference = next((ref for ref in _references(answer["root"]) if ref["event_id"] == event_id), None)
        if reference is None:
            raise InternalError(f"{event_id} was appended, but a query for {word} does not find it")
        if reference["indexed"] or held or admin is None:
            break
        held = await _is_held(admin, previous_build_id)
        await asyncio.sleep(POLL_S)
    tell(f"found it in {answer['snapshot_id']}" if reference["indexed"] else "found it in the fresh tail")
    snapshot_id = answer["snapshot_id"] if reference["indexed"] else None
    return {"event_id": event_id, "snapshot_id": snapshot_id, "held": held}


async def _find_on_page(url: str, key: str | None, event_id: str) -> None:
    """Open the event's page in the console, as a browser does: signed in where a key is given, and out afterwards.

    Raises:
        InternalError: there is no such page, or the key does not sign in.
    """
    place = urlsplit(url)
    origin = f"{place.scheme}://{place.netloc}"
    async with httpx.AsyncClient(base_url=origin, headers={"origin": origin}) as browser:
        if key:
            answer = await browser.post(f"{CONSOLE_PREFIX}/sign-in", data={"key": key})
            # Set by hand: where clients outside come over TLS, the cookie is not sent without.
            browser.headers["cookie"] = answer.headers.get("set-cookie", "").partition(";")[0]
        page = await browser.get(f"{CONSOLE_PREFIX}/events/{event_id}", params={} if key else {"as": PARTICIPANT})
        if page.status_code != httpx.codes.OK or event_id not in page.text:
            raise InternalError(f"{origin}{CONSOLE_PREFIX} does not show {event_id}: it answers {page.status_code}")
        if key:
            token = page.text.partition('name="form_token" value="')[2].partition('"')[0]
            await browser.post(f"{CONSOLE_PREFIX}/sign-out", data={"form_token": token})


async def _ask_for_build(admin: Client, tell: Tell) -> str | None:
    """Ask for a build; return the id of the build that had ended last until then, None if there was none."""
    last = (await call(admin, "myria_get_snapshot_status", {}))["last_build"]
    request = await call(admin, "myria_trigger_build", {"reason": "smoke test"})
    tell(f"asked for a build ({request['request_id']})")
    return last["build_id"] if last and last["finished_at"] else None


async def _is_held(admin: Client, previous_build_id: str | None) -> bool:
    """Tell whether the build has ended with a snapshot that is held back.

    Raises:
        BuildInvalid: it ended without any.
    """
    last = (await call(admin, "myria_get_snapshot_status", {}))["last_build"]
    if last is None or last["build_id"] == previous_build_id or not last["finished_at"]:
        return False
    refuse_failed(last)
    return bool(last["status"] == "held")


def _references(node: Json) -> Iterator[Json]:
    """Yield every node of an answer's tree that refers to an event."""
    if "event_id" in node:
        yield node
    for child in node.get("children") or ():
        yield from _references(child)
