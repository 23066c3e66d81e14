"""Random operations at turns, REST and erasure, with what the rule says of each: see `tests.isolation.world`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx

from myria_server.paths import PATH_OF
from tests.isolation.world import (
    WORDS,
    Asking,
    Credential,
    Operation,
    Told,
    World,
    absent_like,
    alike,
    content,
)

Json = dict[str, Any]

ORG = "org"
"""With whom everything that is kept over REST is shared."""

TURNS = PATH_OF["turns"]
ADMIN = PATH_OF["admin"]
_SESSIONS = ("s1", "s2")

MOST_OF_PEOPLE = 40
"""Most that an erasure by people or context takes of the world: others want something to see, too."""


async def _posted(world: World, credential: Credential, path: str, body: Json) -> httpx.Response:
    sent = {"authorization": f"Bearer {credential.text}"}
    return await world.served.client.post(path, json=body, headers=sent)


def _tell(world: World, credential: Credential, number: int, name: str, who: frozenset[str]) -> Told:
    told = Told(number=number, event_id=name, tenant=credential.tenant, participants=who, internal=False)
    world.numbered[number] = told
    return told


async def take_a_turn(world: World, credential: Credential, form: str) -> None:
    """Keep a turn, or ask what goes before one, as a user that one may speak for, or not: by MCP or by HTTP."""
    rng = world.rng
    user = rng.choice((None, "user:1", "user:2", "carl"))
    session: Json = {"project": "p", "session_id": rng.choice(_SESSIONS)}
    session |= {} if user is None else {"user_id": user}
    is_kept = rng.random() < 0.5
    number = next(world.numbers)
    word = f"zq{number:05d}qz"
    said = f"{rng.choice(('My name is', 'I prefer', 'Look at'))} {word}. {rng.choice(WORDS)}"
    arguments = session | {"turn_id": word}
    if is_kept:
        arguments |= {
            "input_items": [_item("user", said)],
            "output_items": [_item("assistant", f"Thank you, {word}")],
        }
    else:
        told = rng.choice(list(world.numbered.values())) if world.numbered else None
        arguments |= {"current_input": [_item("user", "Who? " + ("" if told is None else told.word))]}
    if rng.random() < 0.5:
        path = f"/v1/turns:{'after' if is_kept else 'before'}"
        response = await _posted(world, credential, path, arguments)
        is_refused = response.status_code >= 400
    else:
        tool = "memory_after_turn" if is_kept else "memory_before_turn"
        response = await world.send(credential, tool, arguments, form=form, path=TURNS)
        is_refused = response.status_code == 403 or "code" in content(response)
    if "turns" not in credential.faces:
        assert response.status_code == 403, response.text
        world.scan(response, credential, None, said=json.dumps(arguments))
        world.done["faces refused"] += 1
        return
    is_pattern = user is not None and credential.patterns and user.startswith("user:")
    if credential.patterns != is_pattern or (user is not None and not is_pattern):
        assert is_refused, response.text
        world.scan(response, credential, None, said=json.dumps(arguments))
        world.done["turns refused"] += 1
        return
    assert not is_refused, response.text
    who = credential.own | ({user} if user is not None else set())
    if is_kept:
        _tell(world, credential, number, f"turn {word}", who)
        world.scan(response, credential, Asking.as_all(who), said=json.dumps(arguments))
        world.done["turns kept"] += 1
        world.others[credential.tenant] += 1
    else:
        words = world.scan(response, credential, Asking.as_all(who), said=json.dumps(arguments))
        world.done["words before turns"] += words


def _item(role: str, text: str) -> Json:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def _sharing(credential: Credential) -> Asking | None:
    """Return as whom a key asks over REST: what it keeps itself, and what is shared; None where it is refused."""
    if credential.patterns:
        return None
    return Asking(frozenset({(credential.own, False), (frozenset({ORG}), False)}))


async def use_rest(world: World, credential: Credential, _form: str) -> None:
    """Keep, list, search, read and withdraw memories of an organisation: what is another's is as absent as nothing."""
    rng = world.rng
    what = rng.choice((_keep_a_memory, _keep_a_memory, _list_memories, _list_memories, _one_memory))
    await what(world, credential)


def _refused_face(world: World, credential: Credential, response: httpx.Response, said: str) -> bool:
    """Check the answer where a key may not use this face, or speaks for many; return whether that is so."""
    if "rest" in credential.faces and not credential.patterns:
        return False
    assert response.status_code == 403, response.text
    world.scan(response, credential, None, said=said)
    world.done["faces refused"] += 1
    return True


