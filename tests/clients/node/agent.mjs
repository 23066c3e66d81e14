// Run by Node.js in a folder that has the TypeScript client: use the agent's tools, print what came back as JSON.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url] = process.argv.slice(2);
const client = new Client({ name: "tests", version: "1" }, { versionNegotiation: { mode: "auto" } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const call = (name, args) => client.callTool({ name, arguments: args });
await client.listTools();
const kept = await call("remember", { content: "The kiln opens on Friday", type: "fact" });
const found = await call("recall", { text: "When does the kiln open?" });
const id = kept.structuredContent.id;
const amended = await call("amend", { id, content: "The kiln opens on Monday" });
const gone = await call("forget", { id });
const absent = await call("amend", { id: `note_${"0".repeat(32)}`, content: "x" });
console.log(JSON.stringify({
  kept: kept.structuredContent,
  found: found.structuredContent,
  line: found.content[0].text.split("\n").find((line) => line.includes("kiln")),
  amended: amended.structuredContent,
  gone: gone.structuredContent,
  absent: [absent.isError, absent.structuredContent],
}));
await client.close();
