// Tests of the border of the VM from the view of an agent's author: what the code of a run can make the process do, and that this ends with
// the run.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { failure, fixture, openApproved, openGateway, wholeFile } from './support.mjs'

const gateway = await openGateway(wholeFile)
const MIB = 1024 * 1024

/** Keeps the main thread for this time. It waits and does not compute, because other work needs the processor. */
function keepBusy(milliseconds) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds)
}

describe('a function of the agent’s own', () => {
  test('is not begun once the run has ended that called it', async () => {
    const sandbox = await gateway.sandbox()
    const [calls, milliseconds] = [250, 20]
    const controller = new AbortController()
    let begun = 0
    sandbox.hostModule('own', {
      slow() {
        begun++
        // While the first call keeps the main thread busy, the other calls arrive and wait for it. Then the first call ends the run.
        if (begun === 1) keepBusy(300)
        controller.abort()
        keepBusy(milliseconds)
      },
    })
    const code = `import { slow } from "host:own"; export const handler = () => Promise.all(Array.from({ length: ${calls} }, () => slow.async()))`
    await failure(sandbox.run(code, { signal: controller.signal }), 'ERR_ABORTED')
    const whenItWasTold = begun
    assert.ok(begun > 0 && begun < calls, `${begun} of ${calls} calls were begun`)
    // This call comes to the main thread after all calls that were made before.
    await sandbox.run('import { slow } from "host:own"; export const handler = () => slow()')
    assert.equal(begun, whenItWasTold + 1)
  })

  test('is begun in the order of the calls', async () => {
    const sandbox = await gateway.sandbox()
    const order = []
    sandbox.hostModule('own', { note: (number) => void order.push(number) })
    const code = `import { note } from "host:own"; export const handler = async () => { const calls = Array.from({ length: 200 }, (_, number) => note.async(number)); note(200); await Promise.all(calls) }`
    await sandbox.run(code)
    assert.deepEqual(
      order,
      Array.from({ length: 201 }, (_, number) => number),
    )
  })
})

describe('many calls of a function of the agent’s own', () => {
  const storm = `
    import { slow } from "host:own";
    export const handler = async () => {
      for (;;) await Promise.race(Array.from({ length: 250 }, () => slow.async()));
    }`
  const milliseconds = 5
  const slow = {
    'works at once': () => keepBusy(milliseconds),
    'works after it has given a promise': async () => {
      await null
      keepBusy(milliseconds)
    },
  }

  for (const [what, work] of Object.entries(slow))
    test(`leave the event loop its turns, and a run its abort: one that ${what}`, async () => {
      const sandbox = await gateway.sandbox()
      const controller = new AbortController()
      let [calls, callsSinceTick, mostCalls, ticks] = [0, 0, 0, 0]
      sandbox.hostModule('own', {
        slow() {
          calls++
          mostCalls = Math.max(mostCalls, ++callsSinceTick)
          // The time until the abort starts with the first call.
          if (calls === 1) setTimeout(() => controller.abort(), 100)
          return work()
        },
      })
      const ticking = setInterval(() => {
        ticks++
        callsSinceTick = 0
      }, 1)
      try {
        const error = await failure(sandbox.run(storm, { signal: controller.signal, timeoutMs: 30_000 }), 'ERR_ABORTED')
        assert.equal(error.name, 'AbortError')
      } finally {
        clearInterval(ticking)
      }
      // One turn contains ten milliseconds of calls, and the call that is then still running. It is longer than the timer's interval.
      assert.ok(mostCalls <= 4, `${mostCalls} calls between two ticks; ${calls} calls and ${ticks} ticks in all`)
      assert.ok(calls <= 100 / milliseconds + 4, `${calls} calls, ${ticks} ticks`)
    })

  test('of two modules do not hold each other up, and none is lost', async () => {
    const sandbox = await gateway.sandbox()
    const begun = { first: [], second: [] }
    const module = (order) => ({
      note(number) {
        keepBusy(1)
        order.push(number)
        return number
      },
    })
    sandbox.hostModule('first', module(begun.first))
    sandbox.hostModule('second', module(begun.second))
    const code = `
      import { note as first } from "host:first";
      import { note as second } from "host:second";
      const numbers = Array.from({ length: 100 }, (_, number) => number);
      export const handler = () => Promise.all([first, second].flatMap((note) => numbers.map((number) => note.async(number))));`
    const { value } = await sandbox.run(code)
    const numbers = Array.from({ length: 100 }, (_, number) => number)
    assert.deepEqual(value, [...numbers, ...numbers])
    assert.deepEqual(begun, { first: numbers, second: numbers })
  })
})

