// Tests of what a caller of a served gateway can find out if each caller has its own grants.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { ERAS, issuerOf, overHttp, runs } from './serving.mjs'
import {
  afterwards,
  deferred,
  failure,
  fixture,
  fixtureProgram,
  folder,
  gated,
  openApproved,
  openGateway,
  tokenFileOf,
  waitFor,
} from './support.mjs'

const TOKENS = {
  one: '0123456789abcdef0123456789abcdef',
  two: 'fedcba9876543210fedcba9876543210',
  none: '00112233445566778899aabbccddeeff',
}

/** Serves a gateway with two servers. Each caller is granted one of them, and one caller none. */
async function granted(t) {
  const servers = { payroll: fixture('--resources'), weather: fixture() }
  const agents = { one: { fetch: { hosts: ['one.example'] } }, two: { fetch: { hosts: ['two.example'] } } }
  const gateway = await openApproved(t, servers, { config: { mcpServers: servers, agents } })
  for (const agent of ['one', 'two']) {
    const { digest } = await gateway.fetchApproval({ agent })
    await gateway.approveFetch({ agent, digest })
  }
  await gateway.setToolbox('pay', ['payroll/*', 'payroll/resource:*'])
  await gateway.setToolbox('sky', ['weather/*'])
  await gateway.grant('one', 'pay')
  await gateway.grant('two', 'sky')
  const { url } = await gateway.serve({ http: 0, tokenFile: tokenFileOf(t, TOKENS) })
  return { gateway, url }
}

for (const era of Object.keys(ERAS)) {
  test(`The instructions for a caller name its own servers and hosts, and no others (${era})`, async (t) => {
    const { url } = await granted(t)
    const instructions = async (token) => (await overHttp(t, url, { token: TOKENS[token], era })).getInstructions() ?? ''
    const [one, two, none] = await Promise.all(['one', 'two', 'none'].map(instructions))
    assert.match(one, /host:mcp-payroll/)
    assert.match(one, /one\.example/)
    assert.doesNotMatch(one, /weather|two\.example/)
    assert.match(two, /host:mcp-weather/)
    assert.match(two, /two\.example/)
    assert.doesNotMatch(two, /payroll|one\.example/)
    assert.doesNotMatch(none, /payroll|weather|example/)
  })
}

test('A resource that is no longer listed can be unsubscribed', async (t) => {
  const { gateway, url } = await granted(t)
  const client = await overHttp(t, url, { token: TOKENS.one })
  const uri = 'fixture://note.txt'
  await client.subscribeResource({ uri })
  await gateway.ungrant('one')
  await waitFor('the resource to go', async () => (await client.listResources()).resources.every((resource) => resource.uri !== uri))
  await client.unsubscribeResource({ uri })
  await assert.rejects(client.unsubscribeResource({ uri }), /no server has this resource/)
})

test('Calls of one caller that wait for a person have a limit, and another caller is still asked', async (t) => {
  const gateway = await openApproved(t, { fixture: gated() })
  const { url } = await gateway.serve({ http: 0, tokenFile: tokenFileOf(t, TOKENS), direct: true })
  const [asked, answer] = [[], deferred()]
  const onElicit = async (params) => asked.push(params) && answer.promise
  const loud = await overHttp(t, url, { token: TOKENS.one, onElicit })
  const quiet = await overHttp(t, url, { token: TOKENS.two, onElicit: () => ({ action: 'accept', content: { allow: 'this call' } }) })
  afterwards(t, () => answer.resolve({ action: 'decline' }))
  const write = (client) => client.callTool({ name: 'mcp_fixture_write_note', arguments: { text: 'x' } })
  const waiting = Array.from({ length: 64 }, () => write(loud))
  await waitFor('all questions', () => asked.length === 64)
  const refused = await write(loud)
  assert.deepEqual([refused.isError, refused._meta['io.hyperlight-mcp/code']], [true, 'ERR_BUSY'])
  assert.match(refused.content[0].text, /64 calls of this caller that wait for an answer/)
  assert.equal((await write(quiet)).content[0].text, 'noted')
  answer.resolve({ action: 'accept', content: { allow: 'this call' } })
  for (const done of await Promise.all(waiting)) assert.equal(done.content[0].text, 'noted')
  assert.equal((await write(loud)).content[0].text, 'noted')
})

