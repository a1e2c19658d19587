// Servers whose tools were generated: what a person approves, and how their code runs.
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { availableParallelism } from 'node:os'
import { describe, test } from 'node:test'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { afterwards, fixture, ms, openGateway, tokenFileOf, waitFor } from './support.mjs'

const schema = (properties) => ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false })
const number = { type: 'number' }
const tool = (name, code, more = {}) => ({
  name,
  description: `Does ${name}.`,
  inputSchema: { type: 'object' },
  endpoints: [],
  notes: '',
  needsNetwork: false,
  readOnly: true,
  code,
  ...more,
})
const add = tool('add', 'return { sum: args.a + args.b }', { inputSchema: schema({ a: number, b: number }) })

/** A gateway with a generated server `made`, approved and enabled. */
async function made(t, tools, options) {
  const gateway = await openGateway(t, {}, options)
  await gateway.setGenerated('made', { tools, hosts: [] })
  await approve(gateway)
  return gateway
}

async function approve(gateway) {
  for (const stage of ['command', 'manifest']) {
    const request = await gateway.approvalRequest('made')
    assert.equal(request.stage, stage)
    await gateway.approve('made', request.digest)
  }
  await gateway.enable('made')
}

const text = (result) => result.content.map((block) => block.text).join()

describe('a generated server', () => {
  test('is a server among others: with its source, its module, its types and its calls', async (t) => {
    const gateway = await made(t, [add])
    const [status] = gateway.servers()
    assert.deepEqual([status.name, status.source, status.state], ['made', { kind: 'generated', name: 'made' }, 'connected'])
    assert.match(await gateway.declarations('mcp-made'), /function add\(input: \{ a: number; b: number \}\)/)
    const sandbox = await gateway.sandbox()
    const code = 'import { add } from "host:mcp-made"; export const handler = () => add({ a: 2, b: 40 })'
    assert.deepEqual((await sandbox.run(code)).value, { sum: 42 })
    const result = await gateway.callTool('made', 'add', { a: 1, b: 2 })
    assert.deepEqual(result.structuredContent, { sum: 3 })
    assert.equal(text(result), '{"sum":3}')
  })

  test('is shown with all of its code before anything of it runs, and a changed line is another digest', async (t) => {
    const gateway = await openGateway(t)
    await gateway.setGenerated('made', { tools: [add], hosts: ['api.example.com'], secrets: [{ name: 'KEY', host: 'api.example.com' }] })
    const request = await gateway.approvalRequest('made')
    assert.equal(request.generated.tools[0].code, add.code)
    assert.deepEqual(request.generated.hosts, ['api.example.com'])
    assert.deepEqual(request.generated.secrets, [{ name: 'KEY', host: 'api.example.com' }])
    await assert.rejects(gateway.callTool('made', 'add', { a: 1, b: 2 }), { code: 'ERR_NOT_APPROVED' })
    const digests = new Set([request.digest])
    for (const change of [
      { tools: [{ ...add, code: `${add.code} ` }], hosts: ['api.example.com'] },
      { tools: [{ ...add, notes: 'x' }], hosts: ['api.example.com'] },
      { tools: [{ ...add, readOnly: false }], hosts: ['api.example.com'] },
      { tools: [add], hosts: ['api.example.com', 'evil.example.com'] },
      { tools: [add], hosts: ['api.example.com'], secrets: [{ name: 'OTHER', host: 'api.example.com' }] },
      { tools: [add], hosts: ['api.example.com'], privateHosts: ['localhost'] },
    ]) {
      await gateway.setGenerated('made', change)
      digests.add((await gateway.approvalRequest('made')).digest)
    }
    assert.equal(digests.size, 7)
  })

  test('loses its approval with a changed line of code, and keeps it for the same code', async (t) => {
    const gateway = await made(t, [add])
    await gateway.setGenerated('made', { tools: [{ ...add, code: 'return { sum: 0 }' }], hosts: [] })
    await assert.rejects(gateway.callTool('made', 'add', { a: 1, b: 2 }), { code: 'ERR_NOT_APPROVED' })
    await gateway.setGenerated('made', { tools: [add], hosts: [] })
    await gateway.enable('made')
    assert.deepEqual((await gateway.callTool('made', 'add', { a: 1, b: 2 })).structuredContent, { sum: 3 })
    await gateway.removeGenerated('made')
    await assert.rejects(gateway.callTool('made', 'add', { a: 1, b: 2 }), { code: 'ERR_UNKNOWN_SERVER' })
  })

  test('invisible characters of its code are shown as escapes', async (t) => {
    const gateway = await openGateway(t)
    await gateway.setGenerated('made', { tools: [tool('trick', '/* \u202e */ return 1')], hosts: [] })
    assert.equal((await gateway.approvalRequest('made')).generated.tools[0].code, '/* \\u{202e} */ return 1')
    const shown = await gateway.command('/mcp approve made')
    assert.match(shown.text, /1 \| \/\* \\u\{202e\} \*\/ return 1/)
    assert.match(shown.text, /may reach +nothing/)
  })
})

