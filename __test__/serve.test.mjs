// hyperlight-mcp serve: a host on standard input and output uses all approved servers through a few tools.
import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { approved, environment, LIMIT, place, program, run, small } from './command-line.mjs'
import { arrived, deferred, endOf, fixture, gated, listenTo } from './support.mjs'

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

/** Starts the program as a host does. */
async function host(t, at, { words = [], capabilities = {}, onElicit, versions } = {}) {
  const child = listenTo(t, process.execPath, [program, 'serve', ...words], { cwd: at.work, env: environment(at), limit: LIMIT })
  child.stdin.on('error', () => {})
  const ended = endOf(child)
  const client = new Client({ name: 'Test Host', version: '1.0.0' }, { capabilities, ...versions })
  if (onElicit) client.setRequestHandler('elicitation/create', async ({ params }) => onElicit(params))
  await client.connect(streams(child))
  t.after(() => client.close())
  return { client, ended, child }
}

const script = (body) => ({
  code: `import * as fixture from "host:mcp-fixture"; export const handler = () => ${body}`,
  input: null,
  timeoutMs: null,
})
const runs = (client, body, options) => client.callTool({ name: 'run_javascript', arguments: script(body) }, options)
const FORMS = { elicitation: { form: {} } }

test('A host', async (t) => {
  await t.test('finds the tools, and runs code that calls the servers', async (t) => {
    const at = await approved(t, { fixture: small() })
    const { client } = await host(t, at)
    const { tools } = await client.listTools()
    assert.deepEqual(
      tools.map(({ name }) => name),
      ['run_javascript', 'search_mcp_tools', 'describe_mcp_tools', 'list_mcp_servers', 'mcp_server_info', 'manage_mcp'],
    )
    assert.ok(tools.every(({ annotations, outputSchema }) => annotations && outputSchema))
    assert.match(client.getInstructions(), /fixture/)
    const { structuredContent, isError } = await runs(client, `fixture.get_forecast({ location: 'Oslo' }).temperature`)
    assert.notEqual(isError, true)
    assert.equal(typeof structuredContent.value, 'number')
    const failed = await runs(client, 'fixture.no_such_tool()')
    assert.equal(failed.isError, true)
    assert.match(failed.structuredContent.error.message, /no_such_tool/)
  })

  await t.test('is asked before a write, and its answer holds as long as it says', async (t) => {
    const log = `${place(t).home}/log`
    const at = await approved(t, { fixture: small('--log', log) })
    const asked = []
    const answers = ['no', 'this call', 'this session']
    const onElicit = (params) => {
      asked.push(params)
      return { action: 'accept', content: { allow: answers.shift() } }
    }
    const { client } = await host(t, at, { capabilities: FORMS, onElicit })
    const write = () => runs(client, `fixture.write_note({ text: 'x' })`)
    const denied = await write()
    assert.match(JSON.stringify(denied.structuredContent), /denied/)
    assert.equal(arrived(log, 'write_note').length, 0)
    assert.match(asked[0].message, /"write_note" of the MCP server "fixture".*\{\n {2}"text": "x"\n\}/s)
    for (const _ of [1, 2, 3]) await write()
    assert.deepEqual([asked.length, arrived(log, 'write_note').length], [3, 3])
  })

  await t.test('that cannot ask is told what a person can do, and --allow-writes is that', async (t) => {
    const at = await approved(t, { fixture: small() })
    const { client } = await host(t, at)
    const { structuredContent } = await runs(client, `fixture.write_note({ text: 'x' })`)
    assert.match(JSON.stringify(structuredContent), /--allow-writes SERVER/)
    const allowed = await host(t, at, { words: ['--allow-writes', 'fixture.write_note'] })
    const written = await runs(allowed.client, `fixture.write_note({ text: 'x' })`)
    assert.doesNotMatch(JSON.stringify(written.structuredContent), /ERR_CALL_DENIED/)
  })

  await t.test('gets the error of a call as the error of its code, and with --tool-errors return as a value', async (t) => {
    const at = await approved(t, { fixture: small() })
    const denied = (client) => runs(client, `fixture.write_note({ text: 'x' })`)
    const types = async (client) => (await client.readResource({ uri: 'mcp-types://fixture.d.ts' })).contents[0].text
    const { client } = await host(t, at)
    const { isError, structuredContent } = await denied(client)
    assert.deepEqual([isError, structuredContent.error.code], [true, 'ERR_GUEST_THREW'])
    assert.match(structuredContent.error.message, /write_note/)
    assert.doesNotMatch(await types(client), /ToolError/)
    assert.match(client.getInstructions(), /throws an Error/)
    const returning = (await host(t, at, { words: ['--tool-errors', 'return'] })).client
    const returned = await denied(returning)
    assert.notEqual(returned.isError, true)
    assert.equal(returned.structuredContent.value.code, 'ERR_CALL_DENIED')
    assert.match(await types(returning), /ToolError/)
    assert.match(returning.getInstructions(), /returns \{ error/)
  })

  await t.test('goes on after a run that it has cancelled', async (t) => {
    const log = `${place(t).home}/log`
    const at = await approved(t, { fixture: fixture('--log', log) })
    const { client } = await host(t, at)
    const controller = new AbortController()
    const begun = deferred()
    const ended = runs(client, 'fixture.hang({})', { signal: controller.signal })
    const waiting = setInterval(() => arrived(log, 'hang').length > 0 && begun.resolve(), 50)
    await begun.promise
    clearInterval(waiting)
    controller.abort()
    await assert.rejects(ended)
    const { structuredContent } = await runs(client, '1 + 1')
    assert.equal(structuredContent.value, 2)
  })

  await t.test('sees a server that a person approves while it is connected, and nothing of one that nobody has', async (t) => {
    const at = place(t, { fixture: small() })
    const { client } = await host(t, at)
    const { structuredContent } = await client.callTool({
      name: 'search_mcp_tools',
      arguments: { query: 'forecast', limit: null, servers: null },
    })
    assert.deepEqual(structuredContent.tools, [])
    const changed = deferred()
    client.setNotificationHandler('notifications/tools/list_changed', () => changed.resolve())
    for (const stage of ['command', 'manifest']) {
      const { request } = JSON.parse((await run(at, ['approve', 'fixture', '--json'])).stdout).servers[0]
      assert.equal(request.stage, stage)
      await run(at, ['approve', 'fixture', '--digest', request.digest])
    }
    await changed.promise
    const { resources } = await client.listResources()
    assert.ok(resources.some(({ uri }) => uri === 'mcp-types://fixture.d.ts'))
    const { contents } = await client.readResource({ uri: 'mcp-types://fixture.d.ts' })
    assert.match(contents[0].text, /declare module "host:mcp-fixture"/)
  })

  await t.test('that closes its end, or sends rubbish, ends the program', async (t) => {
    const at = await approved(t, { fixture: small() })
    const { client, ended } = await host(t, at)
    await client.close()
    assert.equal((await ended).code, 0)
    const rubbish = await run(at, ['serve'], { input: 'GET / HTTP/1.1\n\n' })
    assert.equal(
      rubbish.stdout
        .trim()
        .split('\n')
        .filter(Boolean)
        .every((line) => JSON.parse(line)),
      true,
    )
    assert.notEqual(rubbish.code, 0)
  })
})

test('Two hosts at once are asked for their own calls alone', async (t) => {
  const at = await approved(t, { fixture: gated() })
  const asked = { one: [], two: [] }
  const hosts = await Promise.all(
    Object.keys(asked).map(async (name) => {
      const onElicit = (params) => {
        asked[name].push(params.message)
        return { action: 'accept', content: { allow: 'this call' } }
      }
      return { name, client: (await host(t, at, { capabilities: FORMS, onElicit })).client }
    }),
  )
  const writes = hosts.flatMap(({ name, client }) => [1, 2, 3].map(() => runs(client, `fixture.write_note({ text: '${name}' })`)))
  await Promise.all(writes)
  for (const [name, messages] of Object.entries(asked)) {
    assert.equal(messages.length, 3)
    assert.ok(messages.every((message) => message.includes(`"text": "${name}"`)))
  }
})

/** Starts the program over HTTP, and gives its URL. */
async function address(t, at, words) {
  const child = listenTo(t, process.execPath, [program, 'serve', '--http', '0', ...words], {
    cwd: at.work,
    env: environment(at),
    limit: LIMIT,
  })
  const ended = endOf(child)
  for (;;) {
    const url = /serving (http\S+)/.exec(child.output.stderr)?.[1]
    if (url) return { url, child, ended }
    await Promise.race([new Promise((resolve) => child.stderr.once('data', resolve)), ended])
    if (child.exitCode !== null) throw new Error(child.output.stderr)
  }
}

test('Over HTTP a host runs code as well, is asked for its own calls, and finds the program well', async (t) => {
  const at = await approved(t, { fixture: gated() })
  const { url, child, ended } = await address(t, at, [])
  assert.equal((await fetch(new URL('/health', url))).status, 200)
  const asked = []
  const client = new Client({ name: 'Test Host', version: '1.0.0' }, { capabilities: FORMS })
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    asked.push(params.message)
    assert.equal(await inFlight(), '1')
    return { action: 'accept', content: { allow: 'this call' } }
  })
  const metrics = async () => await (await fetch(new URL('/metrics', url))).text()
  const inFlight = async () => /^hyperlight_mcp_runs_in_flight (\d+)/m.exec(await metrics())[1]
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  const { structuredContent } = await runs(client, `fixture.write_note({ text: 'over HTTP' })`)
  assert.doesNotMatch(JSON.stringify(structuredContent), /ERR_/)
  assert.equal(asked.length, 1)
  assert.equal(await inFlight(), '0')
  await client.close()
  child.kill('SIGTERM')
  assert.equal((await ended).code, 0)
})

