import assert from "node:assert/strict";
import { test } from "node:test";
import { Conflict, Duplicate, Invalid, NotAllowed, NotFound } from "@myria/client";
import { all, clientOf, unique } from "./server.mjs";

test("what is remembered is recalled, and what is forgotten is not", async () => {
  const client = clientOf();
  const kept = await client.remember("Ada takes her tea with lemon.", { tags: ["tea"], importance: 0.8 });
  assert.equal(kept.agent_id, client.agent);
  const mine = { agent_id: client.agent };
  const other = await client.remember("The office moves to Porto.");
  assert.deepEqual((await client.recall("What does Ada drink her tea with?", mine))[0], kept);
  assert.deepEqual(await client.recall("tea", { ...mine, tags: ["tea"] }), [kept]);
  assert.deepEqual(await client.recall(undefined, { ...mine, limit: 1 }), [other]);
  assert.deepEqual((await client.memories.search({ ...mine, content_contains: "lemon." })).results, [kept]);
  await client.forget(kept.id);
  assert.deepEqual(await client.recall("tea", { ...mine, tags: ["tea"] }), []);
  await assert.rejects(client.memories.get(kept.id), NotFound);
  await assert.rejects(client.forget(kept.id), NotFound);
});

test("remembering the same again returns what was kept; keeping it again is refused", async () => {
  const client = clientOf();
  const kept = await client.remember("The office moves to Porto.");
  assert.deepEqual(await client.remember("The office moves to Porto."), kept);
  await client.remember("Ben says: The office moves to Porto.");
  assert.deepEqual(await client.remember("The office moves to Porto."), kept);
  const long = await client.remember("Porto. ".repeat(2_000));
  assert.deepEqual(await client.remember("Porto. ".repeat(2_000)), long);
  const same = { agent_id: client.agent, content: "The office moves to Porto." };
  await assert.rejects(client.memories.keep(same), (error) => {
    assert.ok(error instanceof Duplicate && error instanceof Conflict);
    assert.deepEqual([error.code, error.status, error.name], ["duplicate_memory", 409, "Duplicate"]);
    assert.equal(error.memoryId, kept.id);
    return true;
  });
});

test("a memory is changed in its newest version alone", async () => {
  const client = clientOf();
  const kept = await client.remember("It ships in May.", { metadata: { by: "Ada" } });
  const changed = await client.memories.amend(kept.id, { content: "It ships in June.", version: 1 });
  assert.deepEqual([changed.id, changed.time, changed.version], [kept.id, kept.time, 2]);
  assert.deepEqual((await client.memories.get(kept.id)).content, "It ships in June.");
  await assert.rejects(client.memories.amend(kept.id, { content: "It ships in July.", version: 1 }), Conflict);
});

test("several are kept at once, and say what became of each", async () => {
  const client = clientOf();
  const memory = (content) => ({ agent_id: client.agent, content });
  await client.memories.keep(memory("one"));
  const kept = await client.memories.keepMany([memory("one"), memory("two"), { agent_id: "1", content: "x" }], {
    atomic: false,
  });
  assert.deepEqual(kept.results.map(({ status }) => status), ["duplicate", "stored", "refused"]);
  await assert.rejects(client.memories.keepMany([memory("three"), memory("one")], { atomic: true }), Duplicate);
  assert.deepEqual((await client.memories.search({ agent_id: client.agent, content_contains: "three" })).results, []);
});

test("a stream is kept batch by batch, and again nothing comes twice", async () => {
  const sizes = [];
  const send = (address, init) => (sizes.push(JSON.parse(init.body).memories.length), fetch(address, init));
  const client = clientOf({ fetch: send });
  const name = unique("stream");
  async function* lines() {
    for (const content of ["one", "two", "", "four", "one"]) {
      yield { agent_id: client.agent, content };
    }
  }
  const first = await all(client.memories.keepEach(lines(), { name, batch: 2 }));
  assert.deepEqual(first.map(({ index }) => index), [0, 1, 2, 3, 4]);
  assert.deepEqual(first.map(({ status }) => status), ["stored", "stored", "refused", "stored", "duplicate"]);
  assert.match(first[2].error, /content/);
  assert.deepEqual(sizes, [2, 2, 1]);
  assert.deepEqual(await all(client.memories.keepEach(lines(), { name, batch: 2 })), first);
  sizes.length = 0;
  assert.deepEqual(await all(client.memories.keepEach(lines(), { name, batch: 2, done: 4 })), first.slice(4));
  assert.deepEqual(sizes, [1]);
});

