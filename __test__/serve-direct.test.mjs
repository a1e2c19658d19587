// Tests of hyperlight-mcp serve --direct: a host calls each approved tool by a separate name. callTool accepts these names too.
import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { test } from 'node:test'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { approved, environment, LIMIT, place, program, run, small } from './command-line.mjs'
import { afterwards, answering, arrived, deferred, endOf, failure, fixture, gated, listenTo, openApproved } from './support.mjs'

const OWN = ['run_javascript', 'search_mcp_tools', 'describe_mcp_tools', 'list_mcp_servers', 'mcp_server_info', 'manage_mcp']
const FORMS = { elicitation: { form: {} } }
const NEWEST = { versionNegotiation: { mode: 'auto' } }

/** A server with a tool that has a view (MCP Apps), which it does not list. */
const withView = {
  command: process.execPath,
  args: answering(`const view = 'ui://views/chart'
    const schema = { type: 'object', properties: { n: { type: 'number', description: 'a num\\u200bber' } }, required: ['n'] }
    const tool = {
      name: 'Show Chart', title: 'A chart', description: 'Shows a chart', inputSchema: schema, outputSchema: schema,
      annotations: { readOnlyHint: true, title: 'Chart' },
      _meta: { ui: { resourceUri: view, visibility: ['model', 'app'] }, 'example.com/x': 1, 'io.hyperlight-mcp/source': 'mcp://other/tool' },
    }
    const html = { uri: view, mimeType: 'text/html;profile=mcp-app', text: '<p>chart</p>', _meta: { ui: { prefersBorder: true } } }
    const answers = {
      'tools/list': () => ({ tools: [tool] }),
      'resources/list': () => ({ resources: [] }),
      'resources/templates/list': () => ({ resourceTemplates: [] }),
      'resources/read': () => ({ contents: [html] }),
      'tools/call': ({ arguments: { n } }) =>
        ({ content: [{ type: 'text', text: 'drawn', annotations: { audience: ['user'] } }], structuredContent: { n }, _meta: { 'example.com/id': 7 } }),
    }`),
}

