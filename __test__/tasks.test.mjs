// Tests of tasks, base layers and resolutions through the classes and the program. tests/servers/tasks.rs tests what the gateway itself
// promises.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { approved, atTerminal, place, run, write } from './command-line.mjs'
import { failure, fixture, fixtureProgram, folder, openApproved, openGateway, waitFor } from './support.mjs'

const ECHO = 'import { echo } from "host:mcp-extra"; export const handler = () => echo({ value: 1 })'

test('a sandbox and a run have tasks, whose servers are approved by the name that servers() gives', async (t) => {
  const gateway = await openGateway(t)
  for (const servers of [{ extra: fixture() }, [{ extra: fixture() }]]) {
    const sandbox = await gateway.sandbox({ task: { text: 'echo something', servers } })
    const [{ name, source }] = gateway.servers()
    assert.deepEqual(source, { kind: 'task' })
    await gateway.approve(name)
    assert.deepEqual((await sandbox.run(ECHO)).value, { value: 1 })
    await sandbox.close()
    assert.deepEqual(gateway.servers(), [])
  }
  const sandbox = await gateway.agent('researcher').sandbox()
  const { value, warnings } = await sandbox.run(ECHO, { task: { servers: { extra: fixture() } } })
  assert.deepEqual([value, warnings], [{ value: 1 }, []])
  const unknown = await sandbox.run('export const handler = () => 1', { task: { servers: ['nobody'] } })
  assert.deepEqual(unknown.warnings, ['server "nobody" is not attached: there is no server of this name (the task names it)'])
})

test('a server of a provider is there where the text of a task has its keyword, and nowhere else', async (t) => {
  const gateway = await openGateway(t)
  const server = { name: 'shared', command: fixtureProgram, args: [], keywords: ['forecast'], capabilities: ['geocoding'] }
  await gateway.registerProvider('acme', { servers: () => [server] })
  const code = 'import { echo } from "host:mcp-acme--shared"; export const handler = () => echo({ value: 1 })'
  const sandbox = await gateway.sandbox({ onApproval: () => 'run' })
  const { warnings } = await sandbox.run('export const handler = () => 1', { task: { text: 'two FORECASTS, one Forecast' } })
  assert.match(
    warnings.join(),
    /"acme--shared" is not attached: it is not approved \(the task's text contains the server's keyword "forecast"\)/,
  )
  await gateway.approve('acme--shared')
  await gateway.enable('acme--shared')
  await failure(sandbox.run(code), 'ERR_CODE_SYNTAX')
  await failure(sandbox.run(code, { task: { text: 'forecasts' } }), 'ERR_CODE_SYNTAX')
  for (const task of [{ text: 'a forecast' }, { capabilities: ['Geocoding'] }, { servers: ['acme--shared'] }])
    assert.deepEqual((await sandbox.run(code, { task })).value, { value: 1 })
  assert.deepEqual(await gateway.listModules().then((modules) => modules.map(({ specifier }) => specifier)), ['host:mcp'])
  const { mcpServers } = await gateway.resolve({ task: { text: 'a forecast' } })
  assert.deepEqual(Object.keys(mcpServers), ['acme__shared'])
  await gateway.disable('acme--shared')
  const { warnings: told } = await sandbox.run('export const handler = () => 1', { task: { servers: ['acme--shared'] } })
  assert.match(told.join(), /a person has disabled it/)
})

test('a wrong task is an error that names what is wrong', async (t) => {
  const gateway = await openGateway(t)
  const sandbox = await gateway.sandbox()
  for (const [task, says] of [
    [{ txt: 'x' }, /txt/],
    [{ text: 5 }, /task\.text/],
    [{ servers: [5] }, /list of names/],
    [{ text: 'x'.repeat(65_537) }, /65537 bytes/],
  ]) {
    assert.match((await failure(gateway.sandbox({ task }), 'ERR_INVALID_OPTION')).message, says)
    assert.match((await failure(sandbox.run('export const handler = () => 1', { task }), 'ERR_INVALID_OPTION')).message, says)
    await failure(gateway.resolve({ task }), 'ERR_INVALID_OPTION')
  }
  await failure(gateway.sandbox({ task: { servers: { extra: { command: 5 } } } }), 'ERR_CONFIG_INVALID')
  await failure(gateway.resolve({ agnt: 'x' }), 'ERR_INVALID_OPTION')
})

