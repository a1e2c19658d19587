// Tests of what the operator of `hyperlight-mcp serve` sees and changes while it runs: proposals, approvals, disabled servers, and servers that
// need a person who is not there.
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'
import { approved, LIMIT, place, run, small } from './command-line.mjs'
import { ERAS, overHttp, overStdio, runs, served } from './serving.mjs'
import { afterwards, fixture, openApproved, openGateway, waitFor } from './support.mjs'

/** Approves the next stage of a server, as a person does who read the request. */
async function approve(at, name, stage) {
  const { request } = JSON.parse((await run(at, ['approve', name, '--json'])).stdout).servers[0]
  assert.equal(request.stage, stage)
  await run(at, ['approve', name, '--digest', request.digest])
}

const directNames = async (client) => (await client.listTools()).tools.map(({ name }) => name).filter((name) => name.startsWith('mcp_f'))

/** Counts how often the host is told that the list of tools has changed, by a notification or on a stream of `subscriptions/listen`. */
async function toldOfTools(client, era) {
  const told = { times: 0 }
  client.setNotificationHandler('notifications/tools/list_changed', () => {
    told.times += 1
  })
  if (era === '2026-07-28') await client.listen({ toolsListChanged: true })
  return told
}

test('A model finds a server that nobody has approved, and what it proposes is told to the operator with the command', async (t) => {
  const at = place(t, { fixture: small() })
  const { client, child } = await overStdio(t, at)
  const { servers } = (await client.callTool({ name: 'list_mcp_servers', arguments: {} })).structuredContent
  assert.deepEqual(
    servers.map(({ name, state }) => [name, state]),
    [['fixture', 'unapproved']],
  )
  const propose = () => client.callTool({ name: 'manage_mcp', arguments: { action: 'propose', server: 'fixture' } })
  const told = (what) => {
    const line = `warning: a model asks you to approve server "fixture". To read ${what}, and decide: hyperlight-mcp approve fixture`
    const said = () => child.output.stderr.replaceAll(/\s+/g, ' ')
    return waitFor(`${line} in:`, () => said().includes(line), LIMIT)
  }
  await propose()
  await told('what would run')
  await approve(at, 'fixture', 'command')
  await propose()
  await told('what it offers')
})

test('--servers with a server that is not approved waits for the approval', async (t) => {
  const at = place(t, { fixture: small(), other: small() })
  const { url, child } = await served(t, at, ['--servers', 'fixture', '--direct'])
  assert.match(child.output.stderr, /server "fixture" is not approved,\s+and\s+is\s+not\s+served\s+until\s+it\s+is/)
  assert.doesNotMatch(child.output.stderr, /"other"/)
  const client = await overHttp(t, url)
  const told = await toldOfTools(client)
  assert.deepEqual(await directNames(client), [])
  for (const stage of ['command', 'manifest']) await approve(at, 'fixture', stage)
  await waitFor('the change', () => told.times > 0, LIMIT)
  assert.equal((await directNames(client)).length, 3)
})

for (const era of Object.keys(ERAS)) {
  test(`A host of ${era} is told when the config disables a server, and when it no longer does`, async (t) => {
    const at = await approved(t, { fixture: small() })
    const { url } = await served(t, at, ['--direct'])
    const client = await overHttp(t, url, { era })
    const told = await toldOfTools(client, era)
    assert.equal((await directNames(client)).length, 3)
    for (const [disabled, names] of [
      [true, 0],
      [false, 3],
    ]) {
      const before = told.times
      const server = { ...small(), disabled }
      writeFileSync(join(at.home, '.hyperagent/config.json'), JSON.stringify({ mcpServers: { fixture: server } }))
      await waitFor(`disabled: ${disabled} is told`, () => told.times > before, LIMIT)
      assert.equal((await directNames(client)).length, names)
    }
  })
}

test('A host is told when the author of an agent disables a server, and enables it again', async (t) => {
  const gateway = await openApproved(t, { fixture: fixture('--tools', 'sleep') })
  const { url } = await gateway.serve({ http: 0, direct: true })
  const client = await overHttp(t, url)
  const told = await toldOfTools(client)
  for (const [change, names] of [
    ['disable', 0],
    ['enable', 1],
  ]) {
    const before = told.times
    await gateway[change]('fixture')
    await waitFor(`${change} is told`, () => told.times > before, LIMIT)
    assert.equal((await directNames(client)).length, names)
  }
})

test('serve({ servers }) gives hosts these servers and no others, whatever the gateway has', async (t) => {
  const gateway = await openGateway(t, { fixture: fixture(), other: fixture(), f3: fixture('--tools', 'sleep') })
  await gateway.approve('other')
  await gateway.enable('other')
  const { url } = await gateway.serve({ http: 0, servers: ['fixture', 'f3'], direct: true })
  const client = await overHttp(t, url)
  const told = await toldOfTools(client)
  const listed = async () => (await client.callTool({ name: 'list_mcp_servers', arguments: {} })).structuredContent.servers
  assert.deepEqual((await listed()).map(({ name }) => name).toSorted(), ['f3', 'fixture'])
  await gateway.approve('f3')
  await waitFor('the change', () => told.times > 0, LIMIT)
  assert.deepEqual(await directNames(client), ['mcp_f3_sleep'])
  const enabled = await client.callTool({ name: 'manage_mcp', arguments: { action: 'enable', server: 'other' } })
  assert.equal(enabled.structuredContent.error.code, 'ERR_UNKNOWN_SERVER')
  const code = 'import * as other from "host:mcp-other"; export const handler = () => other.sleep({ ms: 0 })'
  const ran = await client.callTool({ name: 'run_javascript', arguments: { code, input: null, timeoutMs: null } })
  assert.equal(ran.isError, true, JSON.stringify(ran.structuredContent))
  const called = client.callTool({ name: 'mcp_other_sleep', arguments: { ms: 0 } })
  await assert.rejects(called, /there is no tool/)
  const { resources } = await client.listResources()
  assert.deepEqual(
    resources.map(({ uri }) => uri),
    ['mcp-types://f3.d.ts'],
  )
  assert.equal((await gateway.callTool('other', 'sleep', { ms: 0 })).content[0].text, 'slept')
  await assert.rejects(gateway.serve({ http: 0, servers: ['nobody'] }), { code: 'ERR_UNKNOWN_SERVER' })
})

