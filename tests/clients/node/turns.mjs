// Run by Node.js in a folder that has the TypeScript client: make the calls of a JSON file, print the answers as JSON.
import { readFileSync } from "node:fs";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, file] = process.argv.slice(2);
const client = new Client({ name: "tests", version: "1" }, { versionNegotiation: { mode: "auto" } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
await client.listTools();
const answers = [];
for (const [name, args] of JSON.parse(readFileSync(file, "utf8"))) {
  const result = await client.callTool({ name, arguments: args });
  answers.push(result.structuredContent);
}
console.log(JSON.stringify(answers));
await client.close();
