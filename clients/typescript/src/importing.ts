/** A stream of memories in batches, each under a key of its own: a batch that arrived before a cut is known by it. */

import { Conflict, Invalid, NotFound } from "./errors.js";
import type { KeyedOptions } from "./memories.js";
import type { KeptMemories, NewMemory } from "./types.js";

const BATCH = 100;
/** Characters of JSON after which a batch goes out, however few memories it holds. */
const BATCH_CHARACTERS = 512 * 1024;
const OF_THE_BODY = [400, 409, 413, 422];

/** What became of one memory of a stream: stored under `id`, left out as a duplicate, or refused for `error`. */
export interface Outcome {
  /** Its place in the stream. */
  index: number;
  status: "stored" | "duplicate" | "refused";
  id?: string | null;
  error?: string | null;
}

export interface ImportOptions {
  /** Of this import. The same name, stream and `batch` again keep nothing twice, and answer the same. */
  name: string;
  /** How many memories of the stream an earlier run has done: this one leaves them out. */
  done?: number;
  /** Memories that go out together: 100 where nothing is said. The server takes some hundred at once. */
  batch?: number;
  signal?: AbortSignal;
}

type Keep = (memories: readonly NewMemory[], options: KeyedOptions & { atomic: boolean }) => Promise<KeptMemories>;

/** Keeps a stream, one batch at a time, and yields what became of each memory. */
export async function* imported(
  keep: Keep,
  memories: Iterable<NewMemory> | AsyncIterable<NewMemory>,
  options: ImportOptions,
): AsyncGenerator<Outcome, void, void> {
  const { name, done = 0, batch = BATCH, signal } = options;
  let place = 0;
  let held: NewMemory[] = [];
  let characters = 0;
  const send = async (): Promise<Outcome[]> => {
    const [sent, start] = [held, place - held.length];
    [held, characters] = [[], 0];
    return sentBatch(keep, sent, `import-${encodeURIComponent(name)}-${start}-${sent.length}`, start, signal);
  };
  for await (const memory of memories) {
    place += 1;
    if (place <= done) {
      continue;
    }
    held.push(memory);
    characters += JSON.stringify(memory).length;
    if (held.length >= batch || characters >= BATCH_CHARACTERS) {
      yield* await send();
    }
  }
  if (held.length > 0) {
    yield* await send();
  }
}

/** Sends a batch; one that the server refuses as a whole goes in halves, down to the memory that is meant. */
async function sentBatch(
  keep: Keep,
  memories: readonly NewMemory[],
  key: string,
  start: number,
  signal: AbortSignal | undefined,
): Promise<Outcome[]> {
  try {
    const kept = await keep(memories, { atomic: false, idempotencyKey: key, signal });
    return kept.results.map((one) => ({ ...one, index: start + one.index }));
  } catch (error) {
    if (error instanceof NotFound && error.code === "note_not_found") {
      // It was stored whole by an earlier run, and one of its memories was withdrawn since.
      return memories.map((_, offset) => ({ index: start + offset, status: "stored" }));
    }
    const isOfTheBody = error instanceof Invalid || error instanceof Conflict;
    if (!isOfTheBody || error.code.startsWith("HTTP_") || !OF_THE_BODY.includes(error.status)) {
      throw error;
    }
    if (memories.length === 1 || error instanceof Conflict) {
      return memories.map((_, offset) => ({ index: start + offset, status: "refused", error: error.reason }));
    }
    const half = memories.length >> 1;
    const first = await sentBatch(keep, memories.slice(0, half), `${key}.0`, start, signal);
    return [...first, ...(await sentBatch(keep, memories.slice(half), `${key}.1`, start + half, signal))];
  }
}
