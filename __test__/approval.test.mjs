// Tests that only commands and tools that a person has seen and approved are used, exactly as shown, and that no process starts before it
// is needed.
import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { evaluate, failure, fixture, fixtureProgram, folder, isAlive, logLines, openApproved, openGateway, waitFor } from './support.mjs'

const importOnly = 'import * as fixture from "host:mcp-fixture"; export const handler = () => Object.keys(fixture).length'
const callPid = 'import { pid } from "host:mcp-fixture"; export const handler = () => pid().pid'

/** Returns a fixture server that records its starts. Further gateways on the same state act as other programs with the same approvals. */
function setUp(t, ...args) {
  const home = folder(t)
  const log = join(home, 'log')
  const servers = { fixture: fixture('--log', log, ...args) }
  const stateDir = join(home, 'state')
  const pids = () => logLines(log).flatMap(({ event, pid }) => (event === 'spawn' ? [pid] : []))
  const open = (options, more = servers) => openGateway(t, more, { stateDir, ...options })
  return { log, servers, stateDir, pids, starts: () => pids().length, open, home }
}
const status = (gateway, name = 'fixture') => gateway.servers().find((server) => server.name === name)

// ---- nothing starts before it must

test('before its command is approved, a server has no process, whatever is asked for', async (t) => {
  const { open, starts } = setUp(t)
  const gateway = await open({ enable: ['fixture'] })
  for (const attempt of ['test', 'enable']) {
    const error = await failure(gateway[attempt]('fixture'), 'ERR_NOT_APPROVED')
    assert.match(error.message, /"fixture".*approvalRequest.*approve/)
  }
  await failure(gateway.callTool('fixture', 'pid'), 'ERR_NOT_APPROVED')
  const sandbox = await gateway.sandbox()
  await failure(sandbox.run(importOnly), 'ERR_CODE_SYNTAX')
  const request = await gateway.approvalRequest('fixture')
  assert.equal(request.stage, 'command')
  const nothing = { approved: false, enabled: false, source: { kind: 'config' }, tools: [], quarantined: [] }
  assert.deepEqual(status(gateway), { name: 'fixture', state: 'unapproved', ...nothing })
  assert.equal(starts(), 0)
})

test('each stage of an approval starts what it must and nothing else', async (t) => {
  const { open, starts } = setUp(t)
  const gateway = await open()
  const command = await gateway.approvalRequest('fixture')
  assert.deepEqual([command.stage, command.approved, command.server, command.command], ['command', false, 'fixture', fixtureProgram])
  assert.match(command.digest, /^[0-9a-f]{64}$/)
  assert.match(command.warning, /full permissions/)
  assert.equal((await gateway.approvalRequest('fixture')).digest, command.digest)
  await gateway.approve('fixture', command.digest)
  assert.equal(status(gateway).state, 'command-approved')
  assert.equal(status(gateway).approved, false)
  await failure(gateway.enable('fixture'), 'ERR_NOT_APPROVED')
  await failure(gateway.callTool('fixture', 'pid'), 'ERR_NOT_APPROVED')
  assert.equal(starts(), 0)

  const manifest = await gateway.approvalRequest('fixture')
  assert.equal(starts(), 1)
  assert.deepEqual([manifest.stage, manifest.approved, manifest.serverName], ['manifest', false, 'fixture-server'])
  const forecast = manifest.tools.find((tool) => tool.name === 'get-forecast')
  assert.deepEqual([forecast.identifier, forecast.description], ['get_forecast', 'Forecast for a place'])
  assert.deepEqual(forecast.inputSchema.required, ['location'])
  await gateway.approve('fixture', manifest.digest)
  assert.deepEqual([status(gateway).approved, status(gateway).enabled], [true, false])
  assert.equal(status(gateway).tools.length, manifest.tools.length)
  assert.equal((await gateway.approvalRequest('fixture')).approved, true)
  await failure(gateway.callTool('fixture', 'pid'), 'ERR_NOT_ENABLED')
  await gateway.enable('fixture')
  assert.deepEqual([status(gateway).enabled, status(gateway).state], [true, 'connected'])
  assert.equal((await gateway.callTool('fixture', 'pid')).isError, false)
  assert.equal(starts(), 1)
})

