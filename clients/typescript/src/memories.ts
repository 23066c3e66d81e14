/** What a client offers for each kind of thing of `/api/v1`. */

import { Invalid } from "./errors.js";
import { type ImportOptions, imported, type Outcome } from "./importing.js";
import { type CallOptions, newKey, type Transport } from "./transport.js";
import type {
  Agent,
  AgentSession,
  AgentStatistics,
  ContextOptions,
  KeptMemories,
  ListFilters,
  Memory,
  MemoryChanges,
  MemoryPage,
  NewMemory,
  OwnFilters,
  SearchFilters,
  SearchPage,
  SessionContext,
} from "./types.js";

const API = "/api/v1";
/** Memories, agents or sessions of one page at most. */
const MOST_LISTED = 1_000;

/** What calls take that keep something. */
export interface KeyedOptions extends CallOptions {
  /**
   * Your own name for this call: a repeat with it, also by another program, answers the first. Left out, one is made
   * for this call and its retries.
   */
  idempotencyKey?: string;
}

/** Memories of an organisation, at `/api/v1/memories` and `/api/v1/search`. */
export class Memories {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Keeps a memory.
   *
   * @throws Duplicate: the same was kept a while ago.
   */
  keep(memory: NewMemory, options: KeyedOptions = {}): Promise<Memory> {
    return this.#transport.send(keyed("/memories", memory, options), options);
  }

  /**
   * Keeps several memories by one call; the server takes some hundred at once.
   *
   * @param options.atomic true: a duplicate refuses all. false: each by itself. Left out: duplicates are left out, and
   *   anything else that is wrong refuses all.
   */
  keepMany(
    memories: readonly NewMemory[],
    options: KeyedOptions & { atomic?: boolean } = {},
  ): Promise<KeptMemories> {
    return this.#transport.send(keyed("/memories", { memories, atomic: options.atomic }, options), options);
  }

  /**
   * Keeps a stream of any length, and yields what became of each memory, by its place in the stream.
   *
   * One batch is held at a time. Each memory is kept by itself: duplicates and what is refused stop nothing. After an
   * error run it again, under the same name; `done` leaves out those whose outcomes you have.
   */
  keepEach(
    memories: Iterable<NewMemory> | AsyncIterable<NewMemory>,
    options: ImportOptions,
  ): AsyncGenerator<Outcome, void, void> {
    return imported((batch, asked) => this.keepMany(batch, asked), memories, options);
  }

  /**
   * Returns a memory.
   *
   * @throws NotFound: it is not there, or not for this key.
   */
  async get(id: string, options: CallOptions = {}): Promise<Memory> {
    return this.#transport.send({ method: "GET", path: named("memories", id) }, options);
  }

  /**
   * Changes a memory: its id and its time stay.
   *
   * With `version` nothing is changed where there is a newer one.
   *
   * @throws NotFound: it is not there, or not for this key.
   * @throws Conflict: there is a newer version.
   */
  async amend(id: string, changes: MemoryChanges, options: KeyedOptions = {}): Promise<Memory> {
    const path = named("memories", id);
    return this.#transport.send({ method: "PATCH", path, body: changes, idempotencyKey: keyOf(options) }, options);
  }

  /**
   * Takes a memory out of every answer.
   *
   * @throws NotFound: it is not there, or not for this key.
   */
  async withdraw(id: string, options: KeyedOptions = {}): Promise<void> {
    await this.#transport.send(removed(named("memories", id), options), options);
  }

  /** Returns some memories, newest first: 100 where `limit` says nothing. */
  page(filters: ListFilters = {}, options: CallOptions = {}): Promise<MemoryPage> {
    return this.#transport.send({ method: "GET", path: `${API}/memories`, query: filters }, options);
  }

  /** Yields all memories that match, newest first, a page of `limit` at a time. */
  each(filters: ListFilters = {}, options: CallOptions = {}): AsyncGenerator<Memory, void, void> {
    return followed(filters, async (asked) => {
      const page = await this.page(asked, options);
      return [page.memories, page.next_cursor];
    });
  }

  /** Returns some memories that match, newest first: 50 where `limit` says nothing. */
  search(filters: SearchFilters, options: CallOptions = {}): Promise<SearchPage> {
    return this.#transport.send({ method: "POST", path: `${API}/search`, body: filters }, options);
  }

  /** Yields all memories that match, newest first, a page of `limit` at a time. */
  searchEach(filters: SearchFilters, options: CallOptions = {}): AsyncGenerator<Memory, void, void> {
    return followed(filters, async (asked) => {
      const page = await this.search(asked, options);
      return [page.results, page.next_cursor];
    });
  }
}

/** The registry of agents, at `/api/v1/agents`; an agent may be named by its id or its name. */
export class Agents {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Registers an agent.
   *
   * @throws Conflict: there is one of this name.
   */
  register(
    agent: { name: string; description?: string; config?: Record<string, unknown> },
    options: KeyedOptions = {},
  ): Promise<Agent> {
    return this.#transport.send(keyed("/agents", agent, options), options);
  }

  /**
   * Returns an agent.
   *
   * @throws NotFound: it is not registered.
   */
  async get(agent: string, options: CallOptions = {}): Promise<Agent> {
    return this.#transport.send({ method: "GET", path: named("agents", agent) }, options);
  }

