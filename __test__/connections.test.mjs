// Tests of places for connections: which connections are closed to make room, and which server gets a free place.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { deferred, failure, fixture, gated, isAlive, openApproved, waitFor } from './support.mjs'

/** Code that calls these servers and then waits for a long time, while the run holds them. */
const holding = (...names) => `
  import { call, sleep } from 'host:mcp'
  export const handler = async () => { for (const name of ${JSON.stringify(names)}) call(name, 'count', {}); await sleep(600_000) }`

/** Starts a run that holds these servers. Returns what ends it. */
async function hold(gateway, ...names) {
  const stop = new AbortController()
  const run = failure((await gateway.sandbox({ toolErrors: 'throw' })).run(holding(...names), { signal: stop.signal }), 'ERR_ABORTED')
  const state = (name) => gateway.servers().find((server) => server.name === name).state
  await waitFor('the run to hold its servers', () => names.every((name) => state(name) === 'connected'))
  return async () => {
    stop.abort()
    await run
  }
}

test('servers of a run that waits for a person give way, and start anew when it goes on', async (t) => {
  const [asked, answer] = [deferred(), deferred()]
  const onApproval = (question) => {
    asked.resolve(question)
    return answer.promise
  }
  const servers = { one: fixture(), two: gated(), three: fixture() }
  const gateway = await openApproved(t, servers, { onApproval, limits: { maxConnections: 1, callTimeoutMs: 5000 } })
  const sandbox = await gateway.sandbox({ toolErrors: 'throw' })
  const run = sandbox.run(`
    import { call } from 'host:mcp'
    const pid = (server) => call(server, 'pid', {}).structuredContent.pid
    export const handler = () => {
      const before = [pid('one'), pid('two')]
      call('two', 'write_note', { text: 'x' })
      return [before, pid('one')]
    }`)
  await asked.promise
  assert.equal(typeof (await gateway.callTool('three', 'pid')).structuredContent.pid, 'number')
  answer.resolve('run')
  const [[before], after] = (await run).value
  assert.notEqual(after, before)
  assert.ok(!isAlive(before))
})

test('servers of a run that waits for a person are the last to give way', async (t) => {
  const [asked, answer] = [deferred(), deferred()]
  const onApproval = (question) => {
    asked.resolve(question)
    return answer.promise
  }
  const servers = { one: fixture(), two: gated(), three: fixture(), four: fixture() }
  const gateway = await openApproved(t, servers, { onApproval, limits: { maxConnections: 3, callTimeoutMs: 5000 } })
  const sandbox = await gateway.sandbox({ toolErrors: 'throw' })
  const run = sandbox.run(`
    import { call } from 'host:mcp'
    const pid = (server) => call(server, 'pid', {}).structuredContent.pid
    export const handler = () => {
      const before = [pid('one'), pid('two')]
      call('two', 'write_note', { text: 'x' })
      return [before, [pid('one'), pid('two')]]
    }`)
  await asked.promise
  // Each of them was used after those of the run, but is closed first.
  for (const name of ['three', 'four', 'three']) await gateway.callTool(name, 'pid')
  answer.resolve('run')
  const [before, after] = (await run).value
  assert.deepEqual(after, before)
})

test('a caller whose extra place another one got does not wait for the end of the run that holds the rest', async (t) => {
  const servers = { slow: fixture('--ignore-stdin-eof'), held: fixture(), one: fixture(), two: fixture() }
  const gateway = await openApproved(t, servers, { limits: { maxConnections: 2, callTimeoutMs: 20_000 } })
  const end = await hold(gateway, 'held')
  await gateway.callTool('slow', 'pid')
  const both = ['one', 'two'].map(async (name) => (await gateway.callTool(name, 'pid')).structuredContent.pid)
  for (const pid of await Promise.all(both)) assert.equal(typeof pid, 'number')
  await end()
  await waitFor('the end of the extra connections', () => gateway.servers().filter((one) => one.state === 'connected').length <= 2)
})

test('a pinned server that a run holds is no reason for a place beyond the limit', async (t) => {
  const servers = { other: fixture(), pinned: { ...fixture(), pinned: true } }
  const gateway = await openApproved(t, servers, { limits: { maxConnections: 1, callTimeoutMs: 1000 } })
  const end = await hold(gateway, 'pinned')
  await failure(gateway.callTool('other', 'pid'), 'ERR_TOO_MANY_CONNECTIONS')
  await end()
})
