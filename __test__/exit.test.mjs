// Tests of every way in which Node or a worker ends: everything that was started is gone, nothing keeps the process alive, and nothing is
// printed.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { describe, test } from 'node:test'
import { Worker } from 'node:worker_threads'
import * as esm from '../index.mjs'
import { folder, isAlive, ms, root, run, start, waitFor } from './support.mjs'

const LIMIT = ms(25_000)
const script = (name) => join(root, '__test__/fixtures', name)
const STATES = { nothing: 'with nothing going on', call: 'with calls pending', loop: 'with a guest in while (true) {}' }

/** Starts Node with a script of the tests. `said()` returns its next line, and `ended` resolves at its end. */
function node(t, name, options) {
  const path = folder(t)
  const arguments_ = [script(name), JSON.stringify({ folder: path, ...options })]
  const child = start(t, process.execPath, arguments_, { stdio: ['ignore', 'pipe', 'pipe'], limit: LIMIT })
  let stderr = ''
  child.stderr.on('data', (text) => {
    stderr += text
  })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const ended = once(child, 'close').then(([code, signal]) => ({ code, signal, stderr }))
  const said = async () => {
    const { value, done } = await lines.next()
    if (done) assert.fail(`it ended, saying: ${JSON.stringify(await ended)}`)
    return JSON.parse(value)
  }
  return { child, said, ended }
}

/** Waits for the end of a process, at most until the limit. */
async function endOf({ child, ended }, limit) {
  const timer = setTimeout(() => child.kill('SIGKILL'), limit)
  const end = await ended
  clearTimeout(timer)
  return end
}

const all = (processes) => Object.values(processes).flat()

function assertCounted(processes) {
  const counts = Object.values(processes).map(({ length }) => length)
  assert.deepEqual(counts, [2, 1, 1, 1], 'two servers, the child of one, one watchdog, one reader of code')
}

function assertComplete(processes) {
  assertCounted(processes)
  assert.ok(all(processes).every(isAlive))
}

describe('After close() everything is gone, and Node exits on its own', { concurrency: 4 }, () => {
  const outcomes = { nothing: [], call: ['ERR_CLOSED', 'ERR_CLOSED'], loop: ['ERR_CLOSED'] }
  for (const [what, so] of Object.entries(STATES)) {
    test(so, { timeout: ms(20_000) }, async (t) => {
      const agent = node(t, 'agent.mjs', { what, end: 'close' })
      const { processes } = await agent.said()
      assertCounted(processes)
      assert.deepEqual(await agent.said(), { outcomes: outcomes[what], children: [] })
      assert.deepEqual(all(processes).filter(isAlive), [], 'gone with close() itself')
      assert.deepEqual(await endOf(agent, ms(3000)), { code: 0, signal: null, stderr: '' })
    })
  }
})

