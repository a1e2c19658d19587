// Tests of runs: a run leaves nothing for the next one; how runs queue and run side by side; what Node sees of them meanwhile; and how
// they end when their time is over.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import {
  arrived,
  deferred,
  evaluate,
  fixture,
  folder,
  held,
  logLines,
  ms,
  openApproved,
  openGateway,
  openSandbox,
  promptly,
  waitFor,
  wholeFile,
} from './support.mjs'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc')

function resources() {
  collectGarbage()
  const status = readFileSync('/proc/self/status', 'utf8')
  // RssFile is left out. It counts the pages of Node's own program that were used, and this count grows in steps as V8 compiles code.
  const kib = [...status.matchAll(/Rss(?:Anon|Shmem):\s+(\d+)/g)].reduce((sum, [, size]) => sum + Number(size), 0)
  return { ...held(), kib }
}
async function assertNoGrowth(before) {
  // A run's thread ends a moment after its outcome, and its VM is dropped after that.
  const threads = () => `${before.threads.length} threads, and not ${held().threads.sort().join(', ')}`
  await waitFor(threads, () => held().threads.length <= before.threads.length)
  await waitFor('two VMs that wait, and two of the gateway of the whole file', () => held().vms <= 4)
  const after = resources()
  assert.ok(after.descriptors.length <= before.descriptors.length, `${before.descriptors} became ${after.descriptors}`)
  assert.ok(after.kib - before.kib < 6 * 1024, `${before.kib} KiB of memory became ${after.kib}`)
}
/** Guest code that imports the fixture server's module and the agent's own `host:agent`, if asked for. */
const program = (body, agent) =>
  `import * as fixture from "host:mcp-fixture";${agent ? 'import * as agent from "host:agent";' : ''} export async function handler(input) { ${body} }`

// The guest boots once for all tests that need no gateway of their own.
const log = join(folder(wholeFile), 'log')
const gateway = await openApproved(wholeFile, { fixture: fixture('--log', log) })

describe('200 runs in a row in one sandbox', () => {
  // Each run looks for the traces of the runs before it, and then leaves the same traces.
  const code = `
    import * as fixture from "host:mcp-fixture";
    let count = 0;
    export function handler(input) {
      const found = {
        global: globalThis.left, lexical: typeof Left, objects: {}.left, arrays: [].includes(1), math: Math.left, json: JSON.left,
        module: ++count, function: fixture.echo.left, symbol: globalThis[Symbol.for("left")], globals: Object.keys(globalThis).length,
        memory: globalThis.hoard?.length,
      };
      globalThis.left = globalThis[Symbol.for("left")] = Object.prototype.left = Math.left = JSON.left = "left";
      globalThis.Left = class {};
      globalThis.hoard = new Uint8Array(256 << 10).fill(1);
      Array.prototype.includes = () => true;
      try { fixture.echo.left = "left"; } catch {}
      try { Object.defineProperty(globalThis, "console", { value: { log: () => {} } }); } catch {}
      return { found, echoed: fixture.echo({ value: input }).value };
    }`

  test('carry no state over, and leave no memory, descriptor or thread behind', { timeout: ms(60_000) }, async (t) => {
    const { sandbox } = await openSandbox(t)
    let first
    const run = async (input) => {
      const { value, logs } = await sandbox.run(code, { input })
      first ??= value.found
      assert.deepEqual(value, { found: first, echoed: input })
      assert.deepEqual(logs, [])
    }
    for (let index = 0; index < 30; index++) await run(`warm-up ${index}`)
    const before = resources()
    for (let index = 0; index < 200; index++) await run(`run ${index}`)
    assert.deepEqual(first, { lexical: 'undefined', arrays: false, module: 1, globals: first.globals })
    await assertNoGrowth(before)
  })

  test('leave nothing behind when they fail either', { timeout: ms(60_000) }, async (t) => {
    const { sandbox } = await openSandbox(t, { options: { limits: { guestHeapBytes: 8 << 20 } } })
    const failing = [
      ['throw new Error("no")', 'ERR_GUEST_THREW', ms(5000)],
      ['for (;;);', 'ERR_RUN_TIMEOUT', 60],
      ['fixture.hang()', 'ERR_RUN_TIMEOUT', 60],
      ['const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1))', 'ERR_GUEST_MEMORY', ms(5000)],
    ]
    const round = async () => {
      for (const [body, code, timeoutMs] of failing) await assert.rejects(sandbox.run(program(body), { timeoutMs }), { code })
    }
    for (let index = 0; index < 3; index++) await round()
    const before = resources()
    for (let index = 0; index < 10; index++) await round()
    await assertNoGrowth(before)
  })
})

