/**
 * Turns: what goes into a prompt before each call of a model, and keeping what happened after it.
 *
 * `Turns` are the two calls themselves. A `Session` works on the message lists that providers take: it puts what memory
 * knows into them, and keeps the turn when the reply is there.
 */

import { MyriaClientError } from "./errors.js";
import {
  type AddedClaudeMessage,
  type AddedMessage,
  ANTHROPIC,
  assembled,
  instructionsOf,
  type Json,
  type Message,
  OPENAI,
  replies,
  type Split,
  split,
  type Style,
} from "./styles.js";
import { type CallOptions, newKey, type Transport } from "./transport.js";

/** Items of OpenAI's Responses API, one of them, or a text. */
export type Items = readonly object[] | object | string;

/** What the server gave before a turn. */
export interface Prepared {
  /** For the model, in this order: a policy and recalled memory, earlier items, what is said now. */
  inputItems: Json[];
  recallFactIds: string[];
  recallInsightIds: string[];
  /** An estimate of what the items cost. */
  contextTokenCount: number;
}

/** Whose turns they are. */
export interface SessionNames {
  project?: string;
  /** A person whose memory sees the turns too. */
  userId?: string;
}

/** How a prompt is made. */
export interface PromptOptions extends CallOptions {
  /** What the model takes, in tokens; earlier items give way to a summary where they would be too many. */
  maxInputTokens?: number;
}

/** How a turn of a provider's messages begins. */
export interface TurnOptions extends PromptOptions {
  /** false lets the turn go on without memory when the server does not answer; `Turn.error` says why. */
  required?: boolean;
}

interface PreparedBody {
  input_items: Json[];
  recall_fact_ids: string[];
  recall_insight_ids: string[];
  context_token_count: number;
}

/** Sessions of turns. */
export class Turns {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Returns a session: its turns follow each other, and nothing that is said in it is recalled in another. */
  session(sessionId: string, names: SessionNames = {}): Session {
    return new Session(this.#transport, { session_id: sessionId, project: names.project, user_id: names.userId });
  }
}

/** One session of turns; `Turns.session` makes it. */
export class Session {
  readonly #transport: Transport;
  readonly #names: Json;

  constructor(transport: Transport, names: Json) {
    this.#transport = transport;
    this.#names = names;
  }

