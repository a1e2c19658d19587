// The client that the official conformance suite tests (scripts/conformance starts it once a scenario): an agent that uses nothing
// but our public API. The suite gives the server's address as the last argument, and in the environment which scenario it is, at
// which protocol version, and what the scenario hands out (credentials, calls to make).
//
// The last line on stdout is the outcome as JSON: { scenario, failure? }. The suite itself does not look at it where it runs a
// whole set; scripts/conformance does.
import { mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const { Gateway } = createRequire(import.meta.url)('..')

const url = process.argv.at(-1)
const { MCP_CONFORMANCE_SCENARIO: scenario, MCP_CONFORMANCE_PROTOCOL_VERSION: asked, HYPERLIGHT_MCP_NEGOTIATE: negotiate } = process.env
const protocolVersion = negotiate === '1' ? undefined : asked
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}')

/** Where the suite expects our client metadata document; it is compared, never fetched. */
const clientMetadataUrl = 'https://conformance-test.local/client-metadata.json'

/** Must be refused: what the servers of these scenarios do is wrong, or asks for more than they ever grant. */
const REFUSED = new Set([
  'auth/scope-retry-limit',
  'auth/resource-mismatch',
  'auth/iss-supported-missing',
  'auth/iss-wrong-issuer',
  'auth/iss-unexpected',
  'auth/iss-normalized',
  'auth/metadata-issuer-mismatch',
])

/** What the operator of an agent writes into its config, by scenario; `oauth` is only read where the server asks for a token. */
function oauth() {
  const { client_id: clientId, client_secret: clientSecret, private_key_pem: privateKey, signing_algorithm: signingAlgorithm } = context
  if (scenario.startsWith('auth/client-credentials'))
    return { grant: 'client_credentials', clientId, ...(privateKey ? { privateKey, signingAlgorithm } : { clientSecret }) }
  if (clientId) return { clientId, clientSecret }
  return { clientMetadataUrl }
}

/**
 * A person at a browser who says yes at once. Where there is a browser, the last redirect reaches our listener on loopback; on a
 * machine without one, a person copies the address to which the browser was sent. Both ways are gone, each by some scenarios.
 */
async function authorize(address) {
  if (scenario.startsWith('auth/metadata-')) {
    await (await fetch(address)).text()
    return
  }
  const answer = await fetch(address, { redirect: 'manual' })
  return answer.headers.get('location')
}

const listed = async (gateway) => (await gateway.approvalRequest('target')).tools
const call = (gateway, tool, args = {}) => gateway.callTool('target', tool, args)

async function callEach(gateway) {
  for (const { name } of await listed(gateway)) await call(gateway, name)
}

/** What is done once the server is approved (its tools are listed) and enabled; by default each of its tools is called. */
const SCENARIOS = {
  initialize: listed,
  'request-metadata': listed,
  'json-schema-ref-no-deref': listed,
  tools_call: (gateway) => call(gateway, 'add_numbers', { a: 2, b: 3 }),
  async 'http-custom-headers'(gateway) {
    for (const { name, arguments: args } of context.toolCalls) await call(gateway, name, args)
  },
  async 'http-standard-headers'(gateway) {
    await callEach(gateway)
    for (const { uri } of await gateway.resources('target')) await gateway.readResource('target', uri)
    for (const { name } of await gateway.prompts('target')) await gateway.getPrompt('target', name)
  },
  async 'json-schema-2020-12-preservation'(gateway) {
    const { inputSchema } = (await listed(gateway)).find(({ name }) => name === 'json_schema_2020_12_tool')
    await call(gateway, 'json_schema_echo', { schema: inputSchema })
  },
  async 'sep-2322-client-request-state'(gateway) {
    // While the first call waits for its answer, another one is made: nothing of the one may reach the other.
    await gateway.callTool('target', 'test_mrtr_echo_state', {}, { onElicit: () => between(gateway) })
    for (const tool of ['test_mrtr_no_state', 'test_mrtr_no_result_type']) await call(gateway, tool)
  },
}

async function between(gateway) {
  await call(gateway, 'test_mrtr_unrelated')
  return { action: 'accept', content: { confirmed: true } }
}

const callbacks = {
  // A person who accepts the form as it stands: the defaults of its schema are ours to fill in.
  onElicit: () => ({ action: 'accept', content: {} }),
  onSample: () => ({ role: 'assistant', content: { type: 'text', text: 'a model would say this' }, model: 'none' }),
  onAuthorize: authorize,
  // Each scenario hands out a credential for the authorization server that its MCP server names.
  onIssuer: ({ clientId }) => clientId === context.client_id,
}

async function run() {
  const stateDir = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-conformance-'))
  const target = { type: 'http', url, protocolVersion, confirm: 'never', ...(scenario.startsWith('auth/') && { oauth: oauth() }) }
  const gateway = await Gateway.open({ config: { mcpServers: { target } }, stateDir, argumentChecks: 'off', ...callbacks })
  try {
    await gateway.approve('target')
    await gateway.enable('target')
    await (SCENARIOS[scenario] ?? callEach)(gateway)
  } finally {
    await gateway.close()
    rmSync(stateDir, { recursive: true, force: true })
  }
}

const { code, message } = (await run().catch((error) => error)) ?? {}
let failure = message && `${code}: ${message}`
if (REFUSED.has(scenario)) failure = code?.startsWith('ERR_') ? undefined : (failure ?? 'it went through, and had to be refused')
console.log(JSON.stringify({ scenario, failure }))
process.exitCode = failure ? 1 : 0
