// Tests of the audit in Node and on the command line: the rows that are recorded, exported and verified.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { approved, environment, LIMIT, place, program, run, small } from './command-line.mjs'
import { evaluate, failure, fixture, folder, listenTo, logLines, openApproved, outputOf, waitFor } from './support.mjs'

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