describe('Within 2 s after Node has ended', { concurrency: 3 }, () => {
  const ends = {
    'by process.exit()': { end: 'exit', expected: { code: 7, signal: null }, says: /^$/ },
    'by an uncaught throw': { end: 'throw', expected: { code: 1, signal: null }, says: /thrown by the agent/ },
    'by an unhandled rejection': { end: 'reject', expected: { code: 1, signal: null }, says: /rejected by the agent/ },
    'by SIGINT': { end: 'wait', expected: { code: null, signal: 'SIGINT' }, says: /^$/ },
    'by SIGTERM': { end: 'wait', expected: { code: null, signal: 'SIGTERM' }, says: /^$/ },
    'by SIGKILL': { end: 'wait', expected: { code: null, signal: 'SIGKILL' }, says: /^$/ },
  }
  for (const [how, { end, expected, says }] of Object.entries(ends)) {
    for (const [what, so] of Object.entries(STATES)) {
      test(`${how}, ${so}, no server, grandchild or watchdog is left`, { timeout: ms(20_000) }, async (t) => {
        const agent = node(t, 'agent.mjs', { what, end })
        const { processes } = await agent.said()
        if (end === 'wait') {
          assertComplete(processes)
          agent.child.kill(expected.signal)
        }
        const { stderr, ...ended } = await endOf(agent, ms(5000))
        assert.deepEqual(ended, expected)
        assert.match(stderr, says)
        await waitFor('all processes to end', () => !all(processes).some(isAlive), ms(2000))
      })
    }
  }

  test('by SIGINT to the whole group, as a terminal sends it, nothing is left either', { timeout: ms(20_000) }, async (t) => {
    const path = folder(t)
    const options = JSON.stringify({ folder: path, what: 'call', end: 'wait' })
    const stdio = ['ignore', 'pipe', 'inherit']
    const child = start(t, process.execPath, [script('agent.mjs'), options], { stdio, detached: true, limit: LIMIT })
    const ended = once(child, 'close')
    const [line] = await once(createInterface({ input: child.stdout }), 'line')
    const { processes } = JSON.parse(line)
    assertComplete(processes)
    process.kill(-child.pid, 'SIGINT')
    assert.deepEqual(await ended, [null, 'SIGINT'])
    await waitFor('all processes to end', () => !all(processes).some(isAlive), ms(2000))
  })
})

test('no signal handler is installed, neither in JavaScript nor beneath it', { timeout: ms(20_000) }, async (t) => {
  const agent = node(t, 'agent.mjs', { what: 'loop', end: 'exit' })
  const { listeners, caughtBefore, caughtAfter } = await agent.said()
  assert.deepEqual(listeners, [])
  assert.equal(caughtAfter, caughtBefore)
  await agent.ended
})

describe('Worker threads', { concurrency: 3 }, () => {
  const cases = [
    ['a worker that closes its gateway ends by itself, and leaves nothing', { what: 'nothing', end: 'close', workers: 1 }],
    ['two workers at once have gateways of their own', { what: 'nothing', end: 'close', workers: 2 }],
    ...Object.entries(STATES).map(([what, so]) => [
      `a worker that is terminated ${so} leaves nothing`,
      { what, end: 'terminate', workers: 1 },
    ]),
    ['two workers that are terminated leave nothing', { what: 'loop', end: 'terminate', workers: 2 }],
  ]
  for (const [what, options] of cases) {
    test(`${what}: no process, no zombie, no thread; the main thread's gateway goes on`, { timeout: ms(25_000) }, async (t) => {
      const host = node(t, 'worker-host.mjs', options)
      assert.deepEqual(await endOf(host, ms(25_000)), { code: 0, signal: null, stderr: '' })
    })
  }
})

describe('Loading', () => {
  const require = createRequire(import.meta.url)

  test('import and require, by path and by name, give the same classes', async () => {
    const others = [require('../index.js'), require('hyperlight-mcp'), await import('hyperlight-mcp'), esm.default]
    for (const { Gateway, Sandbox } of others) assert.deepEqual([Gateway, Sandbox], [esm.Gateway, esm.Sandbox])
    assert.deepEqual([esm.Gateway.name, esm.Sandbox.name], ['Gateway', 'Sandbox'])
  })

  test('a worker loads it both ways, beside the main thread', async () => {
    const code = `
      const { parentPort } = require('node:worker_threads')
      const { Gateway } = require(${JSON.stringify(join(root, 'index.js'))})
      import(${JSON.stringify(join(root, 'index.mjs'))}).then((esm) => parentPort.postMessage(esm.Gateway === Gateway && typeof Gateway.open))`
    const worker = new Worker(code, { eval: true })
    const exited = once(worker, 'exit')
    assert.deepEqual(await once(worker, 'message'), ['function'])
    assert.deepEqual(await exited, [0])
  })

  test('alone holds no process up, and prints nothing', async (t) => {
    const ended = await run(t, process.execPath, ['-e', `require(${JSON.stringify(root)})`], { limit: LIMIT })
    assert.deepEqual(ended, { code: 0, signal: null, stdout: '', stderr: '' })
  })
})
