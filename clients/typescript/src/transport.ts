/** Sends calls, and sends them again where that helps. Every call that this package makes may be repeated. */

import {
  Busy,
  Conflict,
  Duplicate,
  Invalid,
  NotAllowed,
  NotFound,
  Refused,
  Unreachable,
  Unreadable,
} from "./errors.js";

/** How often a call is tried again that did not reach the server, or that the server could not do then. */
export interface Retry {
  /** Tries after the first: 6 where nothing is said. */
  times?: number;
  /** About how long it waits before the second try: 100 ms; each further pause is twice as long, at most 5 s. */
  firstPauseMs?: number;
  /** The longest pause that the server may ask for: 30 s. Where it asks for more, `Busy` is thrown at once. */
  longestWaitMs?: number;
}

/** How a client reaches its server. */
export interface TransportOptions {
  /** Where the server is: `http://127.0.0.1:8321` where nothing is said. */
  url?: string;
  /** A key that opens the faces that are used (`myria key create NAME --face rest --face turns`). */
  key?: string | undefined;
  /** How long one try may take, in milliseconds: 30,000. */
  timeoutMs?: number;
  retry?: Retry;
  /** A fetch of your own, e.g. with a proxy. */
  fetch?: typeof globalThis.fetch;
}

/** What every call takes beside its own arguments. */
export interface CallOptions {
  /** Ends the call, and the waiting between two tries; what was sent may have taken effect. */
  signal?: AbortSignal;
}

/** One call, before it is sent. */
export interface Call {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: object;
  body?: unknown;
  idempotencyKey?: string;
  /** An id that is gone is what was wanted, where an earlier try may have arrived. */
  absentIsDone?: boolean;
  /** Statuses that are answers and no refusals. */
  also?: readonly number[];
}

const LONGEST_PAUSE_MS = 5_000;
const WORTH_REPEATING = [408, 429, 500, 502, 503, 504];

export class Transport {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #timeoutMs: number;
  readonly #times: number;
  readonly #firstPauseMs: number;
  readonly #longestWaitMs: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor(options: TransportOptions) {
    this.#url = (options.url ?? "http://127.0.0.1:8321").replace(/\/+$/, "");
    this.#headers = options.key === undefined ? {} : { authorization: `Bearer ${options.key}` };
    this.#timeoutMs = options.timeoutMs ?? 30_000;
    this.#times = options.retry?.times ?? 6;
    this.#firstPauseMs = options.retry?.firstPauseMs ?? 100;
    this.#longestWaitMs = options.retry?.longestWaitMs ?? 30_000;
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
  }

  /**
   * Returns what the server answered; undefined where it answered nothing.
   *
   * @throws Refused, Unreachable, Unreadable, or the reason of the signal.
   */
  async send<T>(call: Call, options: CallOptions = {}): Promise<T> {
    let mayHaveArrived = false;
    for (let tried = 1; ; tried += 1) {
      let failure: Unreachable | Busy;
      try {
        return await this.#once<T>(call, options.signal);
      } catch (error) {
        if (error instanceof NotFound && call.absentIsDone && mayHaveArrived) {
          return undefined as T;
        }
        if (!(error instanceof Unreachable || error instanceof Busy)) {
          throw error;
        }
        failure = error;
      }
      mayHaveArrived = true;
      const wanted = failure instanceof Busy ? (failure.retryAfterMs ?? 0) : 0;
      if (tried > this.#times || wanted > this.#longestWaitMs) {
        throw failure;
      }
      const pause = Math.min(LONGEST_PAUSE_MS, this.#firstPauseMs * 2 ** Math.min(tried - 1, 30));
      await waited(Math.max(wanted, pause * (0.5 + Math.random())), options.signal);
    }
  }

  async #once<T>(call: Call, signal: AbortSignal | undefined): Promise<T> {
    signal?.throwIfAborted();
    const headers: Record<string, string> = { accept: "application/json", ...this.#headers };
    let content: string | undefined;
    if (call.body !== undefined) {
      headers["content-type"] = "application/json";
      content = JSON.stringify(call.body);
    }
    if (call.idempotencyKey !== undefined) {
      headers["idempotency-key"] = call.idempotencyKey;
    }
    // AbortSignal.any is younger than Node 18.
    const ending = new AbortController();
    const pass = (): void => ending.abort(signal?.reason);
    signal?.addEventListener("abort", pass);
    const timer = setTimeout(() => ending.abort(new Error(`no answer within ${this.#timeoutMs} ms`)), this.#timeoutMs);
    let status: number;
    let text: string;
    let answered: Headers;
    try {
      const response = await this.#fetch(this.#url + call.path + parameters(call.query), {
        method: call.method,
        headers,
        body: content,
        signal: ending.signal,
        redirect: "manual", // a key goes to the server it was made for, and to no other
      });
      [status, answered, text] = [response.status, response.headers, await response.text()];
    } catch (error) {
      signal?.throwIfAborted();
      const reason: unknown = ending.signal.aborted ? ending.signal.reason : error;
      throw new Unreachable(`${this.#url} did not answer: ${told(reason)}`, { cause: reason });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", pass);
    }
    return read<T>(call, this.#url, status, answered, text);
  }
}

