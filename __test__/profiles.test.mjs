// Tests of profiles that change what runs, through Node's API and the command line. tests/servers/profiles.rs tests what the gateway itself
// promises.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { place, run, small, write } from './command-line.mjs'
import { overHttp, served } from './serving.mjs'
import { failure, fixture, isAlive, openGateway, waitFor } from './support.mjs'

const profiles = {
  staging: { servers: { weather: { env: { STAGE: 'staging' } } } },
  production: { servers: { weather: { env: { STAGE: 'production' } } } },
}

const call = async (agent, tool, args) => agent.callTool('weather', tool, args)
const pid = async (agent) => (await call(agent, 'pid')).structuredContent.pid
const stage = async (agent) => (await call(agent, 'leak', { name: 'STAGE', how: 'error' })).content[0].text.split(' ')[0]

const configure = (at, config) => writeFileSync(join(at.home, '.hyperagent/config.json'), JSON.stringify(config))

/** Approves both stages of a server at the command line. */
async function approve(at, name) {
  for (const stage of ['command', 'manifest']) {
    const { stdout } = await run(at, ['approve', name, '--json'])
    const { request } = JSON.parse(stdout).servers[0]
    assert.equal(request.stage, stage)
    await run(at, ['approve', name, '--digest', request.digest])
  }
}

test('A profile with an environment makes a server of its own, which ends with its last agent', async (t) => {
  const gateway = await openGateway(t, {}, { config: { mcpServers: { weather: fixture() }, profiles } })
  const [first, second] = ['staging', 'production'].map((name) => gateway.agent(name, { profiles: [name] }))
  const request = await gateway.approvalRequest('weather@staging')
  assert.equal(request.server, 'weather@staging')
  for (const name of ['weather', 'weather@production']) {
    await gateway.approve(name)
    await gateway.enable(name)
  }
  assert.match((await failure(call(first, 'pid'), 'ERR_NOT_APPROVED')).message, /weather@staging/)
  await gateway.approve('weather@staging')
  // The variant was enabled together with its server. A decision about the variant's own name has priority.
  await gateway.disable('weather@staging')
  assert.match((await failure(call(first, 'pid'), 'ERR_NOT_ENABLED')).message, /weather@staging/)
  await gateway.enable('weather@staging')
  assert.deepEqual([await stage(first), await stage(second)], ['staging', 'production'])
  const [own, other] = [await pid(first), await pid(second)]
  assert.notEqual(own, other)
  const [status] = await first.servers()
  assert.deepEqual([status.name, status.variantOf, status.state], ['weather@staging', 'weather', 'connected'])
  assert.match(await first.declarations('weather'), /declare module "host:mcp-weather"/)
  const sandbox = await first.sandbox()
  const { value } = await sandbox.run('import { pid } from "host:mcp-weather"; export const handler = () => pid({}).pid')
  assert.equal(value, own)
  await first.close()
  await waitFor('the end of its process', () => !isAlive(own))
  assert.equal(await pid(second), other)
})

test('A model and its code read of a variant by the name that they import, and a person by its own', async (t) => {
  const gateway = await openGateway(t, {}, { config: { mcpServers: { weather: fixture() }, profiles } })
  const agent = gateway.agent('first', { profiles: ['staging'], onApproval: () => 'session' })
  const tools = Object.fromEntries(agent.agentTools().map((tool) => [tool.name, tool]))
  const texts = []
  const told = async (name, input) => {
    const answer = await tools[name].execute(input)
    texts.push(JSON.stringify(answer))
    return answer
  }
  const about = async () => {
    await told('list_mcp_servers', {})
    await told('mcp_server_info', { server: 'weather' })
    await told('manage_mcp', { action: 'enable', server: 'weather' })
    await told('manage_mcp', { action: 'test', server: 'weather' })
    await told('manage_mcp', { action: 'propose', server: 'weather' })
  }
  await about()
  await gateway.approve('weather@staging')
  await gateway.enable('weather@staging')
  await about()
  const code = (body) => `import { crash, pid, get_forecast } from "host:mcp-weather"; export const handler = () => ${body}`
  for (const body of ['crash({})', 'pid({})', 'get_forecast({ place: 1 })']) await told('run_javascript', { code: code(body) })
  await gateway.disable('weather@staging')
  await about()
  for (const text of texts) assert.doesNotMatch(text, /weather@/)
  assert.ok(
    texts.filter((text) => text.includes('"weather')).length > 5 && texts.some((text) => text.includes('connected again')),
    texts.join('\n'),
  )
  assert.deepEqual(
    (await agent.servers()).map(({ name }) => name),
    ['weather@staging'],
  )
})