async def _keep_a_memory(world: World, credential: Credential) -> None:
    rng = world.rng
    number = next(world.numbers)
    word = f"zq{number:05d}qz"
    body = {"agent_id": "crawler", "content": f"{word} {rng.choice(WORDS)}", "tags": [word], "memory_type": "entity"}
    response = await _posted(world, credential, "/api/v1/memories", body)
    if _refused_face(world, credential, response, json.dumps(body)):
        return
    assert response.status_code == 201, response.text
    note_id = response.json()["id"]
    told = _tell(world, credential, number, note_id, credential.own | {ORG})
    world.memories[note_id] = told
    world.scan(response, credential, _sharing(credential), said=json.dumps(body))
    world.done["memories kept"] += 1
    world.others[credential.tenant] += 1


async def _list_memories(world: World, credential: Credential) -> None:
    rng = world.rng
    sent = {"authorization": f"Bearer {credential.text}"}
    told = rng.choice(list(world.numbered.values())) if world.numbered else None
    word = "zq" if told is None else told.word
    body: Json = {}
    if rng.random() < 0.5:
        path = rng.choice(("/memories", "/memories?agent_id=crawler", f"/memories?tags={word}", "/agents", "/sessions"))
        response = await world.served.client.get(f"/api/v1{path}", headers=sent)
    else:
        path = "/search"
        body = rng.choice(({"content_contains": word}, {"query": f"{rng.choice(WORDS)} {word}"}, {"limit": 200}))
        response = await _posted(world, credential, "/api/v1/search", body)
    said = path + json.dumps(body)
    if _refused_face(world, credential, response, said):
        return
    assert response.status_code == 200, response.text
    world.done["words of memories"] += world.scan(response, credential, _sharing(credential), said=said)
    others = [
        memory.word
        for memory in world.memories.values()
        if memory.tenant == credential.tenant and not credential.own <= memory.participants
    ]
    world.done["words another key kept"] += any(other in response.text and other not in said for other in others)


async def _one_memory(world: World, credential: Credential) -> None:
    """Read or withdraw one by its id, also one of another tenant, or a note that an agent kept."""
    rng = world.rng
    names = [*world.memories, *world.notes]
    if not names:
        return
    name = rng.choice(names)
    told = world.memories.get(name) or world.notes[name]
    method = rng.choice(("GET", "GET", "DELETE"))
    asking = _sharing(credential)
    may = asking is not None and world.may_see(told, credential, asking)
    if method == "DELETE" and may:
        method = "GET"  # what one may withdraw, others look for
    sent = {"authorization": f"Bearer {credential.text}"}

    async def asked(note_id: str) -> httpx.Response:
        return await world.served.client.request(method, f"/api/v1/memories/{note_id}", headers=sent)

    response = await asked(name)
    if _refused_face(world, credential, response, name):
        return
    world.scan(response, credential, asking, said=name)
    if may:
        assert response.status_code in (200, 404), response.text  # forgotten, or of a session
        return
    assert response.status_code == 404, response.text
    absent = absent_like(name, rng)
    other = await asked(absent)
    assert (other.status_code, other.text.replace(absent, "ID")) == (404, response.text.replace(name, "ID"))
    world.done["memories refused"] += 1


async def erase_something(world: World, credential: Credential, form: str) -> None:
    """Look at what an erasure would take, or begin one: only who may erase can, and within the tenant alone."""
    rng = world.rng
    if not world.events:
        return
    if rng.random() < 0.5:
        credential = rng.choice([other for other in world.credentials if "erase" in other.roles])
    tenant = credential.tenant if rng.random() < 0.6 else rng.choice(world.credentials).tenant
    chosen, taken = _selection(world, tenant)
    if not chosen:
        return
    is_tried = rng.random() < 0.2 and "erase" not in credential.roles
    tool = "erase" if is_tried else "preview_erasure"
    arguments = chosen | ({"reason": "asked for", "expected_events": 1} if is_tried else {"limit": 1_000})
    response = await world.send(credential, tool, arguments, form=form, path=ADMIN)
    said = json.dumps(arguments)
    if "admin" not in credential.faces:
        assert response.status_code == 403, response.text
        world.scan(response, credential, None, said=said)
        world.done["faces refused"] += 1
        return
    answer = content(response)
    if "erase" not in credential.roles:
        assert "error" in answer, answer
        world.scan(response, credential, None, said=said)
        world.done["erasures refused"] += 1
        return
    everything = Asking.as_all(())
    world.scan(response, credential, everything, said=said, internal=True)
    if tenant != credential.tenant and ("event_ids" in chosen or "note_ids" in chosen):
        (field_name,) = chosen
        absent = arguments | {field_name: [absent_like(name, rng) for name in chosen[field_name]]}
        await alike(world, credential, form, (tool, arguments, ADMIN), (tool, absent, ADMIN))
        world.done["erasures refused"] += 1
    elif tenant == credential.tenant:
        world.done["erasures previewed"] += 1
        if taken and rng.random() < 0.6:
            await _begin_erasure(world, credential, form, (chosen, taken, answer["counts"]["events"]))