describe('the code of a generated tool', () => {
  test('has a VM of its own each call: nothing stays from one call to the next', async (t) => {
    const gateway = await made(t, [tool('count', 'globalThis.n = (globalThis.n ?? 0) + 1; return globalThis.n')])
    for (const _ of [1, 2]) assert.equal(text(await gateway.callTool('made', 'count', {})), '1')
  })

  test('returns results of MCP as they are, and other values as text', async (t) => {
    const gateway = await made(t, [tool('given', 'return args.value'), tool('bytes', 'return { data: new Uint8Array([1, 2, 3]) }')])
    const image = { content: [{ type: 'image', data: 'AAAA', mimeType: 'image/png' }] }
    assert.deepEqual((await gateway.callTool('made', 'given', { value: image })).content, image.content)
    assert.equal(text(await gateway.callTool('made', 'given', { value: 'plain' })), 'plain')
    assert.equal(text(await gateway.callTool('made', 'given', { value: [1] })), '[1]')
    const wrong = await gateway.callTool('made', 'given', { value: { content: 'no list' } })
    assert.equal(wrong.isError, true)
    assert.match(text(wrong), /MCP does not allow/)
    assert.deepEqual((await gateway.callTool('made', 'bytes', {})).structuredContent, { data: 'AQID' })
  })

  test('fails with its message and its line', async (t) => {
    const gateway = await made(t, [
      tool('fails', 'const a = 1\n  throw new Error("no such city")'),
      tool('broken', 'return ]'),
      tool('reaches', 'return fetch("https://example.com")'),
      tool('imports', 'const { readFileSync } = await import("node:fs"); return readFileSync("/etc/passwd")'),
      tool('calls', 'const mcp = await import("host:mcp"); return mcp.tools()'),
      tool('requires', 'return require("host:mcp")'),
    ])
    const failed = async (name) => {
      const result = await gateway.callTool('made', name, {})
      assert.equal(result.isError, true, name)
      return text(result)
    }
    assert.match(await failed('fails'), /no such city.*line 2/s)
    assert.match(await failed('broken'), /line 1/)
    assert.match(await failed('reaches'), /fetch/)
    await failed('imports')
    await failed('calls')
    await failed('requires')
  })

  test('ends when its call is aborted', async (t) => {
    const gateway = await made(t, [tool('loop', 'console.log("begun"); for (;;);')])
    const controller = new AbortController()
    const calling = gateway.callTool('made', 'loop', {}, { signal: controller.signal })
    await waitFor('the first line of its log', async () => /loop log: begun/.test((await gateway.command('/mcp logs made')).text))
    controller.abort()
    await assert.rejects(calling, { code: 'ERR_ABORTED' })
  })

  test('a name of the config, a name that is none, and no tools are refused', async (t) => {
    const gateway = await openGateway(t, { taken: { command: 'true' } })
    for (const [name, tools] of [
      ['taken', [add]],
      ['Not A Name', [add]],
      ['empty', []],
    ]) {
      await assert.rejects(gateway.setGenerated(name, { tools, hosts: [] }), { code: 'ERR_INVALID_OPTION' })
    }
    await assert.rejects(gateway.setGenerated('made', { tools: [{ ...add, evil: 1 }], hosts: [] }), { code: 'ERR_INVALID_OPTION' })
    await assert.rejects(gateway.setGenerated('made', { tools: [add, add], hosts: [] }), /two tools with the name "add"/)
    for (const end of ['\r', '\u2028', '\u2029']) {
      const trick = tool('trick', `// adds ${end} return 'evil'`)
      await assert.rejects(gateway.setGenerated('made', { tools: [trick], hosts: [] }), /which is an invisible line end/)
    }
  })
})