test('approve without a digest says yes to both stages, and reads the tools for that', async (t) => {
  const { open, starts } = setUp(t)
  const gateway = await open()
  await gateway.approve('fixture')
  assert.equal(starts(), 1)
  assert.deepEqual([status(gateway).approved, status(gateway).enabled], [true, false])
})

test('test starts a server whose command is approved, and reports on it', async (t) => {
  const { open, pids } = setUp(t)
  const gateway = await open()
  await gateway.approve('fixture', (await gateway.approvalRequest('fixture')).digest)
  const report = await gateway.test('fixture')
  assert.deepEqual([report.server, report.era, report.serverName], ['fixture', '2025-11-25', 'fixture-server'])
  assert.ok(report.connectMs > 0 && report.tools.includes('get-forecast'))
  assert.equal(status(gateway).state, 'connected')
  await gateway.test('fixture')
  const [first, second, ...more] = pids()
  assert.deepEqual(more, [])
  assert.ok(isAlive(second))
  await waitFor('the end of the first process', () => !isAlive(first))
})

test('a later program with enable "approved" starts nothing until the first call', async (t) => {
  const { open, starts, pids } = setUp(t)
  const before = await open()
  await before.approve('fixture')
  await before.close()
  await waitFor('the end of the first process', () => !isAlive(pids()[0]))
  for (const enable of ['approved', ['fixture']]) {
    const started = starts()
    const gateway = await open({ enable })
    assert.deepEqual([status(gateway).enabled, status(gateway).state], [true, 'idle'])
    const sandbox = await gateway.sandbox()
    const { value } = await sandbox.run(importOnly)
    assert.ok(value > 20, String(value))
    assert.ok((await evaluate(sandbox, 'tools("fixture").length')).value > 20)
    await failure(gateway.callTool('fixture', 'nothing'), 'ERR_UNKNOWN_TOOL')
    assert.equal(starts(), started)
    const run = await sandbox.run(callPid)
    assert.equal(run.value, pids().at(-1))
    assert.equal((await gateway.callTool('fixture', 'pid')).structuredContent.pid, run.value)
    assert.equal(starts(), started + 1)
    await gateway.close()
  }
})

// ---- what an approval covers

test('a digest that was not shown, or is no longer so, approves nothing', async (t) => {
  const { open, starts, servers } = setUp(t)
  const gateway = await open()
  const { digest } = await gateway.approvalRequest('fixture')
  await failure(gateway.approve('fixture', '0'.repeat(64)), 'ERR_DIGEST_CHANGED')
  for (const changed of [
    { ...servers.fixture, args: [...servers.fixture.args, '--noise'] },
    { ...servers.fixture, args: [servers.fixture.args.join(' ')] },
    { ...servers.fixture, command: '/bin/true' },
  ]) {
    const later = await open({}, { fixture: changed })
    const error = await failure(later.approve('fixture', digest), 'ERR_DIGEST_CHANGED')
    assert.match(error.message, /"fixture".*approvalRequest/)
  }
  const renamed = await open({}, { other: servers.fixture })
  await failure(renamed.approve('other', digest), 'ERR_DIGEST_CHANGED')
  assert.equal(status(gateway).state, 'unapproved')
  assert.equal(starts(), 0)
})

test('an approval ends where command or args change, and holds again where they are as before', async (t) => {
  const { open, starts, servers } = setUp(t)
  await (await open()).approve('fixture')
  const changed = await open({ enable: 'approved' }, { fixture: { ...servers.fixture, args: [...servers.fixture.args, '--noise'] } })
  assert.deepEqual([status(changed).approved, status(changed).enabled, status(changed).state], [false, false, 'unapproved'])
  await failure(changed.callTool('fixture', 'pid'), 'ERR_NOT_APPROVED')
  assert.equal((await changed.approvalRequest('fixture')).stage, 'command')
  assert.equal(starts(), 1)
  assert.equal(status(await open({ enable: 'approved' })).enabled, true)
})