/** Counts the turns of the event loop until it is stopped. */
function turns() {
  const counted = { count: 0, stop: () => clearImmediate(next) }
  let next = setImmediate(function turn() {
    counted.count++
    next = setImmediate(turn)
  })
  return counted
}

describe('what comes to the main thread while that is busy', () => {
  test('is one outcome a turn, where outcomes are large', async (t) => {
    const opened = await openApproved(t, { fixture: fixture() })
    await opened.callTool('fixture', 'big_text', { bytes: 1 })
    const counted = turns()
    const calls = Array.from({ length: 12 }, async () => {
      await opened.callTool('fixture', 'big_text', { bytes: MIB })
      return counted.count
    })
    // The calls are answered in the meantime. All answers could be read in the next turn.
    keepBusy(1000)
    const settledIn = await Promise.all(calls)
    counted.stop()
    assert.equal(new Set(settledIn).size, 12, `turns ${settledIn}`)
  })

  test('is many small outcomes in a few turns', async () => {
    const counted = turns()
    const looks = Array.from({ length: 500 }, () => gateway.serverInfo('none-of-this-name').catch(() => counted.count))
    keepBusy(300)
    const settledIn = await Promise.all(looks)
    counted.stop()
    assert.ok(new Set(settledIn).size < 100, `${new Set(settledIn).size} turns`)
  })

  test('is so many events a turn, however slow their listener is', async () => {
    const sandbox = await gateway.sandbox()
    const events = 2000
    const counted = turns()
    const toldIn = []
    const onEvent = ({ type }) => {
      if (type === 'log') toldIn.push(counted.count)
      keepBusy(0.1)
    }
    await sandbox.run(`export const handler = () => { for (let entry = 0; entry < ${events}; entry++) console.log(entry) }`, { onEvent })
    counted.stop()
    const most = Math.max(...[...new Set(toldIn)].map((turn) => toldIn.filter((other) => other === turn).length))
    assert.equal(toldIn.length, events)
    assert.ok(most <= 64, `${most} events in one turn`)
  })
})

describe('a run that is aborted', () => {
  test('rejects as one, whenever that was, and whatever its code makes of it', async () => {
    const sandbox = await gateway.sandbox()
    sandbox.hostModule('own', { quick: (number) => number, later: (number) => new Promise((resolve) => setTimeout(resolve, 1, number)) })
    const code = `
      import { quick, later } from "host:own";
      export const handler = async () => {
        for (;;)
          try {
            quick(1);
            await Promise.all([later.async(2), quick.async(3)]);
          } catch (error) {
            return \`went on: \${error}\`;
          }
      }`
    for (let round = 0; round < 120; round++) {
      const controller = new AbortController()
      setTimeout(() => controller.abort(), round % 12)
      const { name } = await failure(sandbox.run(code, { signal: controller.signal }), 'ERR_ABORTED')
      assert.equal(name, 'AbortError', `round ${round}`)
    }
  })
})

describe('a large value that was saved', () => {
  test('can be asked for often at once, and is not held as often', async (t) => {
    // 750 MiB take minutes while other programs use all processors.
    const gateway = await openGateway(t, {}, { limits: { runTimeoutMs: 240_000, computeTimeoutMs: 240_000 } })
    const sandbox = await gateway.sandbox()
    const { savedAs } = await sandbox.run(`export const handler = () => new Uint8Array(${3 * MIB})`, { maxResultTokens: 100 })
    const code = `
      import { saved } from "host:mcp";
      export const handler = async (id) => {
        const sizes = await Promise.all(Array.from({ length: 250 }, () => saved.async(id).then((bytes) => bytes.length)));
        return sizes.filter((size) => size === ${3 * MIB}).length;
      }`
    const before = process.resourceUsage().maxRSS
    assert.equal((await sandbox.run(code, { input: savedAs })).value, 250)
    const grown = (process.resourceUsage().maxRSS - before) / 1024
    assert.ok(grown < 250, `${grown} MiB for 750 MiB of replies`)
  })
})
