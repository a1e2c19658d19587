// Tests of the audit in Node and on the command line: the rows that are recorded, exported and verified.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { approved, environment, LIMIT, place, program, run, small } from './command-line.mjs'
import { evaluate, failure, fixture, folder, listenTo, logLines, openApproved, openGateway, outputOf, root, waitFor } from './support.mjs'

test('a run, a call and an approval are rows that say who, what and how, and a query selects them', async (t) => {
  const before = Date.now()
  const gateway = await openApproved(t, { fixture: fixture() })
  const agent = gateway.agent('researcher')
  const sandbox = await agent.sandbox()
  await evaluate(sandbox, 'fixture.echo({ value: "hello" })')
  await gateway.callTool('fixture', 'echo', { value: 'hello' })
  const calls = await gateway.audit({ kind: 'call', since: before, server: 'fixture', tool: 'echo' })
  assert.deepEqual(
    calls.map(({ agent, outcome, argumentBytes }) => [agent, outcome, argumentBytes]),
    [
      ['researcher', 'ok', 17],
      [undefined, 'ok', 17],
    ],
  )
  assert.equal(calls[0].argumentsDigest, calls[1].argumentsDigest)
  assert.equal(typeof calls[0].runId, 'number')
  assert.equal(calls[1].runId, undefined)
  assert.ok(!JSON.stringify(calls).includes('hello'))
  assert.deepEqual(await gateway.audit({ agent: 'researcher', kind: 'call' }), [calls[0]])
  assert.deepEqual(
    (await gateway.audit({ kind: 'approval' })).map(({ action, by }) => [action, by]),
    [
      ['command', 'person'],
      ['manifest', 'person'],
    ],
  )
  assert.equal((await gateway.audit({ limit: 1 }))[0].number, calls[1].number)
  const { whole, last, head, gaps } = await gateway.verifyAudit()
  assert.deepEqual([whole, last, head, gaps], [true, calls[1].number, calls[1].digest, 0])
})

test('refused calls of code in a run are rows too, the first hundred of each run', async (t) => {
  const gateway = await openApproved(t, { fixture: fixture(), secret: fixture() })
  await gateway.setToolbox('readers', ['fixture/echo'])
  await gateway.grant('bob', ['readers'])
  const agent = gateway.agent('bob')
  const sandbox = await agent.sandbox()
  const refused = (server, tool, times = 1) =>
    sandbox.run(`import { call } from "host:mcp"
      export const handler = () => {
        for (let count = 0; count < ${times}; count++) try { call('${server}', '${tool}', { text: 'x' }) } catch {}
      }`)
  await refused('fixture', 'write_note')
  await refused('secret', 'echo')
  await refused('no-such-server', 'x'.repeat(5_000))
  await failure(sandbox.run('import "host:mcp-secret"; export const handler = () => 1'), 'ERR_CODE_SYNTAX')
  const rows = () => gateway.audit({ kind: 'call', agent: 'bob' })
  assert.deepEqual(
    (await rows()).map(({ server, tool, outcome }) => [server, tool.slice(0, 10), outcome]),
    [
      ['fixture', 'write_note', 'ERR_UNKNOWN_TOOL'],
      ['secret', 'echo', 'ERR_UNKNOWN_SERVER'],
      ['no-such-server', 'xxxxxxxxxx', 'ERR_UNKNOWN_SERVER'],
      ['secret', 'import', 'ERR_UNKNOWN_SERVER'],
    ],
  )
  assert.ok((await rows()).every(({ tool, runId }) => tool.length <= 210 && runId > 0))
  const before = (await rows()).length
  await refused('secret', 'echo', 300)
  assert.equal((await rows()).length - before, 100)
  assert.ok((await gateway.verifyAudit()).whole)
})

test('a wrong query is an error that names it', async (t) => {
  const gateway = await openApproved(t, {})
  for (const [query, says] of [
    [{ form: 1 }, /form/],
    [{ kind: 'calls' }, /kind.*approval/],
    [{ since: '1h' }, /since/],
    [{ limit: 0 }, /limit/],
  ]) {
    assert.match((await failure(gateway.audit(query), 'ERR_INVALID_OPTION')).message, says)
  }
})