describe('Side by side', () => {
  test('8 sandboxes each get their own answers to their own calls', { timeout: ms(30_000) }, async () => {
    const code = program('return Array.from({ length: 5 }, (_, call) => fixture.echo({ value: { ...input, call } }).value)')
    const work = async (sandbox) => {
      const own = await gateway.sandbox()
      for (let run = 0; run < 4; run++) {
        const { value, stats } = await own.run(code, { input: { sandbox, run } })
        assert.deepEqual(
          value,
          Array.from({ length: 5 }, (_, call) => ({ sandbox, run, call })),
        )
        assert.equal(stats.calls, 5)
      }
    }
    await Promise.all(Array.from({ length: 8 }, (_, index) => work(index)))
  })

  test('8 runs are inside a tool call at the same time', { timeout: ms(30_000) }, async () => {
    const sandboxes = await Promise.all(Array.from({ length: 8 }, () => gateway.sandbox()))
    const started = performance.now()
    const pause = ms(500)
    await Promise.all(sandboxes.map((sandbox) => evaluate(sandbox, 'fixture.sleep(input)', { input: { ms: pause } })))
    const took = performance.now() - started
    assert.ok(took < 4 * pause, `8 calls of ${pause} ms took ${took} ms`)
  })

  test('8 runs can wait for each other', { timeout: ms(30_000) }, async () => {
    const all = deferred()
    let here = 0
    const meet = () => {
      here += 1
      if (here === 8) all.resolve('met')
      return all.promise
    }
    const run = async () => {
      const sandbox = await gateway.sandbox()
      sandbox.hostModule('agent', { meet })
      return (await sandbox.run('import { meet } from "host:agent"; export const handler = () => meet()', { timeoutMs: ms(10_000) })).value
    }
    assert.deepEqual(await Promise.all(Array.from({ length: 8 }, run)), Array(8).fill('met'))
  })

  test('runs of one sandbox take turns, in the order in which they came', async () => {
    const sandbox = await gateway.sandbox()
    let seen = []
    sandbox.hostModule('agent', { note: (text) => void seen.push(text) })
    const code = program('agent.note(input + " begins"); fixture.count(); agent.note(input + " ends")', true)
    const inputs = Array.from({ length: 6 }, (_, index) => `run ${index}`)
    for (let round = 0; round < 15; round++) {
      seen = []
      await Promise.all(inputs.map((input) => sandbox.run(code, { input })))
      const inOrder = inputs.flatMap((input) => [`${input} begins`, `${input} ends`])
      assert.deepEqual(seen, inOrder)
    }
  })

  test('a failed run lets the next one in the queue go on', async () => {
    const sandbox = await gateway.sandbox()
    const failed = sandbox.run(program('for (;;);'), { timeoutMs: 50 })
    const next = evaluate(sandbox, '"next"')
    await assert.rejects(failed, { code: 'ERR_RUN_TIMEOUT' })
    assert.equal((await next).value, 'next')
  })

  test("the time in the queue is not the run's own", async () => {
    const sandbox = await gateway.sandbox()
    const first = evaluate(sandbox, 'fixture.sleep(input)', { input: { ms: ms(600) } })
    const queued = evaluate(sandbox, '"in time"', { timeoutMs: ms(400) })
    assert.equal((await queued).value, 'in time')
    assert.equal((await first).value, 'slept')
  })
})