test('a resolution has the entries, their reasons, and no secret', async (t) => {
  const secret = 'sk-live-0123456789abcdef'
  const gateway = await openApproved(t, { extra: { ...fixture(), env: { API_KEY: secret } } })
  const { mcpServers, servers } = await gateway.resolve()
  assert.deepEqual(mcpServers.extra.env, { API_KEY: `\${API_KEY}` })
  assert.deepEqual(
    servers.map(({ reason, inForce }) => [reason, inForce]),
    [['"extra" is in force: it comes from the config.', true]],
  )
  const dry = await gateway.resolve({ dryRun: true, task: { text: 'x' } })
  assert.deepEqual([dry.mcpServers, dry.servers.length], [undefined, 1])
  assert.ok(!JSON.stringify([mcpServers, servers, dry]).includes(secret))
})

test('a base is a layer under the config, and says so', async (t) => {
  const workspaceFolder = folder(t)
  mkdirSync(join(workspaceFolder, '.cursor'))
  const theirs = { mcpServers: { extra: { command: 'theirs' }, other: { command: 'theirs', env: { A: `\${TASKS_TEST_UNSET}` } } } }
  writeFileSync(join(workspaceFolder, '.cursor/mcp.json'), JSON.stringify(theirs))
  const gateway = await openGateway(
    t,
    { extra: fixture() },
    { workspaceFolder, config: { base: ['cursor'], mcpServers: { extra: fixture() } } },
  )
  const [extra, other] = gateway.servers()
  assert.deepEqual([extra.source, extra.hides], [{ kind: 'config' }, [{ kind: 'config', name: 'cursor' }]])
  assert.deepEqual([other.source, other.missing], [{ kind: 'config', name: 'cursor' }, ['TASKS_TEST_UNSET']])
  const { text } = await gateway.command('/mcp list')
  assert.match(text, /SOURCE/)
  assert.match(text, /extra: hides the server with this name that comes from the config of "cursor"/)
  assert.match(text, /other: not ready, as these variables are not set: TASKS_TEST_UNSET/)
})

test('resolve prints the entries and writes them for the user alone, and run shows what it would have', async (t) => {
  const at = await approved(t, { extra: fixture() })
  const printed = await run(at, ['resolve', '-t', 'echo'])
  assert.deepEqual([printed.code, Object.keys(JSON.parse(printed.stdout).mcpServers)], [0, ['extra']])
  assert.match(printed.stderr, /"extra" is in force: it comes from the config\./)
  const out = join(at.work, 'servers.json')
  const dry = await run(at, ['resolve', '--dry-run', '--out', out])
  assert.match(dry.stdout, /^"extra" is in force/)
  assert.throws(() => statSync(out))
  assert.equal((await run(at, ['resolve', '--out', out])).code, 0)
  assert.equal(statSync(out).mode & 0o777, 0o600)
  assert.deepEqual(Object.keys(JSON.parse(readFileSync(out, 'utf8')).mcpServers), ['extra'])
  write(at, 'a.js', 'export const handler = () => { throw new Error("it ran") }')
  const shown = await run(at, ['run', 'a.js', '-t', 'echo', '--dry-run'])
  assert.deepEqual([shown.code, shown.stdout], [0, '"extra" is in force: it comes from the config.\n'])
  assert.equal((await run(place(t), ['resolve'])).code, 1)
})