/** Returns an id for a call or a turn: who repeats it repeats the id. */
export function newKey(kind: string): string {
  // Node 18 has no global crypto. An id must be unlike all others, not secret.
  const bytes = new Uint8Array(12);
  if (typeof globalThis.crypto?.getRandomValues === "function") {
    globalThis.crypto.getRandomValues(bytes);
  } else {
    bytes.forEach((_, place) => (bytes[place] = Math.floor(Math.random() * 256)));
  }
  const random = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return `${kind}-${Date.now()}-${random}`;
}

function parameters(query: object | undefined): string {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null);
  const search = new URLSearchParams(given.map(([name, value]): [string, string] => [name, String(value)])).toString();
  return search && `?${search}`;
}

function read<T>(call: Call, url: string, status: number, headers: Headers, text: string): T {
  let body: unknown;
  let isJson = true;
  try {
    body = text ? JSON.parse(text) : undefined;
  } catch {
    isJson = false;
  }
  const outer = object(body);
  const good = status >= 200 && status < 300;
  if (isJson && (call.also?.includes(status) || (good && !("retryable" in outer)))) {
    return body as T;
  }
  if (status < 400 && !("retryable" in outer)) {
    const kind = headers.get("content-type") ?? "no type";
    throw new Unreadable(`${call.method} ${url}${call.path} answered ${status} with ${kind}: no answer of Myria`);
  }
  const about = typeof outer["error"] === "object" ? object(outer["error"]) : outer;
  const refusal = {
    code: string(about["code"]) ?? `HTTP_${status}`,
    reason: string(about["message"]) || string(about["error"]) || "the server gave no reason",
    status,
    hint: string(about["hint"]),
    field: string(about["field"]),
    index: typeof about["index"] === "number" ? about["index"] : undefined,
    memoryId: string(about["id"]),
  };
  const mayRepeat = typeof about["retryable"] === "boolean" ? about["retryable"] : WORTH_REPEATING.includes(status);
  if (mayRepeat) {
    throw new Busy({ ...refusal, retryAfterMs: milliseconds(headers.get("retry-after")) });
  }
  throw new (refusal.code === "duplicate_memory" ? Duplicate : (BY_STATUS[status] ?? Refused))(refusal);
}

const BY_STATUS: Record<number, typeof Refused | undefined> = {
  400: Invalid,
  401: NotAllowed,
  403: NotAllowed,
  404: NotFound,
  405: Invalid,
  409: Conflict,
  413: Invalid,
  415: Invalid,
  422: Invalid,
};

function object(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

function string(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** Returns what the header Retry-After asks for: seconds, or a date. */
function milliseconds(header: string | null): number | undefined {
  if (header === null) {
    return undefined;
  }
  const wanted = /^\d+(\.\d+)?$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(wanted) ? undefined : Math.max(0, wanted);
}

function told(reason: unknown): string {
  if (!(reason instanceof Error)) {
    return String(reason);
  }
  return reason.cause instanceof Error ? `${reason.message} (${reason.cause.message})` : reason.message;
}

function waited(durationMs: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, durationMs);
    if (signal?.aborted) {
      end();
    } else {
      signal?.addEventListener("abort", end, { once: true });
    }
  });
}