test('two gateways in one process, with servers of the same names, have nothing in common', async (t) => {
  const gateways = [
    await openApproved(t, { fixture: fixture('--extra-tool', 'one') }),
    await openApproved(t, { fixture: fixture('--extra-tool', 'two') }),
  ]
  const sandboxes = await Promise.all(gateways.map((gateway) => gateway.sandbox()))
  for (const index of [0, 1]) sandboxes[index].hostModule('agent', { which: () => index })
  const body =
    'fixture.count(); return { ...fixture.pid(), tools: Object.keys(fixture), which: agent.which(), count: fixture.count().count }'
  const code = program(body, true)
  const [one, two] = (await Promise.all(sandboxes.map((sandbox) => sandbox.run(code)))).map(({ value }) => value)
  assert.notEqual(one.pid, two.pid)
  assert.deepEqual([one.which, two.which, one.count, two.count], [0, 1, 2, 2])
  assert.ok(one.tools.includes('one') && !one.tools.includes('two') && two.tools.includes('two') && !two.tools.includes('one'))
  await gateways[0].close()
  assert.equal((await sandboxes[1].run(program('return fixture.pid().pid'))).value, two.pid)
  await assert.rejects(sandboxes[0].run('export const handler = () => 1'), { code: 'ERR_CLOSED' })
})

describe("Node's main thread", () => {
  test('is needed by no tool call: 20 of them pass while it is busy', { timeout: ms(20_000) }, async () => {
    const sandbox = await gateway.sandbox()
    await evaluate(sandbox, 'fixture.echo({ value: 0 })') // the server is connected
    const before = arrived(log, 'count').length
    const calls = () => arrived(log, 'count').length - before
    let turns = 0
    const run = sandbox.run(program('for (let n = 0; n < 20; n++) fixture.count(); return "done"'))
    setImmediate(() => {
      turns += 1
    })
    const deadline = performance.now() + ms(5000)
    while (calls() < 20 && performance.now() < deadline);
    assert.equal(calls(), 20, 'all calls reached the server before the event loop had a turn')
    assert.equal(turns, 0)
    const { value, stats } = await run
    assert.deepEqual([value, stats.calls], ['done', 20])
  })

  test('is never blocked by a run or a starting sandbox', { timeout: ms(30_000) }, async (t) => {
    await promptly(ms(100), async () => {
      const own = await openApproved(t, { fixture: fixture() })
      let [turns, longest, last, counting] = [0, 0, performance.now(), true]
      const turn = () => {
        const now = performance.now()
        turns += 1
        longest = Math.max(longest, now - last)
        last = now
        if (counting) setImmediate(turn)
      }
      setImmediate(turn)
      const sandbox = await own.sandbox()
      await assert.rejects(sandbox.run(program('for (;;);'), { timeoutMs: ms(300) }), { code: 'ERR_RUN_TIMEOUT' })
      await evaluate(sandbox, 'fixture.sleep(input)', { input: { ms: ms(300) } })
      counting = false
      assert.ok(turns > 100, `${turns} turns`)
      return longest
    })
  })
})

