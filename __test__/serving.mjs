// Hosts of `hyperlight-mcp serve` for tests: the official client over standard input and output, and over HTTP, before and since protocol
// version 2026-07-28.
import { generateKeyPairSync, sign } from 'node:crypto'
import { createServer } from 'node:http'
import { createInterface } from 'node:readline'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { environment, LIMIT, program } from './command-line.mjs'
import { afterwards, endOf, listenTo } from './support.mjs'

/** The capabilities of a host that can answer every kind of question. */
export const CAPABILITIES = { elicitation: { form: {} }, sampling: {} }
/** The options of the official client, for protocol versions before and since 2026-07-28. */
export const ERAS = { '2025-11-25': {}, '2026-07-28': { versionNegotiation: { mode: 'auto' } } }

/** The transport of a host that started the program. */
function streams(child) {
  const transport = {
    async start() {
      createInterface({ input: child.stdout }).on('line', (line) => transport.onmessage?.(JSON.parse(line)))
      child.once('exit', () => transport.onclose?.())
    },
    async send(message) {
      child.stdin.write(`${JSON.stringify(message)}\n`)
    },
    async close() {
      child.stdin.end()
    },
  }
  return transport
}

/** Starts the program as a host does, with these words. */
export function started(t, at, words = []) {
  const child = listenTo(t, process.execPath, [program, 'serve', ...words], { cwd: at.work, env: environment(at), limit: LIMIT })
  child.stdin.on('error', () => {})
  return { child, ended: endOf(child) }
}

async function connected(t, transport, { name = 'Test Host', era = '2025-11-25', onElicit, onSample, onRoots } = {}) {
  const capabilities = {
    ...(onElicit && { elicitation: CAPABILITIES.elicitation }),
    ...(onSample && { sampling: {} }),
    ...(onRoots && { roots: {} }),
  }
  const client = new Client({ name, version: '1.0.0' }, { capabilities, ...ERAS[era] })
  if (onElicit) client.setRequestHandler('elicitation/create', ({ params }) => onElicit(params))
  if (onSample) client.setRequestHandler('sampling/createMessage', ({ params }) => onSample(params))
  if (onRoots) client.setRequestHandler('roots/list', () => onRoots())
  await client.connect(transport)
  afterwards(t, () => client.close())
  return client
}

/** A host that started the program, and speaks with it over standard input and output. */
export async function overStdio(t, at, { words, ...options } = {}) {
  const { child, ended } = started(t, at, words)
  return { client: await connected(t, streams(child), options), child, ended }
}

/** A host of a program that serves over HTTP. */
export function overHttp(t, url, { token, ...options } = {}) {
  const headers = token ? { authorization: `Bearer ${token}` } : {}
  return connected(t, new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }), options)
}

/** Starts the program over HTTP, and gives its URL. */
export async function served(t, at, words = []) {
  const { child, ended } = started(t, at, ['--http', '0', ...words])
  for (;;) {
    const url = /serving (http\S+)/.exec(child.output.stderr)?.[1]
    if (url) return { url, child, ended }
    await Promise.race([new Promise((resolve) => child.stderr.once('data', resolve)), ended])
    if (child.exitCode !== null) throw new Error(child.output.stderr)
  }
}

/** An issuer of access tokens with its keys at `keysUrl`, and a function that makes a token for this resource with these claims. */
export async function issuerOf(t, resource) {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519')
  const keys = { keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k' }] }
  const server = createServer((_, response) => response.end(JSON.stringify(keys)))
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  afterwards(t, () => new Promise((resolve) => server.close(resolve).closeAllConnections()))
  const issuer = `http://127.0.0.1:${server.address().port}`
  const token = (claims) => {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const all = { iss: issuer, aud: resource, exp: Date.now() / 1000 + 600, ...claims }
    const signed = `${part({ alg: 'EdDSA', kid: 'k' })}.${part(all)}`
    return `${signed}.${sign(null, Buffer.from(signed), privateKey).toString('base64url')}`
  }
  return { issuer, keysUrl: `${issuer}/keys`, token }
}

/** The arguments of a run that returns the value of this expression. In it, `fixture` is the server's module. */
export const script = (body) => ({
  code: `import * as fixture from "host:mcp-fixture"; export const handler = () => ${body}`,
  input: null,
  timeoutMs: null,
})

export const runs = (client, body, options) => client.callTool({ name: 'run_javascript', arguments: script(body) }, options)

/** For each tool, its arguments and what its answer must contain. The server is a fixture with a forecast and notes. */
export const CALLS = {
  run_javascript: [script(`[fixture.get_forecast({ location: 'Oslo' }).conditions, fixture.write_note({ text: 'x' })]`), /"sunny","noted"/],
  search_mcp_tools: [{ query: 'forecast', limit: 1, servers: null }, /get_forecast/],
  describe_mcp_tools: [{ names: ['fixture.get_forecast'] }, /export function get_forecast/],
  list_mcp_servers: [{}, /"name":"fixture"/],
  mcp_server_info: [{ server: 'fixture' }, /"name":"fixture"/],
  manage_mcp: [{ action: 'test', server: 'fixture' }, /"fixture"/],
}