test("A task's server exists for no other agent and host, although they know its name", async (t) => {
  const gateway = await openApproved(t, { fixture: fixture() })
  const own = await gateway.agent('alice').sandbox({ task: { servers: [{ extra: fixture('--resources') }] } })
  const name = gateway
    .servers()
    .map((server) => server.name)
    .find((name) => name.startsWith('extra@task-'))
  await gateway.approve(name)
  const code = 'import { call } from "host:mcp"; export const handler = () => call("extra", "count", {}).structuredContent.count'
  assert.equal((await own.run(code)).value, 1)
  const bob = gateway.agent('bob')
  assert.deepEqual(
    bob.servers().map((server) => server.name),
    ['fixture'],
  )
  const unknown = async (attempt) => {
    const { message } = await failure(attempt, 'ERR_UNKNOWN_SERVER')
    assert.match(message, /there are: fixture$/)
  }
  await unknown(bob.callTool(name, 'count', {}))
  await unknown(bob.serverInfo(name))
  await unknown(bob.resources(name))
  const tools = Object.fromEntries(bob.agentTools().map((tool) => [tool.name, tool]))
  for (const action of ['info', 'enable', 'test', 'disable', 'propose'])
    assert.equal((await tools.manage_mcp.execute({ action, server: name })).error?.code, 'ERR_UNKNOWN_SERVER', action)
  const { url } = await gateway.serve({ http: 0, tokenFile: tokenFileOf(t, TOKENS), direct: true })
  const host = await overHttp(t, url, { token: TOKENS.one })
  const direct = `mcp_${name.replace(/[^a-z0-9]+/g, '_')}_count`
  await assert.rejects(host.callTool({ name: direct, arguments: {} }), /there is no tool/)
  await assert.rejects(host.readResource({ uri: `mcp-resource://${name}/fixture%3A%2F%2Fnote.txt` }), /no server has this resource/)
  assert.equal((await own.run(code)).value, 2)
})

test('A host calls and reads nothing of a server that no task attaches', async (t) => {
  const gateway = await openApproved(t, { fixture: fixture() })
  const server = { name: 'diary', command: fixtureProgram, args: ['--resources'], keywords: ['diary'] }
  await gateway.registerProvider('acme', { servers: () => [server] })
  await gateway.approve('acme--diary')
  const { url } = await gateway.serve({ http: 0, tokenFile: tokenFileOf(t, TOKENS), direct: true })
  const host = await overHttp(t, url, { token: TOKENS.one })
  const listed = (await host.listTools()).tools.map((tool) => tool.name)
  assert.ok(listed.includes('mcp_fixture_pid') && listed.every((name) => !name.includes('diary')))
  await assert.rejects(host.callTool({ name: 'mcp_acme_diary_pid', arguments: {} }), /there is no tool/)
  await assert.rejects(host.readResource({ uri: 'mcp-resource://acme--diary/fixture%3A%2F%2Fnote.txt' }), /no server has this resource/)
})

test('A host that names itself after an agent changes nothing of what is said about this agent', async (t) => {
  const config = {
    mcpServers: { fixture: fixture(), bank: fixture() },
    toolboxes: { readers: ['fixture/*'] },
    agents: { researcher: { toolboxes: ['readers'] } },
    defaultGrant: 'all',
  }
  const gateway = await openApproved(t, config.mcpServers, { config })
  const resolved = async () => (await gateway.resolve({ agent: 'researcher' })).servers.map(({ name, inForce }) => [name, inForce])
  const before = await resolved()
  assert.deepEqual(before.sort(), [
    ['bank', false],
    ['fixture', true],
  ])
  const { url } = await gateway.serve({ http: 0 })
  const host = await overHttp(t, url, { name: 'researcher' })
  assert.equal((await runs(host, 'fixture.echo({ value: 1 })')).structuredContent.value.value, 1)
  assert.deepEqual((await resolved()).sort(), before)
  gateway.agent('researcher')
  assert.deepEqual((await resolved()).sort(), before)
})

