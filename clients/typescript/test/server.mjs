// The server that these tests ask is a real one: MYRIA_URL names it, and MYRIA_KEY opens the faces rest and turns.
import { Client } from "@myria/client";

export const url = process.env.MYRIA_URL ?? "http://127.0.0.1:8321";
export const key = process.env.MYRIA_KEY;

/** Returns a client whose agent nobody else has, and whose waits are those of a busy machine. */
export function clientOf(options = {}) {
  return new Client({ url, key, agent: unique("bot"), timeoutMs: 120_000, ...options });
}

export function unique(name) {
  return `${name}-${Date.now()}-${Math.floor(Math.random() * 1e9)}`;
}

/** A network that loses things: the first `times` answers never come, although the server had the calls. */
export function losing(times) {
  const seen = [];
  const send = async (address, init) => {
    seen.push(init);
    const answer = await fetch(address, init);
    if (seen.length <= times) {
      await answer.arrayBuffer();
      throw new TypeError("fetch failed");
    }
    return answer;
  };
  return { seen, fetch: send };
}

/** A server in front of it that answers the first calls itself. */
export function answering(...answers) {
  const seen = [];
  const send = async (address, init) => {
    seen.push(init);
    const [status, body, headers] = answers[seen.length - 1] ?? [];
    return status === undefined ? fetch(address, init) : new Response(body, { status, headers });
  };
  return { seen, fetch: send };
}

export async function all(entries) {
  const found = [];
  for await (const entry of entries) {
    found.push(entry);
  }
  return found;
}
