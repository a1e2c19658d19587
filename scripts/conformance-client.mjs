// The client that the official conformance suite tests. scripts/conformance starts it once for each scenario. It is an agent that uses only
// the public API. The suite passes the server's address as the last argument. Environment variables name the scenario and the protocol
// version, and contain the data of the scenario (credentials, calls to make).
//
// The last line on stdout is the outcome as JSON: { scenario, failure? }. scripts/conformance reads it; the suite itself ignores it when it
// runs a set of scenarios.
import { mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const { Gateway } = createRequire(import.meta.url)('..')

const url = process.argv.at(-1)
const { MCP_CONFORMANCE_SCENARIO: scenario, MCP_CONFORMANCE_PROTOCOL_VERSION: asked, HYPERLIGHT_MCP_NEGOTIATE: negotiate } = process.env
const protocolVersion = negotiate === '1' ? undefined : asked
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}')

/** The URL that the suite expects for the client metadata document. It is compared and never fetched. */
const clientMetadataUrl = 'https://conformance-test.local/client-metadata.json'

/** Scenarios in which the client must refuse to go on, as their servers break the protocol or ask for permissions that they never grant. */
const REFUSED = new Set([
  'auth/scope-retry-limit',
  'auth/resource-mismatch',
  'auth/iss-supported-missing',
  'auth/iss-wrong-issuer',
  'auth/iss-unexpected',
  'auth/iss-normalized',
  'auth/metadata-issuer-mismatch',
])

/**
 * Returns the `oauth` settings that the author of an agent would write into the config for a scenario. They are used only if the server
 * asks for a token.
 */
function oauth() {
  const { client_id: clientId, client_secret: clientSecret, private_key_pem: privateKey, signing_algorithm: signingAlgorithm } = context
  if (scenario.startsWith('auth/client-credentials'))
    return { grant: 'client_credentials', clientId, ...(privateKey ? { privateKey, signingAlgorithm } : { clientSecret }) }
  if (clientId) return { clientId, clientSecret }
  return { clientMetadataUrl }
}

/**
 * Acts as a person at a browser who says yes at once. With a browser, the last redirect reaches our listener on loopback. On a machine
 * without a browser, a person copies the address to which the browser was sent. Some scenarios use the first way, and some the second.
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

/** The actions of each scenario after the server is approved and enabled. By default, each of its tools is called. */
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
    // Makes another call while the first call waits for its answer. The calls must not affect each other.
    await gateway.callTool('target', 'test_mrtr_echo_state', {}, { onElicit: () => between(gateway) })
    for (const tool of ['test_mrtr_no_state', 'test_mrtr_no_result_type']) await call(gateway, tool)
  },
}

async function between(gateway) {
  await call(gateway, 'test_mrtr_unrelated')
  return { action: 'accept', content: { confirmed: true } }
}

const callbacks = {
  // Acts as a person who accepts the form without changes. The client itself must fill in the defaults of the schema.
  onElicit: () => ({ action: 'accept', content: {} }),
  onSample: () => ({ role: 'assistant', content: { type: 'text', text: 'a model would say this' }, model: 'none' }),
  onAuthorize: authorize,
  // Each scenario provides a credential for the authorization server that its MCP server names.
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
if (REFUSED.has(scenario)) failure = code?.startsWith('ERR_') ? undefined : (failure ?? 'the request was accepted, but must be refused')
console.log(JSON.stringify({ scenario, failure }))
process.exitCode = failure ? 1 : 0
