/** The client: remember, recall and forget, and everything that `/api/v1` and the turns offer. */

import { Duplicate } from "./errors.js";
import { Agents, type KeyedOptions, Memories, Sessions } from "./memories.js";
import { type CallOptions, Transport, type TransportOptions } from "./transport.js";
import { Turns } from "./turns.js";
import type { Health, Memory, NewMemory, SearchFilters } from "./types.js";

const MOST_RECALLED = 10;

/** Which memories are recalled; everything that is given must hold. */
export type RecallFilters = Omit<SearchFilters, "query" | "order" | "offset" | "cursor">;

export interface ClientOptions extends TransportOptions {
  /** Who keeps what `remember` is given: `agent` where nothing is said. */
  agent?: string;
}

/**
 * A client of one server. It holds no connection of its own and needs no closing.
 *
 *     const client = new Client({ url: "http://127.0.0.1:8321", key: "myr_..." });
 *     const kept = await client.remember("Ada takes her tea with lemon.");
 */
export class Client {
  /** Who keeps what `remember` is given. */
  readonly agent: string;
  readonly memories: Memories;
  readonly agents: Agents;
  readonly sessions: Sessions;
  readonly turns: Turns;
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport(options);
    this.agent = options.agent ?? "agent";
    this.memories = new Memories(this.#transport);
    this.agents = new Agents(this.#transport);
    this.sessions = new Sessions(this.#transport);
    this.turns = new Turns(this.#transport);
  }

  /** Keeps a memory, and returns it; where the same was kept a while ago, returns that one. */
  async remember(
    content: string,
    fields: Partial<Omit<NewMemory, "content">> = {},
    options: KeyedOptions = {},
  ): Promise<Memory> {
    const memory = { agent_id: this.agent, ...fields, content };
    try {
      return await this.memories.keep(memory, options);
    } catch (error) {
      if (!(error instanceof Duplicate) || error.memoryId === undefined) {
        throw error;
      }
      const standing = await this.memories.get(error.memoryId, options);
      if (standing.content !== content) {
        throw error; // a key of your own, or only the beginning, is the same
      }
      return standing;
    }
  }

  /**
   * Returns what is remembered about something, in words of your own, the best first; 10 where `limit` says nothing.
   *
   * Without `about` the newest are returned. `memories.searchEach` yields all that match filters, page after page.
   */
  async recall(about?: string, filters: RecallFilters = {}, options: CallOptions = {}): Promise<Memory[]> {
    return (await this.memories.search({ limit: MOST_RECALLED, ...filters, query: about }, options)).results;
  }

  /**
   * Takes a memory out of every answer.
   *
   * @throws NotFound: it is not there, or not for this key.
   */
  forget(id: string, options: CallOptions = {}): Promise<void> {
    return this.memories.withdraw(id, options);
  }

  /** Returns how the server is; no key is needed. */
  health(options: CallOptions = {}): Promise<Health> {
    return this.#transport.send({ method: "GET", path: "/api/v1/health", also: [503] }, options);
  }

  /** Returns whether the server takes requests; no key is needed. */
  ready(options: CallOptions = {}): Promise<Health> {
    return this.#transport.send({ method: "GET", path: "/api/v1/ready", also: [503] }, options);
  }
}
