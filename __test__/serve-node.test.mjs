// Tests of gateway.serve() for the author of an agent: over HTTP in this process, and over standard input and output in a separate program.
import assert from 'node:assert/strict'
import { chmodSync, readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import {
  arrived,
  endOf,
  failure,
  fixture,
  fixtureProgram,
  folder,
  gated,
  listenTo,
  ms,
  openApproved,
  openGateway,
  root,
  tokenFileOf,
  waitFor,
} from './support.mjs'

const LIMIT = ms(60_000)
const ERAS = { 'with sessions': {}, 'without sessions': { versionNegotiation: { mode: 'auto' } } }
const TOKENS = { one: '0123456789abcdef0123456789abcdef', two: 'fedcba9876543210fedcba9876543210' }

const script = (body) => ({
  code: `import * as fixture from "host:mcp-fixture"; export const handler = () => ${body}`,
  input: null,
  timeoutMs: null,
})
const runs = (client, body) => client.callTool({ name: 'run_javascript', arguments: script(body) })

/** A client of a served gateway. */
async function connected(t, url, { versions = {}, token, capabilities = {}, onElicit } = {}) {
  const client = new Client({ name: 'Test Host', version: '1.0.0' }, { capabilities, ...versions })
  if (onElicit) client.setRequestHandler('elicitation/create', async ({ params }) => onElicit(params))
  const requestInit = token ? { headers: { authorization: `Bearer ${token}` } } : {}
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit })
  await client.connect(transport)
  t.after(() => client.close().catch(() => {}))
  return { client, transport }
}

for (const [era, versions] of Object.entries(ERAS)) {
  test(`A gateway is served over HTTP to a client ${era}, which is asked about its own calls`, async (t) => {
    const asked = []
    const gateway = await openApproved(t, { fixture: gated() }, { onApproval: () => asked.push('the operator') && 'deny' })
    const served = await gateway.serve({ http: 0 })
    assert.match(served.url, /^http:\/\/127\.0\.0\.1:\d+\/mcp$/)
    const onElicit = () => asked.push('the host') && { action: 'accept', content: { allow: 'this call' } }
    const { client } = await connected(t, served.url, { versions, capabilities: { elicitation: { form: {} } }, onElicit })
    const { structuredContent } = await runs(client, `fixture.write_note({ text: 'x' })`)
    assert.equal(structuredContent.value, 'noted')
    assert.deepEqual(asked, ['the host'])
    await served.close()
  })
}

test('close() lets a request in progress end, and accepts nothing new; the gateway stays open', async (t) => {
  const log = join(folder(t), 'log')
  const gateway = await openApproved(t, { fixture: fixture('--log', log) })
  const served = await gateway.serve({ http: 0 })
  const { client } = await connected(t, served.url)
  const slow = runs(client, 'fixture.sleep({ ms: 1000 })')
  await waitFor('the call', () => arrived(log, 'sleep').length > 0)
  const [closing, again] = [served.close(), served.close()]
  assert.equal((await slow).structuredContent.value, 'slept')
  await Promise.all([closing, again, served.ended()])
  await served.close()
  await assert.rejects(fetch(served.url))
  assert.equal((await gateway.callTool('fixture', 'sleep', { ms: 0 })).content[0].text, 'slept')
})

test('gateway.close() ends what is served, with its calls, and frees the port', async (t) => {
  const log = join(folder(t), 'log')
  const gateway = await openApproved(t, { fixture: fixture('--log', log) })
  const served = await gateway.serve({ http: 0 })
  const { client } = await connected(t, served.url)
  const hanging = runs(client, 'fixture.hang({})')
  await waitFor('the call', () => arrived(log, 'hang').length > 0)
  await gateway.close()
  const { isError, structuredContent } = await hanging
  assert.deepEqual([isError, structuredContent.error.code], [true, 'ERR_CLOSED'])
  await served.ended()
  await served.close()
  await failure(gateway.serve({ http: 0 }), 'ERR_CLOSED')
  const port = Number(new URL(served.url).port)
  const free = createServer()
  await new Promise((resolve, reject) => free.once('error', reject).listen(port, '127.0.0.1', resolve))
  free.close()
})

test('One gateway is served several times, each with its own end', async (t) => {
  const gateway = await openApproved(t, { fixture: fixture() })
  const [one, two] = await Promise.all([gateway.serve({ http: 0 }), gateway.serve({ http: '127.0.0.1:0', agent: 'other' })])
  assert.notEqual(one.url, two.url)
  await one.close()
  const { client } = await connected(t, two.url)
  assert.equal((await runs(client, '1 + 1')).structuredContent.value, 2)
})

