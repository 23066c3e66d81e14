// Run by Node.js in a folder that has the TypeScript clients: connect to an MCP server by its address alone, with the
// SDK's own OAuth flow. A line `{"browse": URL}` asks whoever reads to open a page as a person does; the last line is
// what happened, as JSON.
import { createServer } from "node:http";

const [url, generation] = process.argv.slice(-2);
const sdk = generation === "1"
  ? {
      ...(await import("@modelcontextprotocol/sdk/client/index.js")),
      ...(await import("@modelcontextprotocol/sdk/client/auth.js")),
      ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
    }
  : await import("@modelcontextprotocol/client");

// Where the person's browser is sent back to.
const answers = [];
const waiting = [];
const catcher = createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url, "http://127.0.0.1");
  response.setHeader("connection", "close");
  if (pathname !== "/callback") {
    response.setHeader("content-type", "text/html").end("<title>Done</title><p>You can close this page.</p>");
    return;
  }
  // On to another origin, as hosted assistants do (https://claude.ai/api/mcp/auth_callback leads to claude://).
  response.writeHead(302, { location: `http://localhost:${catcher.address().port}/done?${searchParams}` }).end();
  waiting.length ? waiting.shift()(searchParams) : answers.push(searchParams);
});
await new Promise((listening) => catcher.listen(0, "127.0.0.1", listening));
const redirectUrl = `http://127.0.0.1:${catcher.address().port}/callback`;
const answer = () => answers.length ? answers.shift() : new Promise((resolve) => waiting.push(resolve));

const kept = { registrations: 0, saved: [], invalidated: [], state: 0 };
const provider = {
  redirectUrl,
  // Version 2 uses it only where the server says that it takes such addresses as client ids.
  clientMetadataUrl: "https://editor.example.com/client.json",
  clientMetadata: {
    client_name: "TypeScript Editor",
    redirect_uris: [redirectUrl],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "client_secret_post",
  },
  state: () => `state-${++kept.state}`,
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; kept.registrations += 1; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; kept.saved.push(tokens.access_token); },
  redirectToAuthorization: (page) => { console.log(JSON.stringify({ browse: String(page) })); },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (found) => { kept.discovery = found; },
  discoveryState: () => kept.discovery,
  invalidateCredentials: (which) => {
    kept.invalidated.push(which);
    if (which === "tokens" || which === "all") delete kept.tokens;
    if (which === "client" || which === "all") delete kept.client;
  },
};

async function connect() {
  const transport = new sdk.StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  const options = generation === "1" ? {} : { versionNegotiation: { mode: "auto" } };
  const client = new sdk.Client({ name: "tests", version: "1" }, options);
  return { client, transport, connected: client.connect(transport) };
}

async function unauthorized(promise) {
  try {
    await promise;
  } catch (error) {
    if (error instanceof sdk.UnauthorizedError || error?.cause instanceof sdk.UnauthorizedError) return true;
    throw error;
  }
  return false;
}

// Without tokens: challenge, metadata, registration, and the person's page.
const first = await connect();
const challenged = await unauthorized(first.connected);
const back = await answer();
await first.transport.finishAuth(generation === "1" ? back.get("code") : back);

const { client, connected } = await connect();
await connected;
const { tools } = await client.listTools();
const event = {
  timestamp: "2026-03-19T20:00:00Z",
  channel: "editor",
  payload: { text: "We design the memory system" },
};
const stored = await client.callTool({ name: "myria_append_event", arguments: event });
const scope = kept.tokens.scope;

// The reader makes the access token end: the SDK refreshes on the way.
console.log(JSON.stringify({ expire: kept.tokens.access_token }));
await new Promise((go) => process.stdin.once("data", go));
const ask = () => client.callTool({ name: "myria_query_event_nodes", arguments: { query: "memory" } });
const found = await ask();
const refreshed = kept.saved.length === 2 && kept.saved[0] !== kept.saved[1];

// The person signs out: the grant ends, and the SDK can only send them to the page again.
const { authorizationServerMetadata } = generation === "1"
  ? { authorizationServerMetadata: await sdk.discoverAuthorizationServerMetadata(new URL("/", url)) }
  : await sdk.discoverOAuthServerInfo(url);
const revoked = await fetch(authorizationServerMetadata.revocation_endpoint, {
  method: "POST",
  body: new URLSearchParams({ token: kept.tokens.refresh_token, client_id: kept.client.client_id }),
});
while (!(await unauthorized(ask())));

console.log(JSON.stringify({
  challenged,
  state: back.get("state"),
  tools: tools.length,
  stored: stored.structuredContent,
  found: found.structuredContent,
  scope,
  refreshed,
  revoked: revoked.status,
  invalidated: kept.invalidated,
  registrations: kept.registrations,
  client: { auth: kept.client.token_endpoint_auth_method, secret: kept.client.client_secret ?? null },
}));
catcher.close();
process.exit(0);