test('a trace of the caller is passed on to the server, and a wrong one is an error that names the option', async (t) => {
  const log = join(folder(t), 'log')
  const gateway = await openApproved(t, { fixture: fixture('--log', log) })
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
  const tracestate = 'vendor=a1,other=b2'
  await gateway.callTool('fixture', 'echo', { value: 1 }, { traceparent, tracestate })
  await evaluate(await gateway.sandbox(), 'fixture.echo({ value: 1 })', { traceparent, tracestate })
  const calls = logLines(log).filter(({ event, name }) => event === 'request' && name === 'echo')
  assert.deepEqual(
    calls.map(({ meta }) => [meta.traceparent, meta.tracestate]),
    Array(2).fill([traceparent, tracestate]),
  )
  const wrong = gateway.callTool('fixture', 'echo', { value: 1 }, { traceparent: '00-1-2-3' })
  assert.match((await failure(wrong, 'ERR_INVALID_OPTION')).message, /traceparent: expected a W3C traceparent/)
  for (const [options, says] of [
    [{ traceparent, tracestate: 'no member' }, /tracestate: expected a W3C tracestate/],
    [{ tracestate }, /tracestate: it needs a traceparent/],
  ]) {
    const refused = gateway.callTool('fixture', 'echo', { value: 1 }, options)
    assert.match((await failure(refused, 'ERR_INVALID_OPTION')).message, says)
  }
})

test('contents are kept only with auditContent, and without secrets', async (t) => {
  const gateway = await openApproved(t, { fixture: { ...fixture(), env: { API_KEY: 'correct-horse-battery' } } }, { auditContent: true })
  await gateway.callTool('fixture', 'echo', { value: 'a correct-horse-battery b' })
  const [call] = await gateway.audit({ kind: 'call' })
  assert.deepEqual(call.arguments, { value: 'a [redacted] b' })
})

test('the command line prints lines of JSON, exports a private file, and verifies with an exit code', async (t) => {
  const at = await approved(t, { weather: small() })
  const printed = await run(at, ['audit'])
  assert.equal(printed.code, 0, printed.stderr)
  const rows = printed.stdout.trimEnd().split('\n').map(JSON.parse)
  assert.deepEqual(
    rows.filter(({ kind }) => kind === 'approval').map(({ server, action }) => [server, action]),
    [
      ['weather', 'command'],
      ['weather', 'manifest'],
    ],
  )
  const some = await run(at, ['audit', '--kind', 'approval', '--since', '1h', '--limit', '1', '--json'])
  assert.deepEqual(JSON.parse(some.stdout).rows, [rows.findLast(({ kind }) => kind === 'approval')])
  const file = join(at.work, 'audit.jsonl')
  writeFileSync(file, 'old', { mode: 0o644 })
  assert.equal((await run(at, ['audit', '--export', 'audit.jsonl'])).code, 0)
  assert.equal(readFileSync(file, 'utf8'), printed.stdout)
  assert.equal(statSync(file).mode & 0o777, 0o600)
  const lost = await run(at, ['audit', '--export', 'audit.jsonl/none'])
  assert.deepEqual([lost.code, readFileSync(file, 'utf8')], [1, printed.stdout])
  const sound = await run(at, ['audit', 'verify'])
  assert.equal(sound.code, 0, sound.stderr)
  assert.match(sound.stdout, new RegExp(`no problems found\nhead: ${rows.at(-1).number} ${rows.at(-1).digest}`))
  const state = join(at.home, '.hyperagent/hyperlight-mcp')
  const change = `import sqlite3; store = sqlite3.connect(${JSON.stringify(join(state, 'store.sqlite3'))}); store.execute("UPDATE audit SET server = 'other' WHERE number = 1"); store.commit()`
  outputOf('python3', ['-c', change])
  const changed = await run(at, ['audit', 'verify', '--json'])
  assert.equal(changed.code, 1)
  assert.match(JSON.parse(changed.stdout).problems.join(), /row 1 is not as it was written/)
})

test('--follow prints what other processes record, and a wrong option is wrong usage', async (t) => {
  const at = place(t, { weather: small() })
  for (const words of [
    ['--kind', 'calls'],
    ['--since', 'soon'],
    ['--limit', '0'],
    ['verify', '--follow'],
    ['--follow', '--export', 'x'],
  ]) {
    assert.equal((await run(at, ['audit', ...words])).code, 2, words.join(' '))
  }
  const child = listenTo(t, process.execPath, [program, 'audit', '--follow'], { cwd: at.work, env: environment(at), limit: LIMIT })
  const ended = once(child, 'exit')
  const { stdout } = await run(at, ['approve', 'weather', '--json'])
  await run(at, ['approve', 'weather', '--digest', JSON.parse(stdout).servers[0].request.digest])
  await waitFor('the approval', () => child.output.stdout.includes('"action":"command"'))
  child.kill('SIGINT')
  const [code] = await ended
  assert.equal(code, 130)
})