test('tools that change are shown as changes, and the digest shown before no longer counts', async (t) => {
  const { home, log, open } = setUp(t)
  const list = join(home, 'tools')
  const script = `exec "$0" --log "$1" --tools "$(cat "$2")"`
  const servers = { fixture: { command: '/bin/sh', args: ['-c', script, fixtureProgram, log, list] } }
  writeFileSync(list, 'echo,pid')
  const gateway = await open({}, servers)
  await gateway.approve('fixture')
  const known = await gateway.approvalRequest('fixture')
  assert.deepEqual([known.approved, known.changes], [true, { added: [], removed: [], changed: [], differences: [] }])
  writeFileSync(list, 'echo,count')
  await gateway.test('fixture')
  const request = await gateway.approvalRequest('fixture')
  assert.deepEqual(
    [request.stage, request.approved, request.changes],
    ['manifest', false, { added: ['count'], removed: ['pid'], changed: [], differences: [] }],
  )
  await failure(gateway.approve('fixture', known.digest), 'ERR_DIGEST_CHANGED')
  assert.deepEqual(status(gateway).tools, ['echo', 'pid'])
  await gateway.approve('fixture', request.digest)
  assert.deepEqual(status(gateway).tools, ['echo', 'count'])
})

test('a request shows no secret of the environment, and what the config says besides', async (t) => {
  const secret = 'sk-live-0123456789abcdef'
  const env = { TOKEN: secret, MODE: 'production' }
  const server = { ...fixture('--noise'), env, cwd: '/', allowTools: ['echo'], denyTools: ['crash'], confirm: 'always' }
  const gateway = await openGateway(t, { fixture: server })
  const request = await gateway.approvalRequest('fixture')
  assert.deepEqual(request.environment.map((entry) => entry.split('=')[0]).sort(), ['MODE', 'TOKEN'])
  const text = JSON.stringify(request)
  assert.ok(request.environment.includes('MODE=production'))
  for (const value of [secret, secret.slice(0, 10)]) assert.ok(!text.includes(value), `${value} is in: ${text}`)
  const { args, cwd, allowTools, denyTools, confirm } = request
  assert.deepEqual(
    { args, cwd, allowTools, denyTools, confirm },
    { args: ['--noise'], cwd: '/', allowTools: ['echo'], denyTools: ['crash'], confirm: 'always' },
  )
})

test('a server gets a small environment, with nothing of ours but what its config names', async (t) => {
  const name = 'HYPERLIGHT_MCP_TEST_SECRET'
  process.env[name] = 'planted'
  t.after(() => delete process.env[name])
  const env = { ...fixture('--env-dump'), env: { GIVEN: 'x', PASSED: `\${${name}}`, NUMBER: '5' } }
  const gateway = await openApproved(t, { env })
  const { names } = (await gateway.callTool('env', 'env')).structuredContent
  const inherited = ['PATH', 'HOME', 'LANG', 'LC_ALL', 'TERM', 'TMPDIR', 'USER', 'LOGNAME', 'SHELL']
  assert.deepEqual(
    names.filter((name) => !inherited.includes(name)),
    ['GIVEN', 'NUMBER', 'PASSED'],
  )
  assert.ok(names.includes('PATH'))
})

test('the approvals are files of mode 0600 in a folder of mode 0700, without secrets', async (t) => {
  const { open, stateDir, servers } = setUp(t)
  const gateway = await open({}, { fixture: { ...servers.fixture, env: { TOKEN: 'sk-live-0123456789abcdef' } } })
  await gateway.approve('fixture')
  const mode = (path) => (statSync(path).mode & 0o777).toString(8)
  assert.equal(mode(stateDir), '700')
  const files = readdirSync(stateDir).filter((name) => name.startsWith('store.'))
  assert.ok(files.includes('store.sqlite3') && files.includes('store.sqlite3-wal') && files.includes('store.anchor'))
  for (const name of files) {
    assert.equal(mode(join(stateDir, name)), '600', name)
    assert.ok(!readFileSync(join(stateDir, name), 'latin1').includes('sk-live'), name)
  }
})

test("a file in the place of an earlier version's approvals that is not ours is an error that names it, and stays as it is", async (t) => {
  const { open, stateDir, starts } = setUp(t)
  mkdirSync(stateDir, { mode: 0o700 })
  const path = join(stateDir, 'approved-mcp.json')
  const theirs = '{ "version": 1, "servers": '
  writeFileSync(path, theirs)
  const gateway = await open()
  for (const attempt of [
    () => gateway.approve('fixture'),
    // This call does not read the store, because the error is already known.
    () => gateway.servers(),
    () => gateway.enable('fixture'),
    () => gateway.test('fixture'),
  ])
    assert.match((await failure(attempt, 'ERR_APPROVAL_STORE')).message, /…\/state\/approved-mcp\.json/)
  assert.equal(readFileSync(path, 'utf8'), theirs)
  assert.equal(starts(), 0)
})

