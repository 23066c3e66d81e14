import assert from "node:assert/strict";
import { test } from "node:test";
import { Busy, newTurnId } from "@myria/client";
import { answering, clientOf, losing, unique } from "./server.mjs";

const user = (content) => ({ role: "user", content });
const texts = (messages) => messages.map(({ content }) => content);
const wordsOf = (items) => items.map(({ content }) => content[0].text);

test("what was said comes back before the messages, and nothing comes twice", async () => {
  const client = clientOf();
  const id = unique("s");
  const chat = client.turns.session(id, { project: "p" });
  const messages = [{ role: "system", content: "Be brief." }, user("My name is Ada.")];
  const first = await chat.openai(messages);
  assert.deepEqual(first.messages, messages);
  assert.equal(first.messages[1], messages[1]);
  await first.keep("Hello Ada.");
  await first.keep("Hello Ada."); // a repeat is none
  const alone = await chat.openai([user("Who am I?")]);
  assert.deepEqual(alone.messages.map(({ role }) => role), ["system", "user", "user", "assistant", "user"]);
  assert.match(alone.messages[0].content, /untrusted reference/);
  assert.match(alone.messages[1].content, /"value":"ada"/);
  assert.deepEqual(texts(alone.messages.slice(2)), ["My name is Ada.", "Hello Ada.", "Who am I?"]);
  assert.equal(alone.factIds.length, 1);
  assert.ok(alone.tokens > 0);
  const whole = [...messages, { role: "assistant", content: "Hello Ada." }, user("Who am I?")];
  const told = await chat.openai(whole);
  assert.equal(told.messages[0], whole[0]);
  assert.deepEqual(told.messages.slice(-3), whole.slice(1));
  assert.equal(texts(told.messages).filter((text) => text === "My name is Ada.").length, 1);
  await told.keep({ role: "assistant", content: "Ada." });
  const last = await client.turns.session(id, { project: "p" }).before("And now?");
  assert.deepEqual(wordsOf(last.inputItems.slice(2)), ["My name is Ada.", "Hello Ada.", "Who am I?", "Ada.", "And now?"]);
});

const OPENAI = [
  user("What is the weather in Porto?"),
  {
    role: "assistant",
    content: null,
    tool_calls: [{ id: "c1", type: "function", function: { name: "weather", arguments: '{"in":"Porto"}' } }],
  },
  { role: "tool", tool_call_id: "c1", content: "rain" },
];
const ANTHROPIC = [
  user("What is the weather in Porto?"),
  { role: "assistant", content: [{ type: "tool_use", id: "c1", name: "weather", input: { in: "Porto" } }] },
  { role: "user", content: [{ type: "tool_result", tool_use_id: "c1", content: [{ type: "text", text: "rain" }] }] },
];

for (const [style, messages] of Object.entries({ openai: OPENAI, anthropic: ANTHROPIC })) {
  test(`calls of tools in the style ${style} stay whole, and are told in a later prompt`, async () => {
    const chat = clientOf().turns.session(unique(style));
    const first = await chat[style](messages.slice(0, 1));
    await first.keep(messages[1]);
    const second = await chat[style](messages);
    assert.deepEqual(second.messages.slice(-3), messages);
    await second.keep(["It rains."]);
    const later = texts((await chat[style]([user("And tomorrow?")])).messages);
    assert.deepEqual(later.slice(-5), [
      "What is the weather in Porto?",
      '[called weather: {"in":"Porto"}]',
      "[the tool answered: rain]",
      "It rains.",
      "And tomorrow?",
    ]);
  });
}

test("what memory says goes beside Anthropic's messages, of which the first is the user's", async () => {
  const chat = clientOf().turns.session(unique("claude"));
  const first = await chat.anthropic([user("I prefer tea.")], { system: "Be brief." });
  assert.deepEqual([first.system, first.messages], ["Be brief.", [user("I prefer tea.")]]);
  await first.keep({ role: "assistant", content: [{ type: "text", text: "Noted." }], id: "m" });
  const text = await chat.anthropic([user("What do I drink?")], { system: "Be brief." });
  const system = [{ type: "text", text: "Be brief." }];
  const blocks = await chat.anthropic([user("What do I drink?")], { system });
  assert.ok(text.system.startsWith("Be brief.\n\nMemory policy"));
  assert.deepEqual(blocks.system.map(({ type }) => type), ["text", "text"]);
  assert.deepEqual(text.messages.map(({ role }) => role), ["user", "user", "assistant", "user"]);
  assert.match(text.messages[0].content, /<memory_reference>/);
});

test("pictures are told as pictures, and their bytes are not sent", async () => {
  const picture = { type: "image_url", image_url: { url: `data:image/png;base64,${"A".repeat(5000)}` } };
  const network = losing(0);
  const chat = clientOf({ fetch: network.fetch }).turns.session(unique("pictures"));
  await chat.openai([{ role: "user", content: [{ type: "text", text: "Who is it?" }, picture] }]);
  assert.ok(!network.seen[0].body.includes("AAAA"));
  assert.ok(network.seen[0].body.includes("input_image"));
});

test("a turn whose answer was lost is kept once", async () => {
  const network = losing(2);
  const chat = clientOf({ fetch: network.fetch, retry: { firstPauseMs: 1 } }).turns.session(unique("lost"));
  await chat.after(newTurnId(), "I am here.", "Good.");
  assert.equal(network.seen.length, 3);
  const { inputItems } = await chat.before("And?");
  assert.deepEqual(wordsOf(inputItems).slice(-3), ["I am here.", "Good.", "And?"]);
});

test("a turn that does not require memory goes on without it, and says why", async () => {
  const down = answering(...Array(4).fill([503, "away"]));
  const chat = clientOf({ fetch: down.fetch, retry: { times: 1, firstPauseMs: 1 } }).turns.session(unique("down"));
  const messages = [user("Hello")];
  const turn = await chat.openai(messages, { required: false });
  assert.deepEqual(turn.messages, messages);
  assert.ok(turn.error instanceof Busy);
  await turn.keep("Hi");
  assert.ok(turn.error instanceof Busy);
  const strict = answering([503, "away"]);
  const required = clientOf({ fetch: strict.fetch, retry: { times: 0 } }).turns.session("s");
  await assert.rejects(required.openai(messages), Busy);
});
