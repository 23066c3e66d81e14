/**
 * From the message lists of model providers to items of a turn, and back. Pure.
 *
 * A `Style` says how one provider writes messages. What the caller has handed over comes back as the very objects that
 * were given; only what memory adds is written anew, as texts: calls of tools that are recalled are told, not replayed.
 */

/** Any object of JSON. */
export type Json = Record<string, unknown>;

/** A message of a provider, as its SDK or its API writes it. */
export interface Message {
  role?: string;
  content?: unknown;
}

/** A message that memory adds to a prompt. */
export type AddedMessage =
  | { role: "system"; content: string }
  | { role: "user"; content: string }
  | { role: "assistant"; content: string };

/** The same in Anthropic's style, whose instructions stand beside the messages. */
export type AddedClaudeMessage = Exclude<AddedMessage, { role: "system" }>;

export interface Style {
  /** Makes the items of one message. */
  itemsOf(message: Message): Json[];
  /** Tells the host's own instructions: they go to the model as they are, and never to the memory. */
  isInstruction(message: Message): boolean;
  /** Writes an item that memory adds; undefined for one that the style has no message for. */
  messageOf(item: Json): AddedMessage | undefined;
  /** Whether the first message must be the user's. */
  beginsWithUser: boolean;
}

interface Said<M> {
  message: M;
  items: Json[];
}

/** A message list taken apart: instructions, earlier messages, and those of this turn, each with its items. */
export interface Split<M> {
  instructions: M[];
  history: Said<M>[];
  current: Said<M>[];
}

const LONGEST_ADDRESS = 2_000;

/** Takes a message list apart: this turn is what comes after the last message of the assistant. */
export function split<M extends Message>(style: Style, messages: readonly M[]): Split<M> {
  const instructions = messages.filter((message) => style.isInstruction(message));
  const said = messages
    .filter((message) => !style.isInstruction(message))
    .map((message) => ({ message, items: style.itemsOf(message) }));
  const last = said.map(({ message }) => message.role).lastIndexOf("assistant");
  return { instructions, history: said.slice(0, last + 1), current: said.slice(last + 1) };
}

/** Returns the messages of a prompt: what memory adds in its place, and the caller's own messages as they were. */
export function assembled<M extends Message>(
  style: Style,
  taken: Split<M>,
  prepared: readonly Json[],
): (M | AddedMessage)[] {
  const own = [...taken.history, ...taken.current];
  const places = new Map<string, number[]>();
  own.forEach(({ items }, place) => {
    for (const item of items) {
      const name = nameOf(item);
      places.set(name, [...(places.get(name) ?? []), place]);
    }
  });
  const added: AddedMessage[] = [];
  const kept = new Set(own.keys());
  for (let place = 0; place < taken.history.length; place += 1) {
    kept.delete(place); // what is said now is always whole
  }
  for (const item of prepared) {
    const mine = places.get(nameOf(item))?.shift();
    if (mine !== undefined) {
      kept.add(mine);
      continue;
    }
    const message = style.messageOf(item);
    if (message !== undefined) {
      added.push(message);
    }
  }
  // What memory adds comes before all of the caller's own: an answer of a tool must follow its call at once.
  const messages: (M | AddedMessage)[] = [
    ...added,
    ...own.filter((_, place) => kept.has(place)).map(({ message }) => message),
  ];
  const first = style.beginsWithUser ? messages.findIndex((message) => message.role === "user") : 0;
  return first < 0 ? [] : messages.slice(first);
}

/** Returns the items of what came out of a model: messages, or texts. */
export function replies(style: Style, given: readonly (Message | string)[]): Json[] {
  return given.flatMap((reply) =>
    style.itemsOf(typeof reply === "string" ? { role: "assistant", content: reply } : reply),
  );
}

/** Returns what memory adds to the system prompt: its policy. */
export function instructionsOf(prepared: readonly Json[]): string {
  return prepared
    .filter((item) => item["role"] === "developer")
    .map(textOf)
    .join("\n\n");
}

function textOf(item: Json): string {
  const texts = list(item["content"]).map((part) => part["text"]);
  return [...texts, item["output"]].filter((text) => typeof text === "string" && text !== "").join("\n");
}