describe('a served generated server', () => {
  test('with only, a host has exactly its tools, under their own names', async (t) => {
    const gateway = await made(t, [add, tool('run_javascript', 'return "mine"')], { config: { mcpServers: { other: fixture() } } })
    const served = await gateway.serve({ http: '127.0.0.1:0', only: 'made' })
    afterwards(t, () => served.close())
    const client = new Client({ name: 'host', version: '1' })
    await client.connect(new StreamableHTTPClientTransport(new URL(served.url)))
    afterwards(t, () => client.close())
    const { tools } = await client.listTools()
    assert.deepEqual(tools.map(({ name }) => name).sort(), ['add', 'run_javascript'])
    assert.equal(client.getInstructions(), undefined)
    assert.deepEqual((await client.callTool({ name: 'add', arguments: { a: 1, b: 2 } })).structuredContent, { sum: 3 })
    assert.equal(text(await client.callTool({ name: 'run_javascript', arguments: {} })), 'mine')
    const unknown = { code: -32602, message: /no tool/, data: { code: 'ERR_UNKNOWN_TOOL' } }
    await assert.rejects(client.callTool({ name: 'search_mcp_tools', arguments: { query: 'x' } }), unknown)
    await gateway.approve('other')
    await gateway.enable('other')
    const { resources } = await client.listResources()
    assert.deepEqual(
      resources.map(({ uri }) => uri),
      ['mcp-types://made.d.ts'],
    )
    assert.deepEqual((await client.listResourceTemplates()).resourceTemplates, [])
    assert.deepEqual((await client.listPrompts()).prompts, [])
    for (const uri of ['mcp-types://other.d.ts', 'fixture://note.txt']) await assert.rejects(client.readResource({ uri }))
    await assert.rejects(client.getPrompt({ name: 'greet' }))
    await assert.rejects(gateway.serve({ only: 'made', direct: true, http: '127.0.0.1:0' }), { code: 'ERR_INVALID_OPTION' })
    await assert.rejects(gateway.serve({ only: 'nobody', http: '127.0.0.1:0' }), { code: 'ERR_UNKNOWN_SERVER' })
  })

  test('with only, a tool that has the name of one of ours keeps its own schema without a session, too', async (t) => {
    const inputSchema = schema({ code: { type: 'string' } })
    const gateway = await made(t, [tool('run_javascript', 'return args.code', { inputSchema })])
    const served = await gateway.serve({ http: '127.0.0.1:0', only: 'made' })
    afterwards(t, () => served.close())
    const client = new Client({ name: 'host', version: '1' }, { versionNegotiation: { mode: 'auto' } })
    await client.connect(new StreamableHTTPClientTransport(new URL(served.url)))
    afterwards(t, () => client.close())
    const [{ inputSchema: listed }] = (await client.listTools()).tools
    assert.deepEqual([Object.keys(listed.properties), listed.required], [['code'], ['code']])
    assert.equal(text(await client.callTool({ name: 'run_javascript', arguments: { code: 'x' } })), 'x')
  })
})

