/** A client of Myria, long-term memory for agents. Every error is a `MyriaClientError`. */

export { Client, type ClientOptions, type RecallFilters } from "./client.js";
export * from "./errors.js";
export type { ImportOptions, Outcome } from "./importing.js";
export { Agents, type KeyedOptions, Memories, Sessions } from "./memories.js";
export type { components, operations, paths } from "./openapi.js";
export type { AddedClaudeMessage, AddedMessage, Json, Message } from "./styles.js";
export type { CallOptions, Retry } from "./transport.js";
export {
  type Items,
  newTurnId,
  type Prepared,
  type PromptOptions,
  Session,
  type SessionNames,
  type System,
  Turn,
  type TurnOptions,
  Turns,
} from "./turns.js";
export type * from "./types.js";
