// Tests of what a host of `hyperlight-mcp serve` is told about answers and requests that violate the protocol: each error has a stable
// code.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { approved } from './command-line.mjs'
import { ask, send } from './serve-raw.mjs'
import { CAPABILITIES, overStdio, served } from './serving.mjs'

/** The invalid answers of a server, by method and then by the requested name. */
const ANSWERS = {
  'tools/call': {
    text: 'done',
    object: { content: {} },
    number: { content: [5] },
    wordless: { content: [{ type: 'text' }] },
    sound: { content: [{ type: 'text', text: 'sound' }] },
  },
  'resources/read': {
    'a:list': { contents: 'x' },
    'a:type': { contents: [{ uri: 'a:type', text: 5 }] },
    'a:odd': { contents: [{ uri: 'a:odd', text: '', _meta: 5 }] },
  },
  'prompts/get': { none: { description: 'd' }, role: { messages: [{ role: 'system', content: { type: 'text', text: 'x' } }] } },
  'completion/complete': { none: {}, role: { completion: { values: ['a', 1] } } },
}

const rubbish = {
  command: process.execPath,
  args: [
    '-e',
    `const answers = ${JSON.stringify(ANSWERS)}
    const named = (method) => Object.keys(answers[method]).map((name) => ({ name }))
    const all = {
      initialize: ({ protocolVersion }) => ({
        protocolVersion, capabilities: { tools: {}, resources: {}, prompts: {}, completions: {} }, serverInfo: { name: 'r', version: '1' },
      }),
      'tools/list': () => ({ tools: named('tools/call').map((tool) => ({ ...tool, inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } })) }),
      'resources/list': () => ({ resources: named('resources/read').map((resource) => ({ ...resource, uri: resource.name })) }),
      'resources/templates/list': () => ({ resourceTemplates: [] }),
      'prompts/list': () => ({ prompts: named('prompts/get').map((prompt) => ({ ...prompt, arguments: [{ name: 'x' }] })) }),
    }
    require('node:readline').createInterface(process.stdin).on('line', (line) => {
      const { id, method, params } = JSON.parse(line)
      if (id === undefined) return
      const result = all[method]?.(params) ?? answers[method]?.[params.ref?.name ?? params.name ?? params.uri]
      console.log(JSON.stringify({ jsonrpc: '2.0', id, ...(result ? { result } : { error: { code: -32601, message: 'unknown' } }) }))
    })`,
  ],
}

test('An answer of a server that is not a result is an error that names the server and what is wrong, and never an empty success', async (t) => {
  const at = await approved(t, { rubbish })
  const { client } = await overStdio(t, at, { words: ['--direct'], onElicit: () => ({ action: 'cancel' }) })
  for (const [tool, problem] of [
    ['text', /it is not an object/],
    ['object', /no list of content/],
    ['number', /content\[0\] is not an object/],
    ['wordless', /content\[0\]\.text is not a text/],
  ]) {
    const { isError, content, _meta } = await client.callTool({ name: `mcp_rubbish_${tool}`, arguments: {} })
    assert.deepEqual([isError, _meta['io.hyperlight-mcp/code']], [true, 'ERR_PROTOCOL'], tool)
    assert.match(content[0].text, new RegExp(`"rubbish" to ${tool} is malformed`))
    assert.match(content[0].text, problem)
  }
  assert.equal((await client.callTool({ name: 'mcp_rubbish_sound', arguments: {} })).content[0].text, 'sound')
  const refused = async (asked, problem) => {
    const error = await asked.then(assert.fail, (thrown) => thrown)
    assert.equal(error.data?.code, 'ERR_PROTOCOL', String(error))
    assert.match(error.message, problem)
    assert.match(error.message, /"rubbish"/)
  }
  await refused(client.readResource({ uri: 'a:list' }), /no list of contents/)
  await refused(client.readResource({ uri: 'a:type' }), /contents\[0\]\.text is not a text/)
  await refused(client.readResource({ uri: 'a:odd' }), /a part that the protocol does not have/)
  await refused(client.getPrompt({ name: 'none' }), /no list of messages/)
  await refused(client.getPrompt({ name: 'role' }), /messages\[0\]\.role/)
  const completed = (name) => client.complete({ ref: { type: 'ref/prompt', name }, argument: { name: 'x', value: '' } })
  await refused(completed('none'), /no list of values/)
  await refused(completed('role'), /completion\.values\[1\] is not a text/)
  const code = `import { object } from "host:mcp-rubbish"; export const handler = () => { try { return object({}) } catch (error) { return error.code } }`
  const ran = await client.callTool({ name: 'run_javascript', arguments: { code, input: null, timeoutMs: null } })
  assert.equal(ran.structuredContent.value, 'ERR_PROTOCOL')
})