test('approvals of ours that were tampered with approve nothing, and are an event', async (t) => {
  const { open, stateDir } = setUp(t)
  const first = await open()
  await first.approve('fixture')
  await first.close()
  const path = join(stateDir, 'store.sqlite3')
  const text = readFileSync(path, 'latin1')
  assert.ok(text.includes('"approvedAt":1'))
  writeFileSync(path, text.replaceAll('"approvedAt":1', '"approvedAt":2'), 'latin1')
  const events = []
  const gateway = await open({ enable: 'approved', onEvent: (event) => events.push(event) })
  assert.deepEqual([status(gateway).approved, status(gateway).enabled], [false, false])
  await failure(gateway.callTool('fixture', 'pid'), 'ERR_NOT_APPROVED')
  const [event] = await waitFor('the event', () => events.length > 0 && events)
  assert.deepEqual([event.type, typeof event.message], ['approvals-damaged', 'string'])
  await gateway.approve('fixture')
  assert.equal(status(gateway).approved, true)
})

// ---- enabling, disabling, revoking

test('a server that the config disables cannot be enabled, and has no module', async (t) => {
  const { open, starts, servers } = setUp(t)
  await (await open()).approve('fixture')
  const gateway = await open({ enable: 'approved' }, { fixture: { ...servers.fixture, disabled: true } })
  assert.equal(status(gateway).state, 'disabled')
  assert.equal(status(gateway).enabled, false)
  await failure(gateway.enable('fixture'), 'ERR_SERVER_DISABLED')
  await failure(gateway.test('fixture'), 'ERR_SERVER_DISABLED')
  await failure((await gateway.sandbox()).run(importOnly), 'ERR_CODE_SYNTAX')
  assert.equal(starts(), 1)
})

test('the module of a server that is not approved, or not enabled, does not exist', async (t) => {
  const gateway = await openGateway(t, { fixture: fixture(), idle: fixture() })
  const sandbox = await gateway.sandbox()
  await gateway.approve('idle')
  for (const name of ['fixture', 'idle', 'nobody']) {
    const error = await failure(sandbox.run(`import "host:mcp-${name}"; export const handler = () => 1`), 'ERR_CODE_SYNTAX')
    assert.ok(error.message.includes(`host:mcp-${name}`), error.message)
    const { value } = await sandbox.run(`import { call, tools } from "host:mcp"; export async function handler() {
      const gone = await import("host:mcp-${name}").then(() => "there", () => "not there")
      try { return call("${name}", "pid") } catch (error) { return [gone, error.code, tools()] } }`)
    assert.deepEqual(value, ['not there', 'ERR_UNKNOWN_SERVER', []])
  }
  await gateway.enable('idle')
  assert.equal((await sandbox.run(callPid.replace('fixture', 'idle'))).value > 0, true)
})

test('disable and revoke end the live process, and hide the server from the next run', async (t) => {
  const { open } = setUp(t)
  const gateway = await open()
  await gateway.approve('fixture')
  const sandbox = await gateway.sandbox()
  for (const [end, code] of [
    ['disable', 'ERR_NOT_ENABLED'],
    ['revoke', 'ERR_NOT_APPROVED'],
  ]) {
    await gateway.enable('fixture')
    const { value: pid } = await sandbox.run(callPid)
    assert.ok(isAlive(pid))
    await gateway[end]('fixture')
    assert.ok(!isAlive(pid), `${end} has left the process`)
    assert.deepEqual([status(gateway).enabled, status(gateway).approved], [false, end === 'disable'])
    await failure(sandbox.run(importOnly), 'ERR_CODE_SYNTAX')
    await failure(gateway.callTool('fixture', 'pid'), code)
  }
  await failure(gateway.enable('fixture'), 'ERR_NOT_APPROVED')
  assert.equal((await gateway.approvalRequest('fixture')).stage, 'command')
})