test('The runs of a process have different numbers, whichever gateway and whichever address has started them', async (t) => {
  const gateways = [await openApproved(t, { fixture: fixture() }), await openApproved(t, { fixture: fixture() })]
  for (const gateway of gateways) {
    const sandbox = await gateway.sandbox()
    await sandbox.run('import { echo } from "host:mcp-fixture"; export const handler = () => echo({ value: 1 })')
    for (const { url } of [await gateway.serve({ http: 0 }), await gateway.serve({ http: 0 })])
      await runs((await connected(t, url)).client, 'fixture.echo({ value: 1 })')
  }
  const rows = await Promise.all(gateways.map((gateway) => gateway.audit({ kind: 'call' })))
  const numbers = rows.flat().map(({ runId }) => runId)
  assert.equal(numbers.length, 6)
  assert.equal(new Set(numbers).size, 6, `${numbers}`)
})

test('All approved servers are served, also those that are approved later, and none that the author has disabled', async (t) => {
  const gateway = await openGateway(t, { fixture: fixture(), hidden: fixture(), later: fixture() })
  for (const name of ['fixture', 'hidden']) await gateway.approve(name)
  await gateway.disable('hidden')
  const { url } = await gateway.serve({ http: 0 })
  const enabled = () => gateway.servers().flatMap(({ name, enabled }) => (enabled ? [name] : []))
  assert.deepEqual(enabled(), ['fixture'])
  await gateway.approve('later')
  await waitFor('the server that was approved later', () => enabled().includes('later'))
  const { client } = await connected(t, url)
  const { structuredContent } = await client.callTool({ name: 'list_mcp_servers', arguments: {} })
  const usable = structuredContent.servers.flatMap(({ name, usable }) => (usable ? [name] : []))
  assert.deepEqual(usable.sort(), ['fixture', 'later'])
})

test('Each token is a caller of its own: it reaches no session of another, and without one nobody comes in', async (t) => {
  const gateway = await openApproved(t, { fixture: gated() })
  const { url } = await gateway.serve({ http: 0, tokenFile: tokenFileOf(t, TOKENS), allowWrites: ['fixture.write_note'] })
  const [one, two] = await Promise.all(Object.values(TOKENS).map((token) => connected(t, url, { token })))
  for (const { client } of [one, two])
    assert.equal((await runs(client, `fixture.write_note({ text: 'x' })`)).structuredContent.value, 'noted')
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' })
  const request = (headers) =>
    fetch(url, {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers },
    })
  const session = { 'mcp-session-id': one.transport.sessionId, 'mcp-protocol-version': '2025-11-25' }
  const asked = await Promise.all([
    request({ ...session, authorization: `Bearer ${TOKENS.one}` }),
    request({ ...session, authorization: `Bearer ${TOKENS.two}` }),
    request({ ...session, authorization: `Bearer ${TOKENS.two}x` }),
    request(session),
  ])
  assert.deepEqual(
    asked.map(({ status }) => status),
    [200, 404, 401, 401],
  )
})

test('Of the endless loops of one caller only some execute at once, and another caller runs beside them', async (t) => {
  // The loops last until the gateway is closed.
  const gateway = await openApproved(t, { fixture: fixture() }, { limits: { computeTimeoutMs: ms(60_000) } })
  const { url } = await gateway.serve({ http: 0, tokenFile: tokenFileOf(t, TOKENS) })
  const versions = ERAS['without sessions']
  const [loud, quiet] = await Promise.all(Object.values(TOKENS).map((token) => connected(t, url, { token, versions })))
  const gauge = async (name) => {
    const answer = await fetch(new URL('/metrics', url), { headers: { authorization: `Bearer ${TOKENS.two}` } })
    return Number(new RegExp(`^hyperlight_mcp_${name} (\\d+)$`, 'm').exec(await answer.text())[1])
  }
  let ended = 0
  // They end with the gateway, or at their deadline of 30 s.
  const loops = Array.from({ length: 40 }, () => runs(loud.client, '{ for (;;); }').finally(() => ended++))
  const most = Math.max(4, 2 * availableParallelism())
  let highest = 0
  await waitFor(
    'all runs of one caller, and as many guests as may execute',
    async () => {
      const executing = await gauge('guests_executing')
      highest = Math.max(highest, executing)
      return executing >= 4 && (await gauge('runs_in_flight')) === 40
    },
    LIMIT,
  )
  assert.equal((await runs(quiet.client, '1 + 1')).structuredContent.value, 2)
  const limited = { ...script('{ for (;;); }'), timeoutMs: 1000 }
  const { structuredContent } = await quiet.client.callTool({ name: 'run_javascript', arguments: limited })
  assert.equal(structuredContent.error.code, 'ERR_RUN_TIMEOUT')
  assert.equal(ended, 0, 'the other caller did not wait for the end of a loop')
  highest = Math.max(highest, await gauge('guests_executing'))
  assert.ok(highest >= 4 && highest <= most, `${highest} guests, at most ${most}`)
  await gateway.close()
  const codes = (await Promise.all(loops)).map(({ structuredContent }) => structuredContent.error.code)
  assert.deepEqual(new Set(codes), new Set(['ERR_CLOSED']))
  assert.equal(ended, 40)
})