  /** Yields all agents, newest first. */
  each(options: CallOptions = {}): AsyncGenerator<Agent, void, void> {
    return counted(async (query) => {
      const path = `${API}/agents`;
      return (await this.#transport.send<{ agents: Agent[] }>({ method: "GET", path, query }, options)).agents;
    });
  }

  /**
   * Takes an agent out of the registry; what it kept stays.
   *
   * @throws NotFound: it is not registered.
   */
  async delete(id: string, options: KeyedOptions = {}): Promise<void> {
    await this.#transport.send(removed(named("agents", id), options), options);
  }

  /** Returns what an agent kept, counted. */
  async statistics(agent: string, options: CallOptions = {}): Promise<AgentStatistics> {
    return this.#transport.send({ method: "GET", path: named("agents", agent, "/stats") }, options);
  }

  /** Yields what an agent kept, under its id and its name; of the last 24 hours unless `since` says more. */
  memories(agent: string, filters: OwnFilters = {}, options: CallOptions = {}): AsyncGenerator<Memory, void, void> {
    return ofOne(this.#transport, "agents", agent, filters, options);
  }
}

/** Sessions of registered agents, at `/api/v1/sessions`. */
export class Sessions {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Opens a session of a registered agent.
   *
   * @throws Invalid: the agent is not registered.
   */
  open(agent: string, options: KeyedOptions & { metadata?: Record<string, unknown> } = {}): Promise<AgentSession> {
    const body = { agent_id: agent, metadata: options.metadata };
    return this.#transport.send(keyed("/sessions", body, options), options);
  }

  /**
   * Returns a session.
   *
   * @throws NotFound: there is none of this id.
   */
  async get(id: string, options: CallOptions = {}): Promise<AgentSession> {
    return this.#transport.send({ method: "GET", path: named("sessions", id) }, options);
  }

  /** Yields all sessions, or those of an agent, newest first. */
  each(agent?: string, options: CallOptions = {}): AsyncGenerator<AgentSession, void, void> {
    return counted(async (places) => {
      const call = { method: "GET", path: `${API}/sessions`, query: { ...places, agent_id: agent } } as const;
      return (await this.#transport.send<{ sessions: AgentSession[] }>(call, options)).sessions;
    });
  }

  /**
   * Changes a session; `metadata` takes the place of all that was there.
   *
   * @throws NotFound: there is none of this id.
   */
  async change(
    id: string,
    changes: { status?: string; metadata?: Record<string, unknown> },
    options: CallOptions = {},
  ): Promise<AgentSession> {
    return this.#transport.send({ method: "PUT", path: named("sessions", id), body: changes }, options);
  }

  /**
   * Ends a session.
   *
   * @throws NotFound: there is none of this id.
   */
  close(id: string, options: CallOptions = {}): Promise<AgentSession> {
    return this.change(id, { status: "closed" }, options);
  }

  /** Yields what was kept in a session, newest first. */
  memories(id: string, filters: OwnFilters = {}, options: CallOptions = {}): AsyncGenerator<Memory, void, void> {
    return ofOne(this.#transport, "sessions", id, filters, options);
  }

  /** Returns what was kept in a session as markdown for a prompt; of the last 24 hours unless `since` says more. */
  async context(id: string, asked: ContextOptions = {}, options: CallOptions = {}): Promise<SessionContext> {
    return this.#transport.send({ method: "POST", path: named("sessions", id, "/context"), body: asked }, options);
  }
}

function keyed(path: string, body: unknown, options: KeyedOptions) {
  return { method: "POST", path: API + path, body, idempotencyKey: keyOf(options) } as const;
}

function removed(path: string, options: KeyedOptions) {
  return { method: "DELETE", path, idempotencyKey: keyOf(options), absentIsDone: true } as const;
}

function keyOf(options: KeyedOptions): string {
  return options.idempotencyKey ?? newKey("call");
}

/** Returns the path of one thing. No address could name the ids that are refused here: it would name something else. */
function named(kind: string, id: string, more = ""): string {
  if (typeof id !== "string" || !/^[!-~]+$/.test(id) || id === "." || id === "..") {
    const reason = "an id holds printable characters of ASCII, at least one, and is not . or ..";
    throw new Invalid({ code: "invalid_argument", reason, status: 400, field: "id" });
  }
  return `${API}/${kind}/${encodeURIComponent(id)}${more}`;
}

function ofOne(transport: Transport, kind: string, id: string, filters: OwnFilters, options: CallOptions) {
  return followed(filters, async (query): Promise<[Memory[], string | null | undefined]> => {
    const page = await transport.send<MemoryPage>({ method: "GET", path: named(kind, id, "/memories"), query }, options);
    return [page.memories, page.next_cursor];
  });
}

/** Yields the entries of all pages, each page when it is needed. */
async function* followed<T, F extends { limit?: number; cursor?: string }>(
  filters: F,
  pageOf: (asked: F) => Promise<[T[], string | null | undefined]>,
): AsyncGenerator<T, void, void> {
  let asked = { ...filters, limit: filters.limit ?? MOST_LISTED };
  for (;;) {
    const [entries, cursor] = await pageOf(asked);
    yield* entries;
    if (!cursor) {
      return;
    }
    asked = { ...asked, offset: undefined, cursor };
  }
}

/** Yields the entries of all pages that are told apart by their offset. */
async function* counted<T>(
  pageOf: (places: { limit: number; offset: number }) => Promise<T[]>,
): AsyncGenerator<T, void, void> {
  for (let offset = 0; ; ) {
    const entries = await pageOf({ limit: MOST_LISTED, offset });
    yield* entries;
    offset += entries.length;
    if (entries.length === 0) {
      return; // a page that is large in bytes is shorter than was asked for
    }
  }
}
