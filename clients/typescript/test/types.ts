// Compiled and not run: message lists of the providers' SDKs go in and come out as those SDKs take them.
import { Client, type Memory, type SearchPage } from "@myria/client";

type OpenAIMessage =
  | { role: "system"; content: string | { type: "text"; text: string }[]; name?: string }
  | { role: "user"; content: string | ({ type: "text"; text: string } | { type: "image_url"; image_url: { url: string } })[] }
  | { role: "assistant"; content?: string | null; tool_calls?: { id: string; type: "function" }[] }
  | { role: "tool"; content: string; tool_call_id: string };
interface ClaudeMessage {
  role: "user" | "assistant";
  content: string | ({ type: "text"; text: string } | { type: "tool_use"; id: string; input: unknown; name: string })[];
}
interface ClaudeBlock {
  type: "text";
  text: string;
  cache_control?: { type: "ephemeral" } | null;
}

export async function used(
  openai: (messages: OpenAIMessage[]) => Promise<{ role: "assistant"; content: string | null }>,
  claude: (asked: { system?: string | ClaudeBlock[]; messages: ClaudeMessage[] }) => Promise<{ role: "assistant"; content: ClaudeBlock[] }>,
  said: OpenAIMessage[],
  told: ClaudeMessage[],
  system: ClaudeBlock[],
): Promise<void> {
  const client = new Client();
  const chat = client.turns.session("s", { userId: "ada" });
  const first = await chat.openai(said);
  await first.keep(await openai(first.messages));
  const second = await chat.anthropic(told, { system, signal: AbortSignal.timeout(1000) });
  await second.keep(await claude({ system: second.system, messages: second.messages }));
  const third = await chat.anthropic(told, { system: "Be brief." });
  await third.keep(await claude({ system: third.system, messages: third.messages }));

  const kept: Memory = await client.remember("x", { memory_type: "decision" });
  const page: SearchPage = await client.memories.search({ tags: ["a"], order: "asc" });
  for await (const memory of client.memories.each({ tags: "a,b" })) {
    memory.content satisfies string;
  }
  // @ts-expect-error - no such type of memory
  await client.remember("x", { memory_type: "fact" });
  // @ts-expect-error - nobody keeps it
  await client.memories.keep({ content: kept.content + page.count });
}