/** Returns the rows of one kind, each with these fields. */
const rowsOf = async (gateway, kind, ...fields) => (await gateway.audit({ kind })).map((row) => fields.map((field) => row[field]))

test('each end of a connection is a row, whatever has ended it', async (t) => {
  const stateDir = join(folder(t), 'state')
  const path = join(folder(t), 'config.json')
  const write = (entry) =>
    writeFileSync(path, JSON.stringify({ mcpServers: { fixture: entry }, profiles: { all: { servers: ['fixture'] } } }))
  write(fixture())
  const open = () => openGateway(t, {}, { config: undefined, configPath: path, stateDir })
  const gateway = await open()
  const ends = {
    disable: () => gateway.disable('fixture'),
    revoke: () => gateway.revoke('fixture'),
    reload: async () => {
      write({ ...fixture(), timeoutMs: 7000 })
      await gateway.reload()
    },
    agent: async () => {
      const agent = gateway.agent('a', { profiles: ['all'] })
      await agent.callTool('fixture', 'echo', { value: 1 })
      await agent.close()
    },
    close: () => gateway.close(),
  }
  for (const [why, end] of Object.entries(ends)) {
    await gateway.approve('fixture')
    await gateway.enable('fixture')
    // A connection that the operator's own agent uses outlives the agents with the profile.
    if (why !== 'agent') await gateway.callTool('fixture', 'echo', { value: 1 })
    const before = (await rowsOf(gateway, 'connection', 'action')).length
    await end()
    const reader = why === 'close' ? await open() : gateway
    await waitFor(`a row about ${why}`, async () => (await rowsOf(reader, 'connection', 'action')).slice(before).join().endsWith('closed'))
  }
})

test('servers of providers and generated ones are rows when they come, change and go', async (t) => {
  const gateway = await openGateway(t)
  const provider = (...args) => ({ servers: () => args.map((name) => ({ name, command: name, args: [] })) })
  await gateway.registerProvider('acme', provider('one', 'two'))
  await gateway.registerProvider('acme', provider('two'))
  const tools = (code) => ({
    tools: [
      {
        name: 'add',
        description: 'Adds',
        inputSchema: { type: 'object' },
        endpoints: [],
        notes: '',
        needsNetwork: false,
        readOnly: true,
        code,
      },
    ],
    hosts: [],
  })
  await gateway.setGenerated('made', tools('return 1'))
  await gateway.setGenerated('made', tools('return 2'))
  await gateway.removeGenerated('made')
  assert.deepEqual(await rowsOf(gateway, 'server', 'server', 'action', 'subject', 'by'), [
    ['acme--one', 'added', 'provider', 'person'],
    ['acme--two', 'added', 'provider', 'person'],
    ['acme--one', 'removed', 'provider', 'person'],
    ['made', 'added', 'generated', 'person'],
    ['made', 'changed', 'generated', 'person'],
    ['made', 'removed', 'generated', 'person'],
  ])
})

test('changes of the config are rows once, also those of a command and of an editor while no gateway is open', async (t) => {
  const at = place(t, { kept: small() })
  const file = join(at.home, '.hyperagent/config.json')
  const rows = async () => {
    const { stdout } = await run(at, ['audit'])
    const all = stdout.split('\n').filter(Boolean).map(JSON.parse)
    return all.filter(({ kind }) => kind === 'server').map(({ server, action, by }) => [server, action, by].join(' '))
  }
  const told = ['kept added config']
  assert.equal((await run(at, ['list'])).code, 0)
  assert.deepEqual(await rows(), told)
  for (const words of [
    ['add', 'files', '--', 'server-files'],
    ['set', 'files', 'ROOT=/srv'],
    ['unset', 'files', 'ROOT'],
    ['remove', 'files'],
  ]) {
    const { code, stderr } = await run(at, words)
    assert.equal(code, 0, stderr)
  }
  told.push('files added person', 'files changed person', 'files changed person', 'files removed person')
  assert.deepEqual(await rows(), told)
  const config = JSON.parse(readFileSync(file, 'utf8'))
  config.mcpServers.kept.timeoutMs = 9000
  config.mcpServers.later = small()
  writeFileSync(file, JSON.stringify(config))
  told.push('later added config', 'kept changed config')
  assert.equal((await run(at, ['list'])).code, 0)
  assert.equal((await run(at, ['list'])).code, 0)
  assert.deepEqual(await rows(), told)
})