describe("The guest's console", () => {
  const levels = ['log', 'info', 'warn', 'error', 'debug']
  const speak = `export const handler = () => { for (const level of ${JSON.stringify(levels)}) console[level]("a " + level); }`
  const spoken = levels.map((level) => ({ level, text: `a ${level}` }))

  test("reaches onEvent at all levels, in order, and the result's logs", async () => {
    const sandbox = await gateway.sandbox()
    const events = []
    const { logs } = await sandbox.run(speak, { onEvent: (event) => events.push(event) })
    assert.deepEqual(logs, spoken)
    assert.deepEqual(
      events,
      spoken.map((entry) => ({ type: 'log', runId: events[0].runId, ...entry })),
    )
    assert.ok(Number.isInteger(events[0].runId))
    const others = []
    await sandbox.run(speak, { onEvent: (event) => others.push(event.runId) })
    assert.ok(others[0] > events[0].runId && new Set(others).size === 1, 'each run has a number of its own')
  })

  test('arrives as it is written, not at the end', { timeout: ms(10_000) }, async () => {
    const sandbox = await gateway.sandbox()
    const heard = deferred()
    sandbox.hostModule('agent', { heard: () => heard.promise })
    const code = 'import { heard } from "host:agent"; export const handler = () => { console.log("now"); return heard(); }'
    const { value } = await sandbox.run(code, { onEvent: ({ text }) => heard.resolve(text), timeoutMs: ms(5000) })
    assert.equal(value, 'now')
  })

  test("is told to the innermost onEvent alone: the run's, the sandbox's, the gateway's", async (t) => {
    const heard = []
    const listener = (who) => ({ onEvent: ({ type, text }) => type === 'log' && heard.push(`${who}: ${text}`) })
    const outer = await openGateway(t, {}, listener('gateway'))
    const [plain, own] = [await outer.sandbox(), await outer.sandbox(listener('sandbox'))]
    const say = (text) => `export const handler = () => console.log("${text}")`
    await own.run(say('1'), listener('run'))
    await own.run(say('2'))
    await plain.run(say('3'), listener('run'))
    await plain.run(say('4'))
    assert.deepEqual(heard, ['run: 1', 'sandbox: 2', 'run: 3', 'gateway: 4'])
  })

  test('does not fail the run when onEvent throws: that becomes a process warning', async (t) => {
    const sandbox = await gateway.sandbox()
    const warnings = []
    const listen = (warning) => warnings.push(warning)
    process.on('warning', listen)
    t.after(() => process.off('warning', listen))
    const onEvent = () => {
      throw new Error('a listener of mine')
    }
    const { logs } = await sandbox.run('export const handler = () => console.log("said")', { onEvent })
    assert.deepEqual(logs, [{ level: 'log', text: 'said' }])
    const [warning] = await waitFor('the warning', () => warnings.length > 0 && warnings)
    assert.match(warning.message, /a listener of mine/)
  })

  test("is in a failed run's error, with the warnings and the figures", async (t) => {
    const { sandbox } = await openSandbox(t, { options: { limits: { maxResponseBytes: 1000 } } })
    const body = 'console.warn("before"); fixture.big_text({ bytes: 5000 }); throw new TypeError("the end")'
    const error = await sandbox.run(program(body)).catch((caught) => caught)
    assert.equal(error.code, 'ERR_GUEST_THREW')
    assert.match(error.message, /the end/)
    assert.deepEqual(error.logs, [{ level: 'warn', text: 'before' }])
    assert.equal(error.warnings.length, 1)
    assert.match(error.warnings[0], /fixture\.big_text/)
    assert.equal(error.stats.calls, 1)
    for (const figure of ['durationMs', 'startMs', 'callMs', 'bytesOut', 'bytesIn']) assert.ok(error.stats[figure] > 0, figure)
    assert.ok(error.stats.startMs + error.stats.callMs < error.stats.durationMs)
  })

  test('is in the error of a run that ran out of time as well', async () => {
    const sandbox = await gateway.sandbox()
    const body = 'console.info("before"); fixture.echo({ value: 1 }); for (;;);'
    const error = await sandbox.run(program(body), { timeoutMs: ms(200) }).catch((caught) => caught)
    assert.equal(error.code, 'ERR_RUN_TIMEOUT')
    assert.deepEqual([error.logs, error.warnings, error.stats.calls], [[{ level: 'info', text: 'before' }], [], 1])
  })
})

