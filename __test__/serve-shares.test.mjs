// Tests of what one host can take from the others of a served gateway, and of the stream on which a host is asked and told.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ask, messagesOf } from './serve-raw.mjs'
import { answering, fixture, gated, openApproved, tokenFileOf, waitFor } from './support.mjs'

const VERSION = '2025-11-25'
const TOKENS = { loud: 'a'.repeat(40), quiet: 'b'.repeat(40) }
let lastId = 0

/** A server of many tools with long schemas. */
const big = {
  command: process.execPath,
  box: 'off',
  confirm: 'never',
  args: answering(`const properties = Object.fromEntries(Array.from({ length: 20 }, (_, i) => ['p' + i, { type: 'string', description: 'parameter ' + i }]))
    const tool = (_, i) => ({ name: 'tool_' + i, description: ('word' + i + ' ').repeat(60), inputSchema: { type: 'object', properties }, annotations: { readOnlyHint: true } })
    const answers = {
      'tools/list': () => ({ tools: Array.from({ length: 400 }, tool) }),
    }`),
}

function post(url, message, { session, token } = {}) {
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...(session && { 'mcp-session-id': session, 'mcp-protocol-version': VERSION }),
    ...(token && { authorization: `Bearer ${token}` }),
  }
  return fetch(url, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', ...message }) })
}

/** Begins a session, and gives its id. */
async function opened(url, { token, capabilities = {} } = {}) {
  const params = { protocolVersion: VERSION, capabilities, clientInfo: { name: 'raw', version: '1' } }
  const response = await post(url, { id: ++lastId, method: 'initialize', params }, { token })
  const session = response.headers.get('mcp-session-id')
  await response.text()
  await (await post(url, { method: 'notifications/initialized' }, { session, token })).text()
  return session
}

const listening = (url, session) =>
  fetch(url, { headers: { accept: 'text/event-stream', 'mcp-session-id': session, 'mcp-protocol-version': VERSION } })

/** Asks a served gateway, and gives the last message of the answer. */
async function asked(url, session, method, params, { token } = {}) {
  const { received } = messagesOf(await post(url, { id: ++lastId, method, params }, { session, token }))
  await waitFor(`the answer to ${method}`, () => received.some(({ result, error }) => result || error), 60_000)
  return received.at(-1)
}

test('Unknown names of direct tools cost no list of all tools', async (t) => {
  const gateway = await openApproved(t, { big })
  const served = await gateway.serve({ http: 0, direct: true })
  const session = await opened(served.url)
  const took = async (work) => {
    const before = performance.now()
    await work()
    return performance.now() - before
  }
  const lists = await took(async () => {
    for (let i = 0; i < 4; i++) assert.ok((await asked(served.url, session, 'tools/list', {})).result.tools.length > 400)
  })
  const names = Array.from({ length: 64 }, (_, i) => `mcp_big_absent_${i}`)
  const unknown = await took(async () => {
    const answers = await Promise.all(names.map((name) => asked(served.url, session, 'tools/call', { name, arguments: {} })))
    for (const { error } of answers) assert.equal(error?.data?.code, 'ERR_UNKNOWN_TOOL')
  })
  // Each of the 64 calls would take as long as a list.
  assert.ok(unknown < 4 * lists, `64 unknown names took ${unknown} ms, and 4 lists ${lists} ms`)
})

test('Descriptions that one caller asks for without a session wait for each other, and another caller is served beside them', async (t) => {
  const gateway = await openApproved(t, { big })
  const { url } = await gateway.serve({ http: 0, tokenFile: tokenFileOf(t, TOKENS) })
  const describe = async (token) => {
    const { structuredContent } = await ask(url, 'tools/call', { name: 'describe_mcp_tools', arguments: { names: ['big'] } }, { token })
    assert.equal(structuredContent.error, undefined)
  }
  let answered = 0
  const loud = Array.from({ length: 40 }, async () => {
    await describe(TOKENS.loud)
    answered += 1
  })
  await describe(TOKENS.quiet)
  const before = answered
  await Promise.all(loud)
  // Without turns, all 40 would be answered first. How many are depends on how fast this process reads their answers.
  assert.ok(before < 30, `${before} of the other caller were answered before`)
})