test('A server that asks for an input stays in the config of its host, and serve says that it cannot be started', async (t) => {
  const at = place(t)
  const inputs = ['token', 'mode'].map((id) => ({ type: 'promptString', id, ...(id === 'mode' && { default: 'fast' }) }))
  const input = (id) => `\${input:${id}}`
  const asking = { command: 'asking', env: { TOKEN: input('token'), MODE: input('mode') } }
  const answered = { command: 'answered', env: { MODE: input('mode') } }
  mkdirSync(join(at.work, '.vscode'))
  const file = join(at.work, '.vscode/mcp.json')
  writeFileSync(file, JSON.stringify({ inputs, servers: { asking, answered } }))
  const { stdout } = await run(at, ['install', 'vscode', '--scope', 'project', '--write', '--json'])
  const { moved, stays } = JSON.parse(stdout)
  assert.deepEqual([moved.map(({ name }) => name), stays.map(({ name }) => name)], [['answered'], ['asking']])
  assert.match(stays[0].why, /it asks for "token" when it starts, which serve cannot ask for/)
  // A config that has such a server already.
  const config = join(at.home, '.hyperagent/config.json')
  writeFileSync(config, JSON.stringify({ inputs, mcpServers: { asking, answered } }))
  const { child } = await served(t, at)
  const said = child.output.stderr.replaceAll(/\s+/g, ' ')
  assert.match(said, /server "asking" asks for its input "token" when it starts, and there is no terminal here/)
  assert.doesNotMatch(said, /server "answered" asks/)
})

/** A server over HTTP that wants a token as soon as it is locked, and whose authorization server needs a person. */
async function locking(t) {
  const state = { locked: false }
  const results = {
    initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'remote', version: '1' } }),
    'tools/list': () => ({ tools: [{ name: 'plain', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } }] }),
    'tools/call': () => ({ content: [{ type: 'text', text: 'plain' }] }),
    ping: () => ({}),
  }
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const base = `http://${request.headers.host}`
    const give = (value, status = 200, headers = {}) =>
      response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value))
    const documents = {
      '/.well-known/oauth-protected-resource/mcp': { resource: `${base}/mcp`, authorization_servers: [base] },
      '/.well-known/oauth-authorization-server': {
        issuer: base,
        authorization_endpoint: `${base}/authorize`,
        token_endpoint: `${base}/token`,
        registration_endpoint: `${base}/register`,
        code_challenge_methods_supported: ['S256'],
        response_types_supported: ['code'],
      },
    }
    if (documents[request.url]) return give(documents[request.url])
    if (request.url !== '/mcp') return give({}, 404)
    if (state.locked) {
      return give({}, 401, { 'www-authenticate': `Bearer resource_metadata="${base}/.well-known/oauth-protected-resource/mcp"` })
    }
    if (request.method !== 'POST') return response.writeHead(405).end()
    const { id, method, params } = JSON.parse(body)
    if (id === undefined) return response.writeHead(202).end()
    const result = results[method]?.(params)
    give({ jsonrpc: '2.0', id, ...(result ? { result } : { error: { code: -32601, message: 'unknown' } }) })
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  afterwards(t, () => new Promise((resolve) => server.close(resolve).closeAllConnections()))
  state.url = `http://127.0.0.1:${server.address().port}/mcp`
  return state
}

test('A model is told the command with which its user signs in to a server', async (t) => {
  const state = await locking(t)
  const at = await approved(t, { fixture: { url: state.url } })
  state.locked = true
  const { client } = await overStdio(t, at, { words: ['--direct', '--tool-errors', 'throw'] })
  const command = /the user has to sign in to the server, by this command in a terminal: hyperlight-mcp test SERVER/
  const called = await client.callTool({ name: 'mcp_fixture_plain', arguments: {} })
  assert.equal(called._meta['io.hyperlight-mcp/code'], 'ERR_AUTHORIZATION_REQUIRED', JSON.stringify(called))
  assert.match(called.content[0].text, command)
  const tested = await client.callTool({ name: 'manage_mcp', arguments: { action: 'test', server: 'fixture' } })
  assert.equal(tested.structuredContent.error.code, 'ERR_AUTHORIZATION_REQUIRED')
  assert.match(tested.structuredContent.error.hint, command)
  const { structuredContent } = await runs(client, 'fixture.plain({})')
  assert.match(JSON.stringify(structuredContent.error), /ERR_AUTHORIZATION_REQUIRED|requires authorization/)
})