test('The event about something that is not granted marks a name that only the client has given', async (t) => {
  const events = []
  const config = { mcpServers: { fixture: fixture(), fresh: fixture() }, defaultGrant: 'none' }
  const gateway = await openGateway(t, config.mcpServers, { config, onEvent: (event) => events.push(event) })
  await gateway.approve('fixture')
  await gateway.enable('fixture')
  const { url } = await gateway.serve({ http: 0 })
  const host = await overHttp(t, url, { name: 'researcher' })
  const code = `import { call } from 'host:mcp'; export const handler = () => { try { call('fixture', 'echo', {}) } catch ({ code }) { return code } }`
  const { structuredContent } = await host.callTool({ name: 'run_javascript', arguments: { code, input: null, timeoutMs: null } })
  assert.equal(structuredContent.value, 'ERR_UNKNOWN_SERVER')
  const of = (type) => events.filter((event) => event.type === type)
  await waitFor('the event', () => of('not-granted').length === 1)
  assert.deepEqual(
    of('not-granted').map(({ agent, server, item }) => [agent, server, item]),
    [['client:researcher', 'fixture', 'echo']],
  )
  // The run of a host that is granted nothing does not count as one of the operator's own.
  assert.deepEqual(of('server-unavailable'), [])
  const sandbox = await gateway.sandbox()
  await sandbox.run('export const handler = () => 1')
  await waitFor('the event for the operator', () => of('server-unavailable').some(({ server }) => server === 'fresh'))
})

test('A server that an agent has added gives the same answer to a host of this name as to any other', async (t) => {
  const gateway = await openApproved(t, { fixture: fixture() })
  const { name } = await gateway.agent('researcher').addServer({ name: 'mine', command: fixtureProgram })
  const own = await gateway.addServer({ name: 'ours', command: fixtureProgram })
  for (const server of [name, own.name]) {
    await gateway.approve(server)
    await gateway.enable(server)
  }
  const { url } = await gateway.serve({ http: 0, direct: true })
  for (const host of [await overHttp(t, url, { name: 'other' }), await overHttp(t, url, { name: 'researcher' })]) {
    const direct = (await host.listTools()).tools.map((tool) => tool.name).filter((tool) => /mine|ours/.test(tool))
    assert.deepEqual(direct, [])
    for (const server of ['mine', 'ours'])
      await assert.rejects(host.callTool({ name: `mcp_${server}_pid`, arguments: {} }), /there is no tool/)
  }
})

test('Each subject of an access token has a name of its own in the audit, and no client passes for one', async (t) => {
  const resource = 'https://mcp.example/mcp'
  const { issuer, keysUrl, token } = await issuerOf(t, resource)
  const gateway = await openApproved(t, { fixture: fixture() })
  const oauth = { issuer, resource, jwksUrl: keysUrl }
  const [tokenFile, nameless] = [join(folder(t), 'tokens'), 'n'.repeat(40)]
  writeFileSync(tokenFile, `_ci:${TOKENS.one}\n${nameless}\n`, { mode: 0o600 })
  const { url } = await gateway.serve({ http: 0, direct: true, tokenFile, oauth })
  const long = (end) => `user-${'x'.repeat(200)}${end}`
  const subjects = ['ada', 'ada@example.com', 'ada|example.com', 'Анна', 'Иван', long(1), long(2), 'subject:ada']
  const callers = [
    ...subjects.map((sub) => ({ token: token({ sub }) })),
    { token: token({ client_id: 'ci' }) },
    { token: TOKENS.one },
    { token: nameless, name: 'subject:ada' },
    { token: nameless, name: 'ada@example.com' },
  ]
  for (const caller of callers) {
    const host = await overHttp(t, url, caller)
    await host.callTool({ name: 'mcp_fixture_echo', arguments: { value: 1 } })
    await host.close()
  }
  const agents = (await gateway.audit({ kind: 'call' })).map(({ agent }) => agent)
  assert.deepEqual(agents.slice(0, 5), ['ada', 'subject:ada@example.com', 'subject:ada|example.com', 'subject:Анна', 'subject:Иван'])
  for (const agent of agents.slice(5, 7)) assert.match(agent, /^subject:user-x+… \(sha256:[0-9a-f]{32}\)$/)
  assert.deepEqual(agents.slice(7), [
    'subject:subject:ada',
    'subject:client:ci',
    'subject:_ci',
    'client:subject-ada',
    'client:ada-example.com',
  ])
  assert.equal(new Set(agents).size, callers.length)
  assert.equal((await gateway.audit({ kind: 'call', agent: 'subject:ada@example.com' })).length, 1)
})