/** Returns a text that two items have in common only where they are equal. */
function nameOf(item: unknown): string {
  return JSON.stringify(item, (_, value: unknown) =>
    isObject(value) ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) : value,
  );
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function object(value: unknown): Json {
  return isObject(value) ? value : {};
}

function list(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(object) : [];
}

function string(value: unknown): string {
  return value === undefined || value === null ? "" : String(value);
}

function said(role: string, parts: Json[]): Json[] {
  return parts.length ? [{ type: "message", role, content: parts }] : [];
}

function text(role: string, words: unknown): Json[] {
  const type = role === "assistant" ? "output_text" : "input_text";
  return typeof words === "string" && words.trim() ? [{ type, text: words }] : [];
}

/** Returns the part of an image; one whose bytes are in its address is only noted. */
function image(address: unknown): Json {
  const short = typeof address === "string" && address.length <= LONGEST_ADDRESS && !address.startsWith("data:");
  return short ? { type: "input_image", image_url: address } : { type: "input_image" };
}

function call(name: unknown, id: unknown, args: string): Json {
  return {
    type: "function_call",
    role: "assistant",
    content: text("assistant", args || "{}"),
    call_id: string(id),
    metadata: { name: string(name).slice(0, 200) },
  };
}

function output(id: unknown, words: string): Json {
  return { type: "function_call_output", call_id: string(id), output: words || " " };
}

function words(content: unknown): string {
  if (Array.isArray(content)) {
    return list(content)
      .map((part) => string(part["text"]))
      .join("\n");
  }
  return typeof content === "string" ? content : "";
}

/** Returns the role and the words in which an item is told that memory adds. */
function told(item: Json): [string, string] {
  const content = textOf(item);
  if (item["type"] === "function_call") {
    return ["assistant", `[called ${string(object(item["metadata"])["name"]) || "a tool"}: ${content}]`];
  }
  if (item["type"] === "function_call_output") {
    return ["user", `[the tool answered: ${content}]`];
  }
  return [string(item["role"]) || "user", content];
}

function partsOf(content: unknown): Json[] {
  return Array.isArray(content) ? list(content) : [{ type: "text", text: content }];
}

/** OpenAI's chat completions. */
export const OPENAI: Style = {
  itemsOf(message) {
    const { role: given, content, ...more } = message as Json;
    const role = string(given) || "user";
    if (role === "tool" || role === "function") {
      return [output(more["tool_call_id"] || more["name"], words(content))];
    }
    const parts = partsOf(content).flatMap((part) =>
      part["type"] === "image_url"
        ? [image(object(part["image_url"])["url"])]
        : text(role, part["text"] || part["refusal"]),
    );
    const calls = list(more["tool_calls"]).map((made) => {
      const called = object(made["function"]);
      return call(called["name"], made["id"], string(called["arguments"]));
    });
    return [...said(role, parts), ...calls];
  },
  isInstruction: (message) => message.role === "system" || message.role === "developer",
  messageOf(item) {
    const [role, content] = told(item);
    return content ? ({ role: role === "developer" ? "system" : role, content } as AddedMessage) : undefined;
  },
  beginsWithUser: false,
};

/** Anthropic's messages. */
export const ANTHROPIC: Style = {
  itemsOf(message) {
    const role = string(message.role) || "user";
    const items: Json[] = [];
    let parts: Json[] = [];
    const told = (item: Json): void => {
      items.push(...said(role, parts), item);
      parts = [];
    };
    for (const block of partsOf(message.content)) {
      if (block["type"] === "tool_use" || block["type"] === "server_tool_use") {
        told(call(block["name"], block["id"], JSON.stringify(block["input"] ?? {})));
      } else if (block["type"] === "tool_result") {
        told(output(block["tool_use_id"], words(block["content"])));
      } else if (block["type"] === "image") {
        parts.push(image(object(block["source"])["url"]));
      } else {
        parts.push(...text(role, block["text"]));
      }
    }
    return [...items, ...said(role, parts)];
  },
  isInstruction: () => false,
  messageOf(item) {
    const [role, content] = told(item);
    if (!content || role === "developer" || role === "system") {
      return undefined; // its place is the system prompt, beside the messages
    }
    return { role: role === "assistant" ? "assistant" : "user", content };
  },
  beginsWithUser: true,
};