test('A host is told once of a change, however often it says that it is initialized, and of none that it does not see', async (t) => {
  const servers = { first: fixture(), hidden: fixture('--tools', 'echo'), second: fixture('--tools', 'echo') }
  const gateway = await openApproved(t, { first: servers.first }, { config: { mcpServers: servers } })
  const { url } = await gateway.serve({ http: 0, servers: ['first', 'second'] })
  const session = await opened(url)
  for (let i = 0; i < 20; i++) await (await post(url, { method: 'notifications/initialized' }, { session })).text()
  const { received } = messagesOf(await listening(url, session))
  await asked(url, session, 'tools/list', {})
  const changes = () => received.filter(({ method }) => method?.endsWith('/list_changed')).map(({ method }) => method.split('/')[1])
  await gateway.approve('hidden')
  await new Promise((resolve) => setTimeout(resolve, 2500))
  assert.deepEqual(changes(), [], 'it sees nothing of this server')
  await gateway.approve('second')
  await waitFor('the change', () => changes().length >= 3, 20_000)
  await new Promise((resolve) => setTimeout(resolve, 500))
  assert.deepEqual(changes().sort(), ['prompts', 'resources', 'tools'])
})

const call = (body) => ({
  name: 'run_javascript',
  arguments: { code: `import * as fixture from "host:mcp-fixture"; export const handler = () => ${body}`, input: null, timeoutMs: null },
})

for (const [what, server, params, content] of [
  ['about a direct tool', gated(), { name: 'mcp_fixture_write_note', arguments: { text: 'x' } }, { allow: 'this call' }],
  ['about a run', gated(), call(`fixture.write_note({ text: 'x' })`), { allow: 'this call' }],
  ['by a server during a direct tool', fixture(), { name: 'mcp_fixture_elicit', arguments: {} }, {}],
  ['by a server during a run', fixture(), call('fixture.elicit({})'), {}],
]) {
  test(`A host without a stream of its own is asked ${what} on the stream of its request`, async (t) => {
    const gateway = await openApproved(t, { fixture: server })
    const { url } = await gateway.serve({ http: 0, direct: true })
    const session = await opened(url, { capabilities: { elicitation: { form: {} } } })
    const { received } = messagesOf(await post(url, { id: ++lastId, method: 'tools/call', params }, { session }))
    await waitFor('the question', () => received.some(({ method }) => method === 'elicitation/create'), 20_000)
    const { id } = received.find(({ method }) => method === 'elicitation/create')
    await post(url, { id, result: { action: 'accept', content } }, { session })
    await waitFor('the answer', () => received.some(({ result }) => result), 20_000)
    const { result } = received.at(-1)
    assert.equal(result.isError, false, JSON.stringify(result))
  })
}

