// Run by Node.js in a folder that has the TypeScript client: append and query, print what came back as JSON.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, mode] = process.argv.slice(2);
const event = {
  timestamp: "2026-03-19T20:00:00Z",
  channel: "telegram",
  participants: ["user_42", "agent_1"],
  payload: { text: "We design the memory system" },
  source_event_key: "k1",
};

const client = new Client({ name: "tests", version: "1" }, { versionNegotiation: { mode: JSON.parse(mode) } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const call = (name, args) => client.callTool({ name: `myria.${name}`, arguments: args });
const { tools } = await client.listTools();
const stored = await call("append_event", event);
const batch = await call("append_events", { events: [event, { ...event, source_event_key: "k2" }] });
const found = await call("query_event_nodes", { participants: ["user_42"], query: "memory" });
const topics = await call("query_references", { participants: ["user_42"] });
const bad = await call("append_event", { ...event, channel: "" });
console.log(JSON.stringify({
  version: client.getNegotiatedProtocolVersion?.() ?? null,
  tools: tools.length,
  stored: stored.structuredContent,
  batch: batch.structuredContent,
  found: found.structuredContent,
  topics: topics.structuredContent,
  bad: [bad.isError, bad.structuredContent],
}));
await client.close();