test("pages follow each other until all was seen, each when it is needed", async () => {
  const asked = [];
  const client = clientOf({ fetch: (address, init) => (asked.push(address), fetch(address, init)) });
  const contents = Array.from({ length: 7 }, (_, number) => `Number ${number}`);
  for (const content of contents) {
    await client.remember(content, { event_type: "counted" });
  }
  const filters = { agent_id: client.agent, limit: 3 };
  asked.length = 0;
  const listed = await all(client.memories.each(filters));
  assert.deepEqual(listed.map(({ content }) => content), [...contents].reverse());
  assert.equal(asked.length, 3);
  assert.deepEqual(await all(client.memories.searchEach({ ...filters, content_contains: "Number" })), listed);
  asked.length = 0;
  for await (const first of client.memories.each(filters)) {
    assert.equal(first.content, "Number 6");
    break;
  }
  assert.equal(asked.length, 1);
  assert.deepEqual((await client.memories.page({ ...filters, order: "asc" })).memories.map(({ id }) => id), [
    ...listed.slice(-3).map(({ id }) => id).reverse(),
  ]);
});

test("agents and sessions are kept in their registries", async () => {
  const client = clientOf();
  const name = unique("crawler");
  const agent = await client.agents.register({ name, description: "Crawls", config: { depth: 2 } });
  await assert.rejects(client.agents.register({ name }), Conflict);
  assert.deepEqual(await client.agents.get(name), agent);
  assert.ok((await all(client.agents.each())).some(({ id }) => id === agent.id));
  const session = await client.sessions.open(agent.id, { metadata: { run: 7 } });
  assert.deepEqual((await all(client.sessions.each(agent.id))).map(({ id }) => id), [session.id]);
  await client.remember("Skip the archive.", { agent_id: name, session_id: session.id, memory_type: "decision" });
  const [memory] = await all(client.sessions.memories(session.id));
  assert.deepEqual(await all(client.agents.memories(name, { memory_type: "decision" })), [memory]);
  const context = await client.sessions.context(session.id, { max_tokens: 500 });
  assert.match(context.context, /### Decisions Made \(1\)[^]*Skip the archive\./);
  const { memory_count, session_count, active_sessions } = await client.agents.statistics(name);
  assert.deepEqual([memory_count, session_count, active_sessions], [1, 1, 1]);
  assert.deepEqual((await client.sessions.change(session.id, { metadata: { run: 8 } })).metadata, { run: 8 });
  assert.equal((await client.sessions.close(session.id)).status, "closed");
  assert.equal((await client.sessions.get(session.id)).status, "closed");
  await client.agents.delete(agent.id);
  await assert.rejects(client.agents.get(agent.id), NotFound);
});

test("a refusal says what is wrong, and where", async () => {
  const client = clientOf();
  await assert.rejects(client.remember("x", { importance: 2 }), (error) => {
    assert.ok(error instanceof Invalid);
    assert.deepEqual([error.status, error.field], [400, "importance"]);
    assert.match(error.message, /a number from 0 to 1/);
    return true;
  });
  await assert.rejects(clientOf({ key: "myr_wrong" }).recall("x"), NotAllowed);
  await assert.rejects(client.remember("half a pair: \ud83d"), Invalid);
});

test("an id that an address cannot hold reaches nothing else", async () => {
  const client = clientOf();
  for (const id of ["", ".", "..", "a b", "ä", undefined]) {
    await assert.rejects(client.forget(id), Invalid);
    await assert.rejects(all(client.agents.memories(id)), Invalid);
  }
  await assert.rejects(client.memories.get("../agents?x#y"), NotFound);
});

test("health and readiness need no key", async () => {
  const client = clientOf({ key: undefined });
  assert.equal((await client.health()).status, "ok");
  assert.equal((await client.ready()).status, "ready");
});