test('A host that asks for the stream of its request again gets no question that it has received or answered', async (t) => {
  const gateway = await openApproved(t, { fixture: gated() })
  const { url } = await gateway.serve({ http: 0 })
  const session = await opened(url, { capabilities: { elicitation: { form: {} } } })
  const params = call(`['x', 'y'].map((text) => fixture.write_note({ text }))`)
  const answer = (id) => post(url, { id, result: { action: 'accept', content: { allow: 'this call' } } }, { session })
  const response = await post(url, { id: ++lastId, method: 'tools/call', params }, { session })
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  while (!/^data:.*elicitation\/create.*\n/m.test(text)) text += (await reader.read()).value
  await reader.cancel()
  const first = JSON.parse(/^data:(.*elicitation\/create.*)$/m.exec(text)[1]).id
  const received = [...text.matchAll(/^id: ?(.+)$/gm)].at(-1)[1].trim()
  const headers = { accept: 'text/event-stream', 'mcp-session-id': session, 'mcp-protocol-version': VERSION }
  const again = (last) => fetch(url, { headers: { ...headers, 'last-event-id': last } })
  const resumed = messagesOf(await again(received))
  assert.equal((await answer(first)).status, 202)
  const asks = () => resumed.received.filter(({ method }) => method === 'elicitation/create').map(({ id }) => id)
  await waitFor('the second question', () => asks().some((id) => id !== first), 20_000)
  assert.deepEqual(asks().includes(first), false, 'the first question was received already')
  const [second] = asks()
  // A client that has not noted the last event gets what is still open, and an answer that comes twice changes nothing.
  assert.equal((await answer(first)).status, 202)
  assert.equal((await answer(second)).status, 202)
  await waitFor('the result', () => resumed.received.some(({ result }) => result), 20_000)
  assert.deepEqual(resumed.received.at(-1).result.structuredContent.value.length, 2)
})

/** A server whose answers contain a secret of its entry so often that only their redacted form is within the limit. */
const SECRET = 'q7Zp'.repeat(100)
const secretive = {
  command: process.execPath,
  box: 'off',
  confirm: 'never',
  env: { API_KEY: SECRET },
  args: answering(`const text = Array(8).fill(process.env.API_KEY).join(' ')
    const give = (name) => ({ name, inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } })
    const answers = {
      'tools/list': () => ({ tools: ['give', 'fail'].map(give) }),
      'tools/call': ({ name }) => ({ content: [{ type: 'text', text }], isError: name === 'fail' }),
      'resources/list': () => ({ resources: [{ uri: 'note://1', name: 'note' }] }),
      'resources/templates/list': () => ({ resourceTemplates: [] }),
      'resources/read': ({ uri }) => ({ contents: [{ uri, text }] }),
      'prompts/list': () => ({ prompts: [{ name: 'plan', arguments: [{ name: 'topic' }] }] }),
      'prompts/get': () => ({ messages: [{ role: 'user', content: { type: 'text', text } }] }),
      'completion/complete': () => ({ completion: { values: [text] } }),
    }`),
}

test('An answer that is larger than maxResponseBytes is refused before it is redacted', async (t) => {
  const answered = async (maxResponseBytes, method, params) => {
    const limits = { maxResponseBytes, maxInputBytes: 4096, maxCodeBytes: 4096 }
    const gateway = await openApproved(t, { secretive }, { limits })
    const { url } = await gateway.serve({ http: 0, direct: true })
    const { result, error } = await asked(url, await opened(url), method, params)
    return { text: JSON.stringify(result ?? error), code: error?.data?.code ?? result?._meta?.['io.hyperlight-mcp/code'] }
  }
  const code = `import { call } from "host:mcp"; export const handler = () => { try { return call('secretive', 'fail') } catch (error) { return { code: error.code } } }`
  for (const [method, params, isRun] of [
    ['tools/call', { name: 'mcp_secretive_give', arguments: {} }],
    ['tools/call', { name: 'mcp_secretive_fail', arguments: {} }],
    ['resources/read', { uri: 'note://1' }],
    ['prompts/get', { name: 'plan' }],
    ['completion/complete', { ref: { type: 'ref/prompt', name: 'plan' }, argument: { name: 'topic', value: '' } }],
    ['tools/call', { name: 'run_javascript', arguments: { code, input: null, timeoutMs: null } }, true],
  ]) {
    const whole = await answered(1024 * 1024, method, params)
    assert.ok(whole.text.includes('[redacted]') && !whole.text.includes(SECRET), whole.text)
    const refused = await answered(1024, method, params)
    const what = `${method} ${params.name}: ${refused.text}`
    if (isRun) assert.ok(refused.text.includes('ERR_RESPONSE_TOO_LARGE'), what)
    else assert.equal(refused.code, 'ERR_RESPONSE_TOO_LARGE', what)
  }
})