test('The run of a session that its host has ended ends at once', async (t) => {
  const gateway = await openApproved(t, { fixture: fixture() })
  const { url } = await gateway.serve({ http: 0 })
  const { client, transport } = await connected(t, url)
  const running = async (name) => {
    const answer = await fetch(new URL('/metrics', url))
    return Number(new RegExp(`^hyperlight_mcp_${name} (\\d+)$`, 'm').exec(await answer.text())[1])
  }
  // The loop ends with its session, or at its deadline of 30 s.
  runs(client, '{ for (;;); }').catch(() => {})
  await waitFor('the loop', async () => (await running('guests_executing')) === 1, LIMIT)
  const before = performance.now()
  await transport.terminateSession()
  await waitFor('the end of the loop', async () => (await running('runs_in_flight')) === 0, LIMIT)
  const took = performance.now() - before
  // The protocol library alone would let the requests of an ended session run for 5 s more.
  assert.ok(took < 4000, `${took} ms`)
})

test('A wrong option is an error that names it, and nothing is served then', async (t) => {
  const gateway = await openApproved(t, { fixture: fixture() })
  const open = tokenFileOf(t, TOKENS)
  chmodSync(open, 0o644)
  const none = join(folder(t), 'none')
  const busy = await gateway.serve({ http: 0 })
  const { port } = new URL(busy.url)
  for (const [options, code, ...words] of [
    [{ htp: 1 }, 'ERR_INVALID_OPTION', 'htp', 'http', 'tokenFile'],
    [{ http: true }, 'ERR_INVALID_OPTION', 'http'],
    [{ http: Number.NaN }, 'ERR_INVALID_OPTION', 'http'],
    [{ http: 70_000 }, 'ERR_INVALID_OPTION', 'http'],
    [{ http: 'nowhere:port' }, 'ERR_INVALID_OPTION', 'http', 'HOST:PORT'],
    [{ http: '0.0.0.0:0' }, 'ERR_INVALID_OPTION', 'tokenFile'],
    [{ http: '192.0.2.1:0', tokenFile: tokenFileOf(t, TOKENS) }, 'ERR_INVALID_OPTION', '192.0.2.1'],
    [{ http: 0, stdio: true }, 'ERR_INVALID_OPTION', 'stdio'],
    [{ stdio: false }, 'ERR_INVALID_OPTION', 'stdio'],
    [{ tokenFile: open }, 'ERR_INVALID_OPTION', 'tokenFile', 'http'],
    [{ http: 0, tokenFile: open }, 'ERR_INVALID_OPTION', 'chmod 600'],
    [{ http: 0, tokenFile: none }, 'ERR_IO', 'tokenFile'],
    [{ http: 0, tls: { cert: none, key: none } }, 'ERR_IO', 'tls.cert'],
    [{ http: 0, tls: { cert: none } }, 'ERR_INVALID_OPTION', 'tls', 'key'],
    [{ http: 0, oauth: { resource: 'x', issuer: 'https://a.example' } }, 'ERR_INVALID_OPTION', 'oauth.resource'],
    [{ http: 0, oauth: { resource: 'https://a.example', issuer: 'http://a.example' } }, 'ERR_INVALID_OPTION', 'oauth.issuer'],
    [{ http: 0, allowedHosts: ['a b'] }, 'ERR_INVALID_OPTION', 'allowedHosts'],
    [{ http: 0, allowedOrigins: ['a.example'] }, 'ERR_INVALID_OPTION', 'allowedOrigins'],
    [{ http: 0, limits: { maxSessions: 0 } }, 'ERR_INVALID_OPTION', 'limits.maxSessions'],
    [{ http: 0, limits: { drain: 0 } }, 'ERR_INVALID_OPTION', 'limits.drain', 'drainMs'],
    [{ http: 0, allowWrites: ['nobody.tool'] }, 'ERR_UNKNOWN_SERVER', 'nobody', 'fixture'],
    [{ http: 0, agent: 'a b' }, 'ERR_INVALID_OPTION', 'agent'],
    [{ http: 0, onApproval: () => 'once' }, 'ERR_INVALID_OPTION', 'onApproval'],
    [{ http: 0, signal: AbortSignal.abort() }, 'ERR_INVALID_OPTION', 'signal'],
    [{ http: `127.0.0.1:${port}` }, 'ERR_IO', port, 'in use'],
    ['http', 'ERR_INVALID_OPTION', 'options'],
  ]) {
    const { message } = await failure(gateway.serve(options), code)
    for (const word of words) assert.ok(message.includes(word), `${JSON.stringify(options)}: ${message}`)
    assert.ok(!message.includes('\n') && !message.includes('not redacted'), message)
  }
  await busy.close()
})