test('Where other machines can connect, nothing is served without a token', async (t) => {
  const at = await approved(t, { fixture: small() })
  const { code, stderr } = await run(at, ['serve', '--http', '0.0.0.0:0'])
  assert.notEqual(code, 0)
  assert.match(stderr, /token/)
  const wrong = await run(at, ['serve', '--http', 'nowhere:port'])
  assert.equal(wrong.code, 2)
  const unnamed = await run(at, ['serve', '--agent', 'two words'])
  assert.equal(unnamed.code, 1)
  assert.match(unnamed.stderr, /name must match/)
})

test('A host of protocol 2026-07-28 is asked by input_required, on both transports', async (t) => {
  const log = `${place(t).home}/log`
  const at = await approved(t, { fixture: gated('--log', log) })
  const newest = { versionNegotiation: { mode: 'auto' } }
  const asked = []
  const onElicit = (params) => {
    asked.push(params)
    return { action: 'accept', content: { allow: 'this call' } }
  }
  const { client } = await host(t, at, { capabilities: FORMS, onElicit, versions: newest })
  const { url } = await address(t, at, [])
  const remote = new Client({ name: 'Test Host', version: '1.0.0' }, { capabilities: FORMS, ...newest })
  remote.setRequestHandler('elicitation/create', async ({ params }) => onElicit(params))
  await remote.connect(new StreamableHTTPClientTransport(new URL(url)))
  for (const [index, one] of [client, remote].entries()) {
    const { structuredContent } = await runs(one, `fixture.write_note({ text: 'x' })`)
    assert.doesNotMatch(JSON.stringify(structuredContent), /ERR_/)
    assert.equal(asked.length, index + 1)
    assert.deepEqual(asked[index].requestedSchema.properties.allow.enum, ['this call', 'this run', 'no'])
  }
  assert.equal(arrived(log, 'write_note').length, 2)
  await remote.close()
})