test('calls in progress have a row where Node ends without close(), and are counted as missing where it is killed', async (t) => {
  const CALLS = 5
  /** Returns the rows of the calls that were in progress at this end, and the numbers of the gaps. */
  const rows = async (end) => {
    const stateDir = join(folder(t), 'state')
    const code = `import { Gateway } from ${JSON.stringify(join(root, 'index.mjs'))}
      const config = { mcpServers: { fixture: ${JSON.stringify(fixture())} } }
      const gateway = await Gateway.open({ config, stateDir: ${JSON.stringify(stateDir)} })
      for (let stage = 0; stage < 2; stage += 1) await gateway.approve('fixture', (await gateway.approvalRequest('fixture')).digest)
      await gateway.enable('fixture')
      await gateway.callTool('fixture', 'echo', { value: 1 })
      // The audit has the row of the call before, so that only calls in progress can be missing.
      await gateway.audit({ kind: 'call' })
      for (let number = 0; number < ${CALLS}; number += 1) gateway.callTool('fixture', 'sleep', { ms: 60_000 }).catch(() => {})
      // When the server has answered a later call, the earlier calls are in progress.
      await gateway.callTool('fixture', 'echo', { value: 2 })
      await gateway.audit({ kind: 'call' })
      ${end}`
    const child = listenTo(t, process.execPath, ['--input-type=module', '-e', code], { limit: LIMIT })
    const [status, signal] = await once(child, 'exit')
    assert.ok(status === 0 || signal === 'SIGKILL', child.output.stderr)
    const gateway = await openGateway(t, {}, { stateDir })
    const calls = (await gateway.audit({ kind: 'call' })).filter(({ tool }) => tool === 'sleep')
    const gaps = (await gateway.audit({ kind: 'gap' })).map(({ lost }) => lost)
    return { calls: calls.map(({ outcome }) => outcome), gaps }
  }
  const cancelled = { calls: Array(CALLS).fill('cancelled'), gaps: [] }
  // The end waits for the audit for a limited time, in which a busy machine may not give it a processor. Then the calls are counted as missing.
  let ended
  for (let attempt = 0; attempt < 5 && ended?.calls.length !== CALLS; attempt += 1) ended = await rows('process.exit(0)')
  assert.deepEqual(ended, cancelled)
  assert.deepEqual(await rows('process.kill(process.pid, "SIGKILL"); await new Promise(() => {})'), { calls: [], gaps: [CALLS] })
})

test('nothing is lost where Node ends without close()', async (t) => {
  const NUMBER = 20
  const ends = { exit: 'process.exit(0)', itself: '', throws: 'throw new Error("thrown on purpose")' }
  /** Returns how many of the changes that a process has made before this end are in the audit. */
  const kept = async (name, end) => {
    const stateDir = join(folder(t), 'state')
    const code = `import { Gateway } from ${JSON.stringify(join(root, 'index.mjs'))}
      const gateway = await Gateway.open({ config: { mcpServers: {} }, stateDir: ${JSON.stringify(stateDir)} })
      for (let number = 0; number < ${NUMBER}; number += 1) await gateway.setToolbox('a', ['a-' + number + '/*'])
      ${end}`
    const child = listenTo(t, process.execPath, ['--input-type=module', '-e', code], { limit: LIMIT })
    const [status] = await once(child, 'exit')
    assert.equal(status, name === 'throws' ? 1 : 0, child.output.stderr)
    const gateway = await openGateway(t, {}, { stateDir })
    return (await gateway.audit({ kind: 'grant' })).length
  }
  for (const [name, end] of Object.entries(ends)) {
    // The end waits for the audit for a limited time, in which a busy machine may not give it a processor.
    let most = 0
    for (let attempt = 0; attempt < 5 && most < NUMBER; attempt += 1) most = Math.max(most, await kept(name, end))
    assert.equal(most, NUMBER, name)
  }
})