describe('the caller of a generated tool', () => {
  test('is in the audit row of each of its fetches, with the run', async (t) => {
    const server = createServer((_, response) => response.end('fine'))
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
    afterwards(t, () => server.close())
    const origin = `http://127.0.0.1:${server.address().port}`
    const gateway = await openGateway(t)
    const get = tool('get', `return await (await fetch('${origin}/')).text()`, { needsNetwork: true })
    await gateway.setGenerated('made', { tools: [get], hosts: [origin], privateHosts: [origin] })
    await approve(gateway)
    const researcher = await gateway.agent('researcher')
    assert.equal(text(await researcher.callTool('made', 'get', {})), 'fine')
    const sandbox = await researcher.sandbox()
    const { value } = await sandbox.run('import { get } from "host:mcp-made"; export const handler = () => get({})')
    assert.equal(value, 'fine')
    assert.equal(text(await gateway.callTool('made', 'get', {})), 'fine')
    const rows = await gateway.audit({ kind: 'fetch', tool: 'get' })
    const run = (await gateway.audit({ kind: 'call', tool: 'get' })).find(({ runId }) => runId !== undefined)
    assert.deepEqual(
      rows.map(({ agent, runId, server, outcome }) => [agent, runId, server, outcome]),
      [
        ['researcher', undefined, 'made', 'ok'],
        ['researcher', run.runId, 'made', 'ok'],
        [undefined, undefined, 'made', 'ok'],
      ],
    )
  })

  const TOKENS = { one: '0123456789abcdef0123456789abcdef', two: 'fedcba9876543210fedcba9876543210' }
  const most = Math.max(4, 2 * availableParallelism())

  /** Serves a gateway with two callers. `gauge` returns how many guests execute. */
  async function served(t, gateway, options) {
    const { url } = await gateway.serve({ http: 0, tokenFile: tokenFileOf(t, TOKENS), ...options })
    const clients = Object.values(TOKENS).map(async (token) => {
      const client = new Client({ name: 'host', version: '1' }, { versionNegotiation: { mode: 'auto' } })
      const requestInit = { headers: { authorization: `Bearer ${token}` } }
      await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }))
      afterwards(t, () => client.close().catch(() => {}))
      return client
    })
    const gauge = async () => {
      const answer = await fetch(new URL('/metrics', url), { headers: { authorization: `Bearer ${TOKENS.two}` } })
      return Number(/^hyperlight_mcp_guests_executing (\d+)$/m.exec(await answer.text())[1])
    }
    return { clients: await Promise.all(clients), gauge }
  }

  test('has only some of its calls execute at once, and another caller is served beside them', async (t) => {
    const gateway = await made(t, [add, tool('loop', 'for (;;);')])
    const { clients, gauge } = await served(t, gateway, { only: 'made' })
    const [loud, quiet] = clients
    let ended = 0
    // They end with the gateway, or at their deadline of 30 s.
    const loops = Array.from({ length: 20 }, () =>
      loud
        .callTool({ name: 'loop', arguments: {} })
        .catch(() => {})
        .finally(() => ended++),
    )
    await waitFor('as many guests as may execute', async () => (await gauge()) === most, ms(20_000))
    const result = await quiet.callTool({ name: 'add', arguments: { a: 1, b: 2 } })
    assert.deepEqual(result.structuredContent, { sum: 3 })
    const executing = await gauge()
    assert.ok(executing <= most, `${executing} guests, at most ${most}`)
    assert.equal(ended, 0, 'the other caller did not wait for the end of a loop')
    await gateway.close()
    await Promise.all(loops)
  })

  test('can wait for it in more runs than may execute at once', async (t) => {
    const gateway = await made(t, [add])
    const { clients } = await served(t, gateway)
    const code = `import { add } from "host:mcp-made"
export const handler = async (n) => {
  const sums = await Promise.all([1, 2, 3].map((a) => add.async({ a, b: n })))
  return sums.reduce((sum, next) => sum + next.sum, add({ a: 0, b: n }).sum)
}`
    const run = async (input) => {
      const { structuredContent } = await clients[0].callTool({ name: 'run_javascript', arguments: { code, input, timeoutMs: null } })
      return structuredContent.value
    }
    const values = await Promise.all(Array.from({ length: 3 * most }, (_, n) => run(n)))
    assert.deepEqual(
      values,
      values.map((_, n) => 6 + 4 * n),
    )
  })
})