describe("A run's time limit", () => {
  const limit = 300
  const endless = {
    'a loop': 'while (true) {}',
    'a loop of microtasks': 'for (;;) await null',
    'promises that beget promises': 'const next = () => Promise.resolve().then(next); await next()',
    'a regular expression that backtracks without end': 'return /^(a+)+$/.test("a".repeat(64) + "b")',
    'a loop of host calls': 'for (;;) fixture.count()',
    'a loop of console output': 'for (;;) console.log("again")',
    'a loop that catches everything': 'for (;;) try { for (;;); } catch {} finally { for (;;); }',
    'a loop while its value leaves': 'return { toJSON() { for (;;); } }',
    'a pending tool call': 'fixture.hang()',
    "a pending call of the agent's own module": 'agent.never()',
  }

  for (const [what, body] of Object.entries(endless)) {
    test(`ends ${what} within 100 ms, and the sandbox is usable afterwards`, async () => {
      const sandbox = await gateway.sandbox()
      sandbox.hostModule('agent', { never: () => new Promise(() => {}) })
      await promptly(ms(100), async () => {
        const started = performance.now()
        await assert.rejects(sandbox.run(program(body, true), { timeoutMs: ms(limit) }), (error) => {
          assert.equal(error.code, 'ERR_RUN_TIMEOUT')
          assert.match(error.message, new RegExp(`${ms(limit)} ms`))
          return true
        })
        const late = performance.now() - started - ms(limit)
        assert.ok(late > -2, `it ended ${-late} ms early`)
        return late
      })
      assert.equal((await evaluate(sandbox, 'fixture.echo({ value: 42 }).value')).value, 42)
    })
  }

  test("holds for a module's top level as well", async () => {
    const endless = (await gateway.sandbox()).run('for (;;); export const handler = () => 1', { timeoutMs: ms(limit) })
    await assert.rejects(endless, { code: 'ERR_RUN_TIMEOUT' })
  })

  test('is limits.runTimeoutMs where none is given, and never more', async (t) => {
    const sandbox = await (await openGateway(t, {}, { limits: { runTimeoutMs: ms(200) } })).sandbox()
    for (const options of [undefined, { timeoutMs: ms(60_000) }]) {
      const error = await sandbox.run('export const handler = () => { for (;;); }', options).catch((caught) => caught)
      assert.equal(error.code, 'ERR_RUN_TIMEOUT')
      assert.match(error.message, new RegExp(`${ms(200)} ms.*limits\\.runTimeoutMs`))
    }
  })
})

describe('A pending call that is ended', () => {
  const ways = {
    "by the run's deadline": ({ sandbox }) => [evaluate(sandbox, 'fixture.hang()', { timeoutMs: ms(200) }), 'ERR_RUN_TIMEOUT'],
    "by the run's AbortSignal": ({ sandbox, signal }) => [evaluate(sandbox, 'fixture.hang()', { signal }), 'ERR_ABORTED'],
    'by sandbox.close()': ({ sandbox, onSent }) => {
      onSent(() => sandbox.close())
      return [evaluate(sandbox, 'fixture.hang()'), 'ERR_CLOSED']
    },
    "by callTool's deadline": () => [gateway.callTool('fixture', 'hang', {}, { timeoutMs: ms(200) }), 'ERR_CALL_TIMEOUT'],
    "by callTool's AbortSignal": ({ signal }) => [gateway.callTool('fixture', 'hang', {}, { signal }), 'ERR_ABORTED'],
  }
  for (const [way, start] of Object.entries(ways)) {
    test(`${way} is cancelled at the server too`, async () => {
      const before = arrived(log, 'hang').length
      const sandbox = await gateway.sandbox()
      const controller = new AbortController()
      let whenSent = () => controller.abort()
      const onSent = (action) => {
        whenSent = action
      }
      const [pending, code] = start({ sandbox, signal: controller.signal, onSent })
      const refused = assert.rejects(pending, { code })
      const { id } = await waitFor('the call to arrive', () => arrived(log, 'hang')[before])
      if (code !== 'ERR_RUN_TIMEOUT' && code !== 'ERR_CALL_TIMEOUT') whenSent()
      await refused
      const notified = ({ method, params }) => method === 'notifications/cancelled' && params.requestId === id
      await waitFor('notifications/cancelled', () => logLines(log).some(notified))
      await waitFor('the server to end the call', () => logLines(log).some((line) => line.event === 'cancelled' && line.id === id))
    })
  }
})