/** Starts a program of this folder that serves a gateway. */
function program(t, name, ...args) {
  const path = folder(t)
  const child = listenTo(t, process.execPath, [join(root, '__test__/fixtures', name), path, ...args], { limit: LIMIT })
  child.stdin.on('error', () => {})
  return { child, ended: endOf(child) }
}

/** A host on the standard input and output of a program. */
async function hostOf(child) {
  const transport = {
    async start() {
      createInterface({ input: child.stdout }).on('line', (line) => transport.onmessage?.(JSON.parse(line)))
    },
    async send(message) {
      child.stdin.write(`${JSON.stringify(message)}\n`)
    },
    async close() {
      child.stdin.end()
    },
  }
  const client = new Client({ name: 'Test Host', version: '1.0.0' })
  await client.connect(transport)
  return client
}

test('Over standard input and output a host reaches the gateway of a program, which exits after the host', async (t) => {
  const { child, ended } = program(t, 'serve-stdio.mjs', fixtureProgram)
  const client = await hostOf(child)
  assert.equal((await runs(client, `fixture.sleep({ ms: 0 })`)).structuredContent.value, 'slept')
  await client.close()
  const { code, stderr } = await ended
  assert.deepEqual([code, stderr], [0, 'undefined ERR_INVALID_OPTION\nthe host has gone\n'])
})

test('close() on standard input and output lets a request in progress end, and gateway.close() does not wait for it', async (t) => {
  for (const [what, tool, outcome] of [
    ['served', 'sleep', ({ value }) => value === 'slept'],
    ['gateway', 'hang', ({ error }) => error.code === 'ERR_CLOSED'],
  ]) {
    const { child, ended } = program(t, 'serve-stdio.mjs', fixtureProgram, what, tool)
    const client = await hostOf(child)
    const answer = runs(client, `fixture.${tool}({ ms: 1000 })`)
    const { code, stderr } = await ended
    // The program ended by itself, with its standard input still open.
    assert.deepEqual([code, stderr.split('\n')[1]], [0, 'the host has gone'])
    const { structuredContent } = await answer
    assert.ok(outcome(structuredContent), JSON.stringify(structuredContent))
  }
})

test('Rubbish on standard input ends serving with an error, and the program goes on', async (t) => {
  const { child, ended } = program(t, 'serve-stdio.mjs', fixtureProgram)
  child.stdin.end('GET / HTTP/1.1\n\n')
  const { code, stderr } = await ended
  assert.equal(code, 0)
  assert.match(stderr, /\nERR_IO\n$/)
})

test('Node runs as long as something is served, and no longer, also with a gateway that is open', async (t) => {
  const { child, ended } = program(t, 'serve-http.mjs', fixtureProgram)
  await waitFor('the address', () => child.output.stdout.includes('\n'))
  const url = child.output.stdout.trim()
  const { client } = await connected(t, url)
  assert.equal((await runs(client, '1 + 1')).structuredContent.value, 2)
  await client.close()
  // Only the served gateway keeps the program running, and no variable refers to it.
  child.stdin.end('close\n')
  const { code, stderr } = await ended
  assert.deepEqual([code, stderr], [0, ''])
})

for (const [what, when] of [
  ['served', 'it is closed, with a session that a client has left'],
  ['gateway', 'its gateway is closed'],
  ['worker', 'its worker is terminated'],
])
  test(`Nothing is left of what was served when ${when}`, async (t) => {
    const { child, ended } = program(t, 'serve-many.mjs', what)
    child.stdin.end()
    const { code, stdout, stderr } = await ended
    assert.deepEqual([code, stderr], [0, ''])
    assert.equal(JSON.parse(stdout).isBack, true, stdout)
  })

test('The example of docs/SERVE.md does what it says', async (t) => {
  const [, section] = readFileSync(join(root, 'docs/SERVE.md'), 'utf8').split('\n## In an agent\n')
  const example = /```js\n(.*?)```/s.exec(section)[1].replace('http: 8080', 'http: 0')
  const gateway = await openApproved(t, { fixture: fixture() })
  const lines = []
  const console = { error: (line) => lines.push(line) }
  await new Function('gateway', 'console', `return (async () => { ${example} })()`)(gateway, console)
  assert.match(lines.join('\n'), /^serving http:\/\/127\.0\.0\.1:\d+\/mcp$/)
})