test('Each error of ours has its code in data.code', async (t) => {
  const at = await approved(t, { rubbish })
  const { client, child } = await overStdio(t, at, { words: ['--direct'] })
  const { url } = await served(t, at)
  const codeOf = (asked) =>
    asked.then(
      () => 'none',
      ({ data }) => data?.code,
    )
  assert.equal(await codeOf(client.callTool({ name: 'nobody_has_it', arguments: {} })), 'ERR_UNKNOWN_TOOL')
  assert.equal(await codeOf(client.getPrompt({ name: 'absent' })), 'ERR_UNKNOWN_PROMPT')
  const argument = { name: 'x', value: '' }
  assert.equal(await codeOf(client.complete({ ref: { type: 'ref/prompt', name: 'absent' }, argument })), 'ERR_UNKNOWN_PROMPT')
  assert.equal(await codeOf(client.complete({ ref: { type: 'ref/resource', uri: 'b:{x}' }, argument })), 'ERR_UNKNOWN_RESOURCE')
  // rmcp answers neither of these.
  const answered = new Promise((resolve) =>
    child.stdout.on('data', (data) => /"(?:id":null|error)/.test(data) && resolve(JSON.parse(data))),
  )
  child.stdin.write('{nonsense\n')
  assert.equal((await answered).error.data.code, 'ERR_INVALID_REQUEST')
  const raw = async (method, params) => (await ask(url, method, params)).error?.data?.code
  assert.equal(await raw('nobody/knows', {}), 'ERR_INVALID_REQUEST')
  assert.equal(await raw('resources/read', { uri: 'b:absent' }), 'ERR_UNKNOWN_RESOURCE')
  const tasks = { 'io.modelcontextprotocol/clientCapabilities': { extensions: { 'io.modelcontextprotocol/tasks': {} } } }
  assert.equal(await raw('tasks/get', { taskId: 'absent', _meta: tasks }), 'ERR_UNKNOWN_CALL')
  const run = { name: 'run_javascript', arguments: { code: 'export const handler = () => 1', input: null, timeoutMs: null, session: null } }
  assert.equal(await raw('tools/call', { ...run, requestState: 'guessed', inputResponses: {} }), 'ERR_UNKNOWN_CALL')
})

test('A request without a session that names an old version is refused, as it could not be asked', async (t) => {
  const at = await approved(t, { rubbish })
  const { url } = await served(t, at)
  const old = { version: '2025-11-25', capabilities: CAPABILITIES }
  for (const [method, params] of [
    ['tools/list', {}],
    ['tools/call', { name: 'run_javascript', arguments: { code: 'export const handler = () => 1', input: null, timeoutMs: null } }],
    ['resources/list', {}],
  ]) {
    const { error } = await ask(url, method, params, old)
    assert.deepEqual(error?.data, { requested: '2025-11-25', supported: ['2026-07-28'], code: 'ERR_INVALID_REQUEST' }, method)
    assert.match(error.message, /begin a session with initialize/)
  }
  assert.ok((await ask(url, 'tools/list')).tools.length > 0)
  // The header and the body must agree.
  const disagreeing = await send(url, 'tools/list', {}, { ...old, header: '2026-07-28' })
  assert.equal(disagreeing.status, 400)
  assert.ok((await disagreeing.json()).error.code < 0)
})