test("another program's approval and revocation count at the next run and call", async (t) => {
  const { open } = setUp(t)
  const [here, there] = [await open(), await open()]
  await there.approve('fixture')
  await here.enable('fixture')
  const sandbox = await here.sandbox()
  assert.equal(typeof (await sandbox.run(callPid)).value, 'number')
  await there.revoke('fixture')
  await failure(sandbox.run(importOnly), 'ERR_CODE_SYNTAX')
  assert.equal(status(here).approved, false)
  await failure(here.callTool('fixture', 'pid'), 'ERR_NOT_APPROVED')
})

test('allowTools and denyTools decide which tools there are', async (t) => {
  const gateway = await openApproved(t, {
    allowed: { ...fixture(), allowTools: ['echo', 'get-forecast', 'pid', 'no-such'], denyTools: ['pid'] },
    denied: { ...fixture('--tools', 'echo,pid,count'), denyTools: ['count'] },
    none: { ...fixture(), allowTools: [] },
  })
  assert.deepEqual(
    gateway.servers().map(({ tools }) => tools),
    [['echo', 'get-forecast'], ['echo', 'pid'], []],
  )
  assert.deepEqual(
    (await gateway.approvalRequest('allowed')).tools.map(({ name }) => name),
    ['echo', 'get-forecast'],
  )
  assert.deepEqual((await gateway.test('denied')).tools, ['echo', 'pid'])
  await failure(gateway.callTool('allowed', 'pid'), 'ERR_UNKNOWN_TOOL')
  const { value } = await (await gateway.sandbox()).run(`import * as allowed from "host:mcp-allowed"; import * as none from "host:mcp-none"
    import { call, tools } from "host:mcp"; export function handler() {
      const names = [Object.keys(allowed).sort(), Object.keys(none)]
      try { return call("denied", "count") } catch (error) { return [...names, error.code, tools("denied").map((tool) => tool.name)] } }`)
  assert.deepEqual(value, [['default', 'echo', 'get_forecast'], ['default'], 'ERR_UNKNOWN_TOOL', ['echo', 'pid']])
})

test('what a filter, a variable, the folder, confirm or a pin says is part of the approval', async (t) => {
  const { open, servers, starts } = setUp(t)
  const approved = await open()
  await approved.approve('fixture')
  for (const change of [
    { allowTools: ['echo'] },
    { denyTools: ['pid'] },
    { env: { X: '1' } },
    { cwd: '/' },
    { confirm: 'always' },
    { pinValues: true },
  ]) {
    const field = Object.keys(change)[0]
    const changed = await open({ enable: 'approved' }, { fixture: { ...servers.fixture, ...change } })
    assert.deepEqual([status(changed).state, status(changed).enabled, status(changed).tools], ['unapproved', false, []], field)
    const error = await failure(changed.callTool('fixture', 'echo', { value: 1 }), 'ERR_NOT_APPROVED')
    assert.match(error.message, /changed/, field)
    const request = await changed.approvalRequest('fixture')
    assert.deepEqual([request.stage, request.approved], ['command', false], field)
    assert.match(request.lapsed, /changed/, field)
    await failure((await changed.sandbox()).run(importOnly), 'ERR_CODE_SYNTAX')
  }
  assert.equal(status(approved).approved, true)
  assert.equal(starts(), 1)
})

test('servers tells what each is and what last went wrong', async (t) => {
  const gateway = await openGateway(t, { fine: fixture(), ends: fixture('--exit-at-start', '3'), off: { ...fixture(), disabled: true } })
  const states = () => gateway.servers().map(({ name, state }) => [name, state])
  assert.deepEqual(states(), [
    ['fine', 'unapproved'],
    ['ends', 'unapproved'],
    ['off', 'disabled'],
  ])
  await gateway.approve('fine')
  await failure(gateway.approve('ends'), 'ERR_SERVER_EXITED')
  assert.deepEqual(states(), [
    ['fine', 'connected'],
    ['ends', 'error'],
    ['off', 'disabled'],
  ])
  const { lastError } = status(gateway, 'ends')
  assert.equal(lastError.code, 'ERR_SERVER_EXITED')
  assert.match(lastError.message, /"ends"/)
  assert.equal(status(gateway, 'ends').approved, false)
  await gateway.disable('fine')
  assert.deepEqual(states()[0], ['fine', 'idle'])
  await gateway.revoke('fine')
  assert.deepEqual(states()[0], ['fine', 'unapproved'])
  assert.ok(gateway.servers().every(({ source }) => source.kind === 'config'))
})