test('Profiles that contradict each other are an error that names both', async (t) => {
  const config = { mcpServers: { weather: fixture() }, profiles }
  const gateway = await openGateway(t, {}, { config })
  assert.throws(() => gateway.agent('a', { profiles: ['staging', 'production'] }), {
    code: 'ERR_PROFILE_CONFLICT',
    message: /the profiles "production" and "staging" set the variable "STAGE" of server "weather" differently/,
  })
  const both = { ...config, agents: { a: { profiles: ['staging', 'production'] } } }
  assert.match(
    (await failure(openGateway(t, {}, { config: both }), 'ERR_CONFIG_INVALID')).message,
    /agents\.a\.profiles: .*"production" and "staging"/,
  )
})

test('At the command line, a variant is listed, approved and revoked by its own name', async (t) => {
  const at = place(t, {})
  const agents = { coder: { profiles: ['staging'] } }
  const config = { mcpServers: { weather: small() }, profiles, agents }
  configure(at, config)
  const done = async (...words) => {
    const { code, stdout, stderr } = await run(at, words)
    assert.equal(code, 0, stderr)
    return stdout
  }
  const names = async (...words) => JSON.parse(await done('list', '--json', ...words)).servers.map(({ name, approved }) => [name, approved])
  assert.deepEqual(await names(), [
    ['weather', false],
    ['weather@production', false],
    ['weather@staging', false],
  ])
  await approve(at, 'weather@staging')
  assert.deepEqual(await names('--agent', 'coder'), [['weather@staging', true]])
  assert.deepEqual(
    (await names()).filter(([, isApproved]) => isApproved),
    [['weather@staging', true]],
  )
  assert.match(await done('info', 'weather@staging'), /weather@staging/)
  assert.match(await done('list'), /weather@staging/)
  write(at, 'tools.js', 'import { tools } from "host:mcp"; export const handler = () => tools().map(({ server }) => server)')
  assert.deepEqual([...new Set(JSON.parse(await done('run', 'tools.js', '--agent', 'coder')))], ['weather'])
  assert.deepEqual(JSON.parse(await done('run', 'tools.js')), [], 'the operator has not approved the server itself')
  const doctor = await run(at, ['doctor'])
  assert.match(doctor.stdout + doctor.stderr, /weather@staging/)
  await done('revoke', 'weather@staging')
  assert.deepEqual(await names('--agent', 'coder'), [['weather@staging', false]])
})

test('Served over HTTP, each token has the variant of its profile, which stays connected between requests without a session', async (t) => {
  const at = place(t, {})
  const agents = { one: { profiles: ['staging'] }, two: { profiles: ['production'] } }
  configure(at, { mcpServers: { weather: fixture() }, profiles, agents })
  for (const name of ['weather@staging', 'weather@production']) await approve(at, name)
  const [ONE, TWO] = ['1'.repeat(32), '2'.repeat(32)]
  const file = join(at.home, 'tokens')
  writeFileSync(file, `one:${ONE}\ntwo:${TWO}`, { mode: 0o600 })
  const { url } = await served(t, at, ['--direct', '--token-file', file])
  for (const era of ['2025-11-25', '2026-07-28']) {
    const pids = {}
    for (const token of [ONE, TWO]) {
      const client = await overHttp(t, url, { token, era })
      const { tools } = await client.listTools()
      assert.ok(tools.some(({ name }) => name === 'mcp_weather_pid'))
      const direct = async () => (await client.callTool({ name: 'mcp_weather_pid', arguments: {} })).structuredContent.pid
      pids[token] = await direct()
      assert.equal(await direct(), pids[token])
      const code = 'import { pid } from "host:mcp-weather"; export const handler = () => pid({}).pid'
      const ran = await client.callTool({ name: 'run_javascript', arguments: { code, input: null, timeoutMs: null } })
      assert.equal(ran.structuredContent.value, pids[token])
      const { structuredContent } = await client.callTool({ name: 'list_mcp_servers', arguments: {} })
      assert.deepEqual(
        structuredContent.servers.map(({ name, module }) => [name, module]),
        [['weather', 'host:mcp-weather']],
      )
    }
    assert.notEqual(pids[ONE], pids[TWO])
  }
})