test('run with --dry-run shows what the agent would have, asks nobody and starts nothing', async (t) => {
  const log = join(folder(t), 'log')
  // For a server in a box, the empty file is made with its entry.
  const started = () => (existsSync(log) ? readFileSync(log, 'utf8') : '')
  const at = await approved(t, { extra: fixture(), other: fixture() })
  const file = join(at.home, '.hyperagent/config.json')
  const config = JSON.parse(readFileSync(file, 'utf8'))
  config.mcpServers.fresh = fixture('--log', log)
  config.toolboxes = { readers: ['extra/*', 'fresh/*'] }
  config.agents = { reader: { toolboxes: ['readers'] } }
  writeFileSync(file, JSON.stringify(config))
  write(at, 'a.js', 'import { echo } from "host:mcp-fresh"; export const handler = () => echo({ value: 1 })')
  const lines = [
    '"extra" is in force: it comes from the config.',
    '"fresh" is left out: it is not approved; it comes from the config.',
    '"other" is left out: the agent has no grant for it; it comes from the config.',
  ]
  for (const words of [
    ['run', 'a.js', '-t', 'echo', '--agent', 'reader', '--dry-run'],
    ['run', 'a.js', '--servers', 'extra,fresh', '--agent', 'reader', '--dry-run'],
    ['resolve', '-t', 'echo', '--agent', 'reader', '--dry-run'],
  ]) {
    const shown = await atTerminal(at, words, [['Approve? [y/N]', 'y\n']])
    assert.deepEqual([shown.code, shown.unanswered], [0, 1], shown.text)
    for (const line of lines) assert.ok(shown.text.includes(line), shown.text)
    assert.equal(started(), '', shown.text)
  }
  assert.match((await run(at, ['run', 'a.js', '--dry-run'])).stdout, /"other" is in force/)
  assert.equal((await run(at, ['run', 'a.js', '--servers', 'nobody', '--dry-run', '--json'])).code, 1)
  assert.equal(started(), '')
})

test('an agent has sandboxes with tasks, of its own servers and of what it is granted alone', async (t) => {
  const config = {
    mcpServers: { extra: fixture(), other: fixture() },
    toolboxes: { readers: ['extra/*', 'mine/*'] },
    agents: { reader: { toolboxes: ['readers'] } },
  }
  const gateway = await openGateway(t, {}, { config })
  for (const name of ['extra', 'other']) {
    await gateway.approve(name)
    await gateway.enable(name)
  }
  const sandbox = await gateway.agent('reader').sandbox({ task: { servers: ['other', { mine: fixture() }] } })
  const status = gateway.servers().find(({ source }) => source.kind === 'task')
  await gateway.approve(status.name)
  const code = (name) => `import { echo } from "host:mcp-${name}"; export const handler = () => echo({ value: "${name}" })`
  const { value, warnings } = await sandbox.run(code('mine'))
  assert.deepEqual([value, (await sandbox.run(code('extra'))).value], [{ value: 'mine' }, { value: 'extra' }])
  assert.deepEqual(warnings, ['server "other" is not attached: there is no server of this name (the task names it)'])
  await failure(sandbox.run(code('other')), 'ERR_CODE_SYNTAX')
  await sandbox.close()
  assert.ok(gateway.servers().every(({ source }) => source.kind === 'config'))
})

test('servers() tells the operator what a server of a task hides, and the agent not', async (t) => {
  const gateway = await openGateway(t, { extra: fixture() })
  const agent = gateway.agent('reader')
  const sandbox = await agent.sandbox({ task: { servers: { extra: fixture() } } })
  const own = (servers) => servers.find(({ source }) => source.kind === 'task')
  assert.deepEqual(own(gateway.servers()).hides, [{ kind: 'config' }])
  assert.equal(own(agent.servers()).hides, undefined)
  await sandbox.close()
})

test('the operator is told once which servers of the config a run does not have, and no model is', async (t) => {
  const events = []
  const options = { onEvent: (event) => event.type === 'server-unavailable' && events.push([event.server, event.reason]) }
  const servers = { extra: fixture(), idle: fixture(), fresh: fixture(), off: { ...fixture(), disabled: true }, wrong: { command: 5 } }
  const gateway = await openGateway(t, servers, options)
  await gateway.approve('extra')
  await gateway.approve('idle')
  await gateway.enable('extra')
  const sandbox = await gateway.sandbox()
  const outcome = await sandbox.run('export const handler = () => 1')
  assert.deepEqual([outcome.value, outcome.warnings], [1, []])
  const told = [
    ['fresh', 'it is not approved'],
    ['idle', 'it is approved, but not enabled'],
    ['wrong', 'its entry has an error'],
  ]
  await waitFor('the events', () => events.length >= told.length)
  assert.deepEqual(events.sort(), told)
  await sandbox.run('export const handler = () => 1')
  await gateway.reload()
  await sandbox.run('export const handler = () => 1')
  // A server that a person has disabled is left out on purpose.
  await gateway.disable('extra')
  await gateway.reload()
  await gateway.enable('idle')
  await sandbox.run('export const handler = () => 1')
  await gateway.close()
  assert.equal(events.length, told.length)
})