  /**
   * Returns what goes into the prompt.
   *
   * @param current what is said now.
   * @param options.history the conversation before it; left out, the server's last items stand in.
   */
  async before(current: Items, options: PromptOptions & { history?: readonly object[] } = {}): Promise<Prepared> {
    const items = listed(current);
    const { history = [], maxInputTokens } = options;
    const said = history.length
      ? {
          conversation_items: [...history, ...items],
          current_input_start: history.length,
          current_input_count: items.length,
        }
      : { current_input: items };
    const body = { ...this.#names, ...said, max_input_tok: maxInputTokens };
    const path = "/v1/turns:before";
    const answer = await this.#transport.send<PreparedBody>({ method: "POST", path, body }, options);
    return {
      inputItems: answer.input_items,
      recallFactIds: answer.recall_fact_ids,
      recallInsightIds: answer.recall_insight_ids,
      contextTokenCount: answer.context_token_count,
    };
  }

  /**
   * Keeps a turn, once: a repeat changes nothing.
   *
   * @param turnId who repeats the call repeats the id; `newTurnId()` makes one.
   * @param current what was said, without the context before it.
   * @param output what came out of the model; a text is the assistant's.
   */
  async after(turnId: string, current: Items, output: Items, options: CallOptions = {}): Promise<void> {
    const items = listed(current);
    const said = items.length
      ? { conversation_items: items, current_input_start: 0, current_input_count: items.length }
      : {};
    const outputs = listed(typeof output === "string" ? { role: "assistant", content: output } : output);
    const body = { ...this.#names, turn_id: turnId, ...said, output_items: outputs };
    await this.#transport.send({ method: "POST", path: "/v1/turns:after", body }, options);
  }

  /**
   * Begins a turn with messages as OpenAI's chat completions take them.
   *
   * System messages are passed on, and not kept; what comes after the last message of the assistant is said now.
   */
  openai<M extends Message>(messages: readonly M[], options: TurnOptions = {}): Promise<Turn<M | AddedMessage>> {
    return Turn.begun<M | AddedMessage, undefined>(this, OPENAI, messages, undefined, options);
  }

  /** Begins a turn with messages as Anthropic's API takes them: `turn.system` goes beside `turn.messages`. */
  anthropic<M extends Message, S extends object = { type: "text"; text: string }>(
    messages: readonly M[],
    options: TurnOptions & { system?: string | readonly S[] } = {},
  ): Promise<Turn<M | AddedClaudeMessage, System<S>>> {
    return Turn.begun<M | AddedClaudeMessage, System<S>>(this, ANTHROPIC, messages, options.system, options);
  }
}

/** A system prompt of Anthropic's API: a text, or blocks. */
export type System<S = { type: "text"; text: string }> = string | (S | { type: "text"; text: string })[] | undefined;

/** A turn that has begun; `keep` ends it. */
export class Turn<M = Message, S = undefined> {
  readonly turnId = newTurnId();
  /** For the model. */
  readonly messages: M[];
  /** In Anthropic's style, your system prompt with what memory adds. */
  readonly system: S;
  readonly factIds: string[];
  readonly insightIds: string[];
  /** An estimate of what the prompt costs. */
  readonly tokens: number;
  /** Why memory took no part, where it was not required. */
  error: MyriaClientError | undefined;
  readonly #session: Session;
  readonly #style: Style;
  readonly #current: Json[];
  readonly #required: boolean;

  private constructor(
    session: Session,
    style: Style,
    taken: { messages: M[]; system: S; current: Json[]; prepared: Prepared | undefined },
    error: MyriaClientError | undefined,
    required: boolean,
  ) {
    this.messages = taken.messages;
    this.system = taken.system;
    this.factIds = taken.prepared?.recallFactIds ?? [];
    this.insightIds = taken.prepared?.recallInsightIds ?? [];
    this.tokens = taken.prepared?.contextTokenCount ?? 0;
    this.error = error;
    this.#session = session;
    this.#style = style;
    this.#current = taken.current;
    this.#required = required;
  }

  /** Begins a turn; `Session` has a method for each style. */
  static async begun<M, S>(
    session: Session,
    style: Style,
    given: readonly Message[],
    system: string | readonly unknown[] | undefined,
    options: TurnOptions,
  ): Promise<Turn<M, S>> {
    const required = options.required ?? true;
    const taken = split(style, given);
    const current = taken.current.flatMap(({ items }) => items);
    const history = taken.history.flatMap(({ items }) => items);
    let prepared: Prepared | undefined;
    let error: MyriaClientError | undefined;
    try {
      prepared = await session.before(current, { ...options, history });
    } catch (failure) {
      error = tolerated(failure, required);
    }
    const messages = promptOf(style, given, taken, prepared) as M[];
    const instructions = style === ANTHROPIC && prepared ? instructionsOf(prepared.inputItems) : "";
    const joined = joinedSystem(system, instructions) as S;
    return new Turn<M, S>(session, style, { messages, system: joined, current, prepared }, error, required);
  }

  /**
   * Keeps the turn, once: a repeat changes nothing.
   *
   * @param given what came out of the model: a text or a message of the style (for Anthropic, the response itself), or
   *   several of them.
   */
  async keep(given: Message | string | readonly (Message | string)[], options: CallOptions = {}): Promise<void> {
    const outputs = replies(this.#style, Array.isArray(given) ? given : [given as Message | string]);
    try {
      await this.#session.after(this.turnId, this.#current, outputs, options);
    } catch (failure) {
      this.error = tolerated(failure, this.#required);
    }
  }
}

/** Returns an id for a turn. */
export function newTurnId(): string {
  return newKey("turn");
}

function listed(items: Items): readonly (object | string)[] {
  return Array.isArray(items) ? (items as readonly object[]) : [items];
}

function tolerated(failure: unknown, required: boolean): MyriaClientError {
  if (required || !(failure instanceof MyriaClientError)) {
    throw failure;
  }
  return failure;
}

function promptOf(
  style: Style,
  given: readonly Message[],
  taken: Split<Message>,
  prepared: Prepared | undefined,
): Message[] {
  return prepared ? [...taken.instructions, ...assembled(style, taken, prepared.inputItems)] : [...given];
}

function joinedSystem(system: string | readonly unknown[] | undefined, added: string): unknown {
  if (!added) {
    return system;
  }
  if (system === undefined || typeof system === "string") {
    return system ? `${system}\n\n${added}` : added;
  }
  return [...system, { type: "text", text: added }];
}