function streams(child) {
  const transport = {
    /** The messages that came, in order. */
    came: [],
    async start() {
      createInterface({ input: child.stdout }).on('line', (line) => {
        transport.came.push(JSON.parse(line))
        transport.onmessage?.(JSON.parse(line))
      })
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

/** Starts the program as a host does, and connects to it. */
async function host(t, at, words, { capabilities = {}, onElicit, versions } = {}) {
  const child = listenTo(t, process.execPath, [program, 'serve', ...words], { cwd: at.work, env: environment(at), limit: LIMIT })
  child.stdin.on('error', () => {})
  const client = new Client({ name: 'Test Host', version: '1.0.0' }, { capabilities, ...versions })
  if (onElicit) client.setRequestHandler('elicitation/create', async ({ params }) => onElicit(params))
  await client.connect(streams(child))
  afterwards(t, () => client.close())
  return client
}

/** The same over HTTP. */
async function remote(t, at, words, { capabilities = {}, onElicit, versions } = {}) {
  const command = [program, 'serve', '--http', '0', ...words]
  const child = listenTo(t, process.execPath, command, { cwd: at.work, env: environment(at), limit: LIMIT })
  const ended = endOf(child)
  let url
  while (!url) {
    await Promise.race([new Promise((resolve) => child.stderr.once('data', resolve)), ended])
    url = /serving (http\S+)/.exec(child.output.stderr)?.[1]
    if (!url && child.exitCode !== null) throw new Error(child.output.stderr)
  }
  const client = new Client({ name: 'Test Host', version: '1.0.0' }, { capabilities, ...versions })
  if (onElicit) client.setRequestHandler('elicitation/create', async ({ params }) => onElicit(params))
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  afterwards(t, () => client.close())
  return client
}

const names = async (client) => (await client.listTools()).tools.map(({ name }) => name)
const direct = async (client) => (await names(client)).filter((name) => !OWN.includes(name))

async function approve(at, name) {
  for (const stage of ['command', 'manifest']) {
    const { request } = JSON.parse((await run(at, ['approve', name, '--json'])).stdout).servers[0]
    assert.equal(request.stage, stage)
    await run(at, ['approve', name, '--digest', request.digest])
  }
}

test('A host finds each approved tool, as it was approved, beside those of the program', async (t) => {
  const at = await approved(t, { views: withView })
  for (const versions of [undefined, NEWEST]) {
    const client = await host(t, at, ['--direct'], { versions })
    assert.deepEqual((await names(client)).slice(0, OWN.length), OWN)
    const [tool, ...others] = (await client.listTools()).tools.slice(OWN.length)
    assert.deepEqual(others, [])
    const schema = { type: 'object', properties: { n: { type: 'number', description: 'a number' } }, required: ['n'] }
    const _meta = {
      ui: { resourceUri: 'ui://views/chart', visibility: ['model', 'app'] },
      'example.com/x': 1,
      'io.hyperlight-mcp/source': 'mcp://views/Show%20Chart',
    }
    const annotations = { readOnlyHint: true, title: 'Chart' }
    const texts = { name: 'mcp_views_show_chart', title: 'A chart', description: 'Shows a chart' }
    assert.deepEqual(tool, { ...texts, inputSchema: schema, outputSchema: schema, annotations, _meta })
    const called = await client.callTool({ name: 'mcp_views_show_chart', arguments: { n: 3 } })
    assert.deepEqual(called.content, [{ type: 'text', text: 'drawn', annotations: { audience: ['user'] } }])
    assert.deepEqual([called.structuredContent, called.isError, called._meta['example.com/id']], [{ n: 3 }, false, 7])
    const { resources } = await client.listResources()
    assert.ok(resources.every(({ uri }) => !uri.startsWith('ui:')))
    const { contents } = await client.readResource({ uri: 'ui://views/chart' })
    const text = '<p>chart</p>'
    const uri = 'ui://views/chart'
    assert.deepEqual(contents, [{ uri, mimeType: 'text/html;profile=mcp-app', text, _meta: { ui: { prefersBorder: true } } }])
    await assert.rejects(client.readResource({ uri: 'ui://views/other' }))
  }
})

test('Without --direct no tool of a server is listed or called, and with servers only theirs', async (t) => {
  const at = await approved(t, { one: small(), two: small() })
  const plain = await host(t, at, [])
  assert.deepEqual(await names(plain), OWN)
  await assert.rejects(plain.callTool({ name: 'mcp_one_sleep', arguments: { ms: 1 } }), /there is no tool "mcp_one_sleep"/)
  const some = await host(t, at, ['--direct', 'two', '--names', 'hyphen'])
  assert.deepEqual((await direct(some)).toSorted(), ['two-get-forecast', 'two-sleep', 'two-write-note'])
  const { content } = await some.callTool({ name: 'two-sleep', arguments: { ms: 1 } })
  assert.equal(content[0].text, 'slept')
  for (const name of ['one-sleep', 'mcp_two_sleep', 'two.sleep'])
    await assert.rejects(some.callTool({ name, arguments: { ms: 1 } }), /there is no tool/)
  const wrong = await run(at, ['serve', '--direct', 'tow'])
  assert.equal(wrong.code, 1)
  assert.match(wrong.stderr, /did you mean "two"/)
})

test('A direct call of a write asks the person of the host, in both protocols and over both transports', async (t) => {
  const log = `${place(t).home}/log`
  const at = await approved(t, { fixture: small('--log', log) })
  for (const connect of [host, remote])
    for (const versions of [undefined, NEWEST]) {
      const asked = []
      const answers = ['no', 'this call']
      const onElicit = (params) => {
        asked.push(params)
        return { action: 'accept', content: { allow: answers.shift() } }
      }
      const before = arrived(log, 'write_note').length
      const client = await connect(t, at, ['--direct'], { capabilities: FORMS, onElicit, versions })
      const write = () => client.callTool({ name: 'mcp_fixture_write_note', arguments: { text: 'x' } })
      const denied = await write()
      assert.equal(denied.isError, true)
      assert.match(denied.content[0].text, /denied/)
      assert.equal(denied._meta['io.hyperlight-mcp/code'], 'ERR_CALL_DENIED')
      assert.equal(arrived(log, 'write_note').length, before)
      const { content, isError } = await write()
      assert.deepEqual([content[0].text, isError], ['noted', false])
      assert.match(asked[0].message, /"write_note" of the MCP server "fixture".*\{\s*"text": "x"\s*\}/s)
      assert.deepEqual([asked.length, arrived(log, 'write_note').length], [2, before + 1])
    }
  const silent = await host(t, at, ['--direct'])
  const refused = await silent.callTool({ name: 'mcp_fixture_write_note', arguments: { text: 'x' } })
  assert.match(refused.content[0].text, /--allow-writes SERVER/)
  const wrong = await silent.callTool({ name: 'mcp_fixture_get_forecast', arguments: { location: 5 } })
  assert.equal(wrong._meta['io.hyperlight-mcp/code'], 'ERR_INVALID_ARGUMENTS')
})

test('A direct call tells of its progress and ends with its request, and failures of the tool are the tool’s own', async (t) => {
  const log = `${place(t).home}/log`
  const at = await approved(t, { fixture: fixture('--tools', 'progress,hang,error,sleep', '--log', log) })
  const client = await host(t, at, ['--direct'])
  await client.callTool({ name: 'mcp_fixture_progress', arguments: { steps: 3 } }, { onprogress: () => {} })
  // The client itself may drop progress that comes at once with the result.
  const came = client.transport.came.slice(-4)
  assert.deepEqual(
    came.map(({ params }) => params?.progress),
    [1, 2, 3, undefined],
  )
  assert.equal(came[3].result.content[0].text, 'done')
  const failed = await client.callTool({ name: 'mcp_fixture_error', arguments: { message: 'no such city' } })
  assert.deepEqual([failed.isError, failed.content[0].text, failed._meta], [true, 'no such city', undefined])
  const controller = new AbortController()
  const ended = client.callTool({ name: 'mcp_fixture_hang', arguments: {} }, { signal: controller.signal })
  const begun = deferred()
  const waiting = setInterval(() => arrived(log, 'hang').length > 0 && begun.resolve(), 50)
  await begun.promise
  clearInterval(waiting)
  controller.abort()
  await assert.rejects(ended)
  const { content } = await client.callTool({ name: 'mcp_fixture_sleep', arguments: { ms: 1 } })
  assert.equal(content[0].text, 'slept')
})

test('A name stays with the tool that was approved first, over a restart and another order, and a change is announced', async (t) => {
  // c_d of b and d of b-c would both be mcp_b_c_d.
  const of = (tool) => gated('--tools', 'none', '--extra-tool', tool)
  const at = place(t, { 'b-c': of('d'), b: of('c_d') })
  await approve(at, 'b')
  const client = await host(t, at, ['--direct'])
  assert.deepEqual(await direct(client), ['mcp_b_c_d'])
  const changed = deferred()
  client.setNotificationHandler('notifications/tools/list_changed', () => changed.resolve())
  await approve(at, 'b-c')
  await changed.promise
  const listed = await direct(client)
  assert.equal(listed.length, 2)
  const other = listed.find((name) => name !== 'mcp_b_c_d')
  assert.match(other, /^mcp_b_c_d_[0-9a-f]{6}$/)
  const { tools } = await client.listTools()
  const source = (name) => tools.find((tool) => tool.name === name)._meta['io.hyperlight-mcp/source']
  assert.deepEqual([source('mcp_b_c_d'), source(other)], ['mcp://b/c_d', 'mcp://b-c/d'])
  const again = await host(t, at, ['--direct', 'b-c,b'])
  assert.deepEqual((await direct(again)).toSorted(), listed.toSorted())
  await run(at, ['revoke', 'b'])
  await approve(at, 'b')
  const last = await host(t, at, ['--direct'])
  assert.deepEqual((await direct(last)).toSorted(), listed.toSorted())
})

test('What a model disables for itself goes from its list, which is announced, and comes back', async (t) => {
  const at = await approved(t, { one: small(), two: small() })
  const client = await host(t, at, ['--direct'])
  let told = deferred()
  client.setNotificationHandler('notifications/tools/list_changed', () => told.resolve())
  const manage = async (action) => {
    told = deferred()
    const { isError } = await client.callTool({ name: 'manage_mcp', arguments: { action, server: 'one' } })
    assert.equal(isError, false)
    await told.promise
    return (await direct(client)).filter((name) => name.startsWith('mcp_one_')).length
  }
  assert.deepEqual([await manage('disable'), await manage('enable')], [0, 3])
})

test('callTool takes a name of either style, of a gateway and of an agent', async (t) => {
  const gateway = await openApproved(t, { fixture: fixture('--tools', 'echo,get-forecast') })
  const { directNames } = await gateway.toolInfo('fixture', 'get_forecast')
  assert.deepEqual(directNames, { underscore: 'mcp_fixture_get_forecast', hyphen: 'fixture-get-forecast' })
  for (const caller of [gateway, gateway.agent('reader')])
    for (const name of Object.values(directNames)) {
      const { structuredContent } = await caller.callTool(name, { location: 'Oslo' }, { timeoutMs: 5000 })
      assert.equal(structuredContent.temperature, 93)
    }
  const unknown = await failure(gateway.callTool('mcp_fixture_get_forcast', {}), 'ERR_UNKNOWN_TOOL')
  assert.match(unknown.message, /no approved tool has the name "mcp_fixture_get_forcast": did you mean "mcp_fixture_get_forecast"\?/)
  assert.match((await failure(gateway.callTool('fixture-eco'), 'ERR_UNKNOWN_TOOL')).message, /did you mean "fixture-echo"/)
  assert.match((await failure(gateway.callTool('fixture-echo', [1]), 'ERR_INVALID_ARGUMENTS')).message, /fixture-echo/)
  await failure(gateway.callTool('fixture-echo', { value: 1 }, { timeout: 5 }), 'ERR_INVALID_OPTION')
  await gateway.disable('fixture')
  await failure(gateway.callTool('fixture-echo', { value: 1 }), 'ERR_NOT_ENABLED')
  await gateway.revoke('fixture')
  await failure(gateway.callTool('fixture-echo', { value: 1 }), 'ERR_UNKNOWN_TOOL')
})