def _selection(world: World, tenant: str) -> tuple[Json, list[Told]]:
    """Choose something of a tenant to erase; return the selection, and what must be gone then: at least these."""
    rng = world.rng
    of_tenant = [told for told in world.numbered.values() if told.tenant == tenant and told.number not in world.gone]
    events = [told for told in of_tenant if told.event_id in world.events]
    kept = [told for told in of_tenant if told.event_id in world.notes or told.event_id in world.memories]
    notes = [
        told for told in kept if told.context != told.word
    ]  # a note's erasure leaves its session, and that one's name
    contexts = sorted({told.context for told in of_tenant if told.context is not None})
    match rng.choice(("event_ids", "event_ids", "note_ids", "note_ids", "query", "query", "people", "context")):
        case "event_ids" if events:
            some = rng.sample(events, min(len(events), rng.choice((1, 1, 3))))
            return {"event_ids": [told.event_id for told in some]}, some
        case "note_ids" if notes:
            some = rng.sample(notes, min(len(notes), rng.choice((1, 1, 3))))
            return {"note_ids": [told.event_id for told in some]}, some
        case "query" if of_tenant:
            one = rng.choice(of_tenant)
            return {"query": one.word}, [one]
        case "people" if of_tenant:
            people = rng.choice(of_tenant).participants
            alone = [told for told in of_tenant if told.participants <= people]
            return {"of_participants": sorted(people)}, alone if len(alone) <= MOST_OF_PEOPLE else []
        case "context" if contexts:
            context = rng.choice(contexts)
            within = [told for told in of_tenant if told.context == context]
            return {"context_ids": [context]}, within if len(within) <= MOST_OF_PEOPLE else []
    return {}, []


async def _begin_erasure(
    world: World, credential: Credential, form: str, previewed: tuple[Json, list[Told], int]
) -> None:
    """Erase what a preview showed; with another number than it gave, nothing happens.

    Args:
        previewed: the selection, what it takes at least, and of how many events the preview spoke.
    """
    chosen, taken, count = previewed
    assert count == len(taken) if "event_ids" in chosen else count >= len(taken), (chosen, count)
    is_changed = world.rng.random() < 0.15
    arguments = chosen | {"reason": "asked for", "expected_events": count + is_changed}
    response = await world.send(credential, "erase", arguments, form=form, path=ADMIN)
    answer = content(response)
    if is_changed:
        assert answer["error"]["code"] == "erasure_changed", answer
        return
    assert (answer["events"], answer["withdrawn"]) == (count, count), answer
    world.gone |= {told.number for told in taken}
    await world.forget()
    world.scan(response, credential, None, said=json.dumps(arguments))
    world.done["erasures begun"] += 1
    again = arguments | {"expected_events": 1}
    repeated = content(await world.send(credential, "erase", again, form=form, path=ADMIN))
    assert repeated["error"]["code"] == "event_not_found", repeated


async def look_at_erasures(world: World, credential: Credential, form: str) -> None:
    """Ask how far erasures are: only who may erase is told, of its tenant's, and never a word that was erased."""
    response = await world.send(credential, "get_erasures", {"limit": 200}, form=form, path=ADMIN)
    world.scan(response, credential, None)
    if "admin" in credential.faces and "erase" in credential.roles:
        states = content(response)["erasures"]
        assert all(erasure["withdrawn"] == erasure["events"] for erasure in states), states
        world.done["erasures carried out"] += any(erasure["state"] == "done" for erasure in states)
    else:
        assert response.status_code == 403 or "error" in content(response), response.text


REACHING: Mapping[str, Operation] = {
    "turns kept": take_a_turn,
    "words before turns": take_a_turn,
    "turns refused": take_a_turn,
    "memories kept": use_rest,
    "words of memories": use_rest,
    "words another key kept": use_rest,
    "memories refused": use_rest,
    "faces refused": use_rest,
    "erasures refused": erase_something,
    "erasures previewed": erase_something,
    "erasures begun": erase_something,
    "erasures carried out": look_at_erasures,
}
"""What these operations must reach, and which of them may."""
