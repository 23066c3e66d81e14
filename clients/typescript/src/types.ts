/** What is sent and answered, by shorter names; all of it is made from the server's OpenAPI document. */

import type { components, operations } from "./openapi.js";

type Schemas = components["schemas"];

/** A memory as it stands. `version` and `updated_at` are there once it was changed. */
export type Memory = Schemas["MemoryBody"];
/** A memory, as its writer gives it. */
export type NewMemory = Schemas["MemoryInput"];
/** Changes of a memory; what is left out stays, an empty object or list takes it away. */
export type MemoryChanges = Schemas["MemoryChangeInput"];
/** What was kept of several memories. */
export type KeptMemories = Schemas["MemoriesBody"];
/** Some memories; `next_cursor` goes on behind them while there are more. */
export type MemoryPage = Schemas["MemoryListBody"];
/** Some of what was found. */
export type SearchPage = Schemas["SearchBody"];
export type Agent = Schemas["AgentBody"];
export type AgentStatistics = Schemas["StatisticsBody"];
export type AgentSession = Schemas["SessionBody"];
/** A session as markdown for a prompt. */
export type SessionContext = Schemas["ContextBody"];
/** Which memories are listed; `tags` has commas between them. */
export type ListFilters = NonNullable<operations["list_memories"]["parameters"]["query"]>;
/** Which memories are searched for; everything that is given must hold. */
export type SearchFilters = Schemas["SearchInput"];
/** Which memories of one agent or session are listed. */
export type OwnFilters = Omit<ListFilters, "agent_id" | "session_id">;
/** How the context of a session is made. */
export type ContextOptions = Schemas["SessionContextInput"];

/** How a server is: `status` is `ok` or `ready`, and something else where it takes no requests. */
export interface Health {
  status: string;
  [more: string]: unknown;
}
