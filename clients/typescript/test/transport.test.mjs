import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { Busy, Duplicate, MyriaClientError, Refused, Unreachable, Unreadable } from "@myria/client";
import { all, answering, clientOf, losing, unique } from "./server.mjs";

const QUICK = { firstPauseMs: 1 };
const BUSY = JSON.stringify({ error: "later", code: "database_unavailable", retryable: true });

test("an answer that was lost is asked for again, and nothing is kept twice", async () => {
  const network = losing(2);
  const client = clientOf({ fetch: network.fetch, retry: QUICK });
  const kept = await client.memories.keep({ agent_id: client.agent, content: "Once." });
  assert.equal(network.seen.length, 3);
  assert.equal(new Set(network.seen.map(({ headers }) => headers["idempotency-key"])).size, 1);
  assert.deepEqual(await all(client.memories.each({ agent_id: client.agent })), [kept]);
});

test("a key of one's own makes two calls one", async () => {
  const client = clientOf();
  const options = { idempotencyKey: unique("import-7") };
  const memory = { agent_id: client.agent, content: "From the import." };
  const kept = await client.memories.keep(memory, options);
  assert.deepEqual(await client.memories.keep(memory, options), kept);
  await assert.rejects(client.memories.keep(memory), Duplicate);
});

test("what was withdrawn by a call whose answer was lost counts as withdrawn", async () => {
  const kept = await clientOf().remember(unique("Gone"));
  const network = losing(1);
  await clientOf({ fetch: network.fetch, retry: QUICK }).forget(kept.id);
  assert.equal(network.seen.length, 2);
});

test("a busy server is asked again as often as agreed, and says why it was given up", async () => {
  const later = answering([503, BUSY], [429, BUSY, { "retry-after": "0" }]);
  assert.deepEqual(await clientOf({ fetch: later.fetch, retry: QUICK }).recall("x", { agent_id: unique("nobody") }), []);
  assert.equal(later.seen.length, 3);
  const never = answering([503, BUSY], [503, BUSY], [503, BUSY]);
  await assert.rejects(clientOf({ fetch: never.fetch, retry: { times: 2, ...QUICK } }).recall("x"), (error) => {
    assert.ok(error instanceof Busy && error instanceof Refused && error instanceof MyriaClientError);
    assert.equal(error.code, "database_unavailable");
    return true;
  });
  assert.equal(never.seen.length, 3);
});

test("where the server wants to be left alone for long, the caller learns for how long", async () => {
  const long = answering([429, BUSY, { "retry-after": "3600" }]);
  await assert.rejects(clientOf({ fetch: long.fetch }).recall("x"), (error) => error.retryAfterMs === 3_600_000);
  assert.equal(long.seen.length, 1);
});

test("a refusal is not asked for again", async () => {
  const refused = answering([400, JSON.stringify({ error: "no", code: "invalid_argument", retryable: false })]);
  await assert.rejects(clientOf({ fetch: refused.fetch }).recall("x"), Refused);
  assert.equal(refused.seen.length, 1);
});

test("an answer of another program is none", async () => {
  const page = [200, "<!doctype html>", { "content-type": "text/html" }];
  await assert.rejects(clientOf({ fetch: answering(page).fetch }).recall("x"), Unreadable);
  await assert.rejects(clientOf({ fetch: answering([302, ""]).fetch }).recall("x"), Unreadable);
});

test("a key does not follow a redirection to another server", async () => {
  const asked = [];
  const elsewhere = createServer((request, response) => {
    asked.push(request.url);
    response.writeHead(request.url.startsWith("/elsewhere") ? 200 : 307, { location: "/elsewhere" }).end("{}");
  });
  await new Promise((listening) => elsewhere.listen(0, "127.0.0.1", listening));
  try {
    const client = clientOf({ url: `http://127.0.0.1:${elsewhere.address().port}/` });
    await assert.rejects(client.recall("x"), Unreadable);
    assert.deepEqual(asked, ["/api/v1/search"]);
  } finally {
    elsewhere.close();
    elsewhere.closeAllConnections();
  }
});

test("a server that is away, or silent, is named with the reason", async () => {
  const silent = createServer(() => undefined);
  await new Promise((listening) => silent.listen(0, "127.0.0.1", listening));
  const address = `http://127.0.0.1:${silent.address().port}`;
  const once = { times: 0 };
  try {
    await assert.rejects(clientOf({ url: address, timeoutMs: 50, retry: once }).recall("x"), (error) => {
      assert.ok(error instanceof Unreachable);
      assert.match(error.message, /no answer within 50 ms/);
      return true;
    });
  } finally {
    silent.close();
    silent.closeAllConnections();
  }
  await assert.rejects(clientOf({ url: address, retry: once }).recall("x"), (error) => {
    assert.ok(error instanceof Unreachable);
    assert.match(error.message, /refused/i);
    return true;
  });
});

test("a caller may end a call, and the waiting between two tries, with a reason of its own", async () => {
  const reason = new Error("the user went away");
  await assert.rejects(clientOf().recall("x", {}, { signal: AbortSignal.abort(reason) }), reason);
  const ending = new AbortController();
  const down = answering(...Array(9).fill([503, BUSY]));
  const fetch = (...given) => (ending.abort(reason), down.fetch(...given));
  const slow = { firstPauseMs: 1_000_000 };
  await assert.rejects(clientOf({ fetch, retry: slow }).recall("x", {}, { signal: ending.signal }), reason);
  assert.equal(down.seen.length, 1);
  const waiting = new AbortController();
  const called = clientOf({ fetch: answering([503, BUSY]).fetch, retry: slow }).recall("x", {}, { signal: waiting.signal });
  setTimeout(() => waiting.abort(reason), 10);
  await assert.rejects(called, reason);
});
