// Tests of concurrent calls: they run side by side where that is safe, run in order where it is not, and are cancelled together.
import assert from 'node:assert/strict'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { compiled, deferred, failure, folder, ms, openApproved, openGateway, openSandbox, root, waitFor } from './support.mjs'

const gauge = { command: process.execPath, args: [join(root, '__test__/fixtures/gauge.mjs')], confirm: 'never' }

/** Opens a sandbox with the server that records how its calls overlap. */
async function openGauge(t, { entry = {}, limits = {}, ...options } = {}) {
  const gateway = await openApproved(t, { gauge: { ...gauge, ...entry } }, { limits, ...options })
  return { gateway, sandbox: await gateway.sandbox() }
}

const run = async (sandbox, body, options) =>
  await sandbox.run(
    `import { read, same, write, seen, fail } from "host:mcp-gauge"; import { all, allSettled, call, sleep, tools } from "host:mcp";
     export const handler = async () => { ${body} }`,
    options,
  )

const value = async (...given) => (await run(...given)).value

/** Returns the server's record when it has `count` entries. */
async function seenBy(sandbox, count) {
  const until = Date.now() + ms(10_000)
  for (;;) {
    const { seen } = await value(sandbox, 'return seen({})')
    if (seen.length >= count || Date.now() > until) return seen
  }
}

describe('calls by .async', () => {
  test('are in progress at the same time, and their results are in place', async (t) => {
    const { sandbox } = await openGauge(t)
    const body = `const all = await Promise.all(Array.from({ length: 100 }, (_, key) => read.async({ key, ms: key % 2 ? 260 : 250, together: 100 })));
                  return [all.map(({ key }) => key), seen({}).most];`
    const { value, stats } = await run(sandbox, body)
    assert.deepEqual(value, [Array.from({ length: 100 }, (_, key) => key), 100])
    assert.equal(stats.calls, 101)
    // Time in which calls overlap counts once.
    assert.ok(stats.callMs < ms(20_000), `${stats.callMs}`)
  })

  test('fail each in its place: returned, or rejected where tool errors are thrown', async (t) => {
    const { sandbox } = await openGauge(t)
    const body = `const given = [read.async({ key: 1 }), fail.async({ key: 2 }), call.async("gauge", "none", {}), 7];
                  return { settled: await Promise.allSettled(given), mine: allSettled(given) };`
    const short = ({ settled, mine }) => {
      assert.deepEqual(settled, mine)
      return settled.map(({ status }) => status === 'fulfilled')
    }
    const returned = await value(sandbox, body)
    assert.deepEqual(short(returned), [true, true, false, true])
    assert.equal(returned.settled[1].value.error, '{"key":2}')
    assert.equal(returned.settled[2].reason.code, 'ERR_UNKNOWN_TOOL')
    assert.deepEqual(short(await value(sandbox, body, { toolErrors: 'throw' })), [true, false, false, true])
  })

  test('are waited for by all(), without await, which throws the first failure once all have ended', async (t) => {
    const { sandbox } = await openGauge(t)
    const body = `const three = all([1, 2, 3].map((key) => read.async({ key, ms: 20 })));
                  let thrown; try { all([fail.async({ key: "a", ms: 40 }), fail.async({ key: "b" }), read.async({ key: "c", ms: 80 })]) } catch (e) { thrown = e.message }
                  return [three, thrown, seen({}).seen.at(-1)];`
    const [three, thrown, last] = await value(sandbox, body, { toolErrors: 'throw' })
    assert.deepEqual(three, [{ key: 1 }, { key: 2 }, { key: 3 }])
    assert.deepEqual([thrown, last], ['{"key":"a"}', 'end c'])
    const wrong = await value(sandbox, 'try { all([Promise.resolve(1)]) } catch (e) { return e.message }')
    assert.match(wrong, /await Promise\.all/)
  })

  test('can lose a race, against time or against one another', async (t) => {
    const { sandbox } = await openGauge(t)
    const slow = 'read.async({ key: "slow", ms: 600000 })'
    const { value: raced, logs } = await run(
      sandbox,
      `return [await Promise.race([${slow}, sleep(20).then(() => "late")]), await Promise.race([${slow}, read.async({ key: "fast" })])]`,
    )
    assert.deepEqual(raced, ['late', { key: 'fast' }])
    assert.deepEqual(
      logs.map(({ level, text }) => [level, /2 calls made with \.async .* await them/.test(text)]),
      [['warn', true]],
    )
  })

  test('are cancelled with the run', async (t) => {
    const { gateway, sandbox } = await openGauge(t)
    // A sandbox runs one program at a time.
    const watcher = await gateway.sandbox()
    const pending = '[1, 2, 3].map((key) => read.async({ key, ms: 600000 }))'
    const abort = new AbortController()
    const aborted = failure(run(sandbox, `await Promise.all(${pending})`, { signal: abort.signal }), 'ERR_ABORTED')
    // The calls must have arrived at the server, or there is nothing to cancel.
    assert.equal((await seenBy(watcher, 3)).length, 3)
    abort.abort()
    await aborted
    const ended = (await seenBy(sandbox, 6)).filter((line) => line.startsWith('cancelled')).sort()
    assert.deepEqual(ended, ['cancelled 1', 'cancelled 2', 'cancelled 3'])
    await value(sandbox, `${pending}; await sleep(100); return 1`)
    assert.equal((await seenBy(sandbox, 12)).filter((line) => line.startsWith('cancelled')).length, 6)
  })

  test('carry bytes both ways, and what agents’ own functions answer', async (t) => {
    const { sandbox } = await openSandbox(t)
    let [running, most] = [0, 0]
    sandbox.hostModule('own', {
      twice: async (bytes) => {
        running += 1
        most = Math.max(most, running)
        await new Promise((resolve) => setTimeout(resolve, 30))
        running -= 1
        return new Uint8Array([...bytes, ...bytes])
      },
    })
    const code = `import { twice } from "host:own"; import { echo } from "host:mcp-fixture";
      export const handler = async () => {
        const bytes = [1, 2, 3].map((n) => new Uint8Array([n, 255]));
        const sent = bytes.map((one) => twice.async(one));
        bytes[0][0] = 9;
        return await Promise.all([...sent, echo.async({ value: "ß" })]);
      }`
    const { value } = await sandbox.run(code)
    assert.deepEqual(value, [
      new Uint8Array([1, 255, 1, 255]),
      new Uint8Array([2, 255, 2, 255]),
      new Uint8Array([3, 255, 3, 255]),
      { value: 'ß' },
    ])
    assert.equal(most, 3)
  })

  test('come back in turns where their results do not fit into the guest together', async (t) => {
    const { sandbox } = await openSandbox(t)
    const code = `import { big_text } from "host:mcp-fixture";
      export const handler = async () => (await Promise.all(Array.from({ length: 12 }, () => big_text.async({ bytes: 1000000 })))).map((text) => text.length)`
    assert.deepEqual((await sandbox.run(code)).value, Array(12).fill(1_000_000))
  })

  test('beyond what a run can have outstanding wait, and never fail', async (t) => {
    const { sandbox } = await openGauge(t, { limits: { maxParallelCalls: 5 } })
    const body =
      'const all = await Promise.all(Array.from({ length: 600 }, (_, key) => read.async({ key }))); return [all.every((one, key) => one.key === key), seen({}).most]'
    assert.deepEqual(await value(sandbox, body), [true, 5])
  })

  test('are typed as the calls that they are', async (t) => {
    const { gateway } = await openSandbox(t)
    const declarations = await gateway.declarations()
    const use = (body) => `import { get_forecast as get, echo } from "host:mcp-fixture"; import { all, call } from "host:mcp";
      export const handler = async () => { ${body} }`
    const good = use(`const r = await get.async({ location: "x" }); if ("temperature" in r) { const n: number = r.temperature; return n }
      const [a, b] = all([get.async({ location: "x" }), call.async("fixture", "echo", {})]); return a === null || b.isError satisfies boolean`)
    assert.equal(compiled(t, { 'all.d.ts': declarations, 'good.ts': good }), '')
    for (const bad of ['await get.async({ town: "x" })', 'await get.async()', 'const n: number = await get.async({ location: "x" })'])
      assert.match(compiled(t, { 'all.d.ts': declarations, 'bad.ts': use(bad) }), /bad\.ts.*error TS/, bad)
  })
})

describe('order', () => {
  const writes = `const one = write.async({ key: "w1", ms: 30 }), two = write.async({ key: "w2", ms: 10 });`

  test('writes go one after the other, before and behind what is written before and behind them', async (t) => {
    const { sandbox } = await openGauge(t)
    const body = `const before = read.async({ key: "r1", ms: 50 }); ${writes} const after = read.async({ key: "r2" }); all([before, one, two, after]); return seen({}).seen`
    assert.deepEqual(
      await value(sandbox, body),
      ['r1', 'w1', 'w2', 'r2'].flatMap((key) => [`begin ${key}`, `end ${key}`]),
    )
  })

  test('what is approved as idempotent goes side by side', async (t) => {
    const { sandbox } = await openGauge(t)
    const body = 'await Promise.all([1, 2, 3].map((key) => same.async({ key, together: 3 }))); return seen({}).most'
    assert.equal(await value(sandbox, body), 3)
  })

  test('a synchronous call overtakes none that is outstanding', async (t) => {
    const { sandbox } = await openGauge(t)
    const body = `${writes} const three = write({ key: "w3" }); return [seen({}).seen.filter((line) => line.startsWith("begin")), (await one).key, (await two).key, three.key]`
    assert.deepEqual(await value(sandbox, body), [['begin w1', 'begin w2', 'begin w3'], 'w1', 'w2', 'w3'])
  })

  test('a server with parallel: false gets one call at a time, of all runs', async (t) => {
    const { gateway, sandbox } = await openGauge(t, { entry: { parallel: false } })
    const other = await gateway.sandbox()
    const body = 'await Promise.all([1, 2, 3, 4].map((key) => read.async({ key, ms: 10 }))); return seen({})'
    const [one] = await Promise.all([value(sandbox, body), value(other, body)])
    assert.equal(one.most, 1)
  })

  test('a profile makes the number of calls at once smaller for its agents, and never larger', async (t) => {
    const profiles = Object.fromEntries(
      [
        ['two', { maxParallelCalls: 2 }],
        ['none', { parallel: false }],
        ['many', { maxParallelCalls: 50 }],
      ].map(([name, overrides]) => [name, { servers: { gauge: overrides } }]),
    )
    const config = { mcpServers: { gauge: { ...gauge, maxParallelCalls: 4 } }, profiles }
    const gateway = await openGateway(t, {}, { config })
    await gateway.approve('gauge')
    await gateway.enable('gauge')
    const most = {}
    for (const chosen of [['two'], ['none'], ['many'], ['two', 'none']]) {
      const agent = gateway.agent('a', { profiles: chosen })
      const sandbox = await agent.sandbox()
      // Calls of two runs of the agent share the limit. The server's record ends with its connection, which ends with the agent.
      const body = 'await Promise.all([1, 2, 3, 4, 5, 6].map((key) => read.async({ key, ms: 30 })))'
      await Promise.all([value(sandbox, body), value(await agent.sandbox(), body)])
      most[chosen] = await value(sandbox, 'return seen({}).most')
      await agent.close()
    }
    assert.deepEqual(most, { two: 2, none: 1, many: 4, 'two,none': 1 })
  })

  test('a person is asked about one call at a time, and not again about what was allowed for the run', async (t) => {
    let [open, most, asked] = [0, 0, []]
    const onApproval = async ({ tool, args }) => {
      open += 1
      most = Math.max(most, open)
      asked.push(`${tool} ${args.key}`)
      await new Promise((resolve) => setTimeout(resolve, 20))
      open -= 1
      return tool === 'read' ? 'run' : 'once'
    }
    const { sandbox } = await openGauge(t, { entry: { confirm: 'always' }, onApproval })
    await value(sandbox, `${writes} await Promise.all([1, 2, 3].map((key) => read.async({ key })).concat(one, two))`)
    assert.deepEqual([most, asked.filter((call) => call.startsWith('write'))], [1, ['write w1', 'write w2']])
    assert.equal(asked.filter((call) => call.startsWith('read')).length, 1)
  })

  test('the run’s clock stands while a person is asked, but not for a guest that works meanwhile', async (t) => {
    const onApproval = async () => {
      await new Promise((resolve) => setTimeout(resolve, ms(700)))
      return 'once'
    }
    const { sandbox } = await openGauge(t, { entry: { confirm: 'writes' }, onApproval })
    const options = { timeoutMs: ms(500) }
    assert.equal((await value(sandbox, 'return await write.async({ key: "w" })', options)).key, 'w')
    await failure(run(sandbox, 'write.async({ key: "w" }); await sleep(10); for (;;);', options), 'ERR_RUN_TIMEOUT')
  })
})

describe('a call that has waited for its place among those of its server', () => {
  /** Starts a call of `a`, which lasts until `say` tells its server to answer. */
  const openChanging = async (t, options) => {
    const path = folder(t)
    const args = [join(root, '__test__/fixtures/changing.mjs'), path]
    const changing = { command: process.execPath, args, confirm: 'never', maxParallelCalls: 1 }
    const gateway = await openApproved(t, { changing }, options)
    const first = gateway.callTool('changing', 'a', {})
    await waitFor('the first call', () => existsSync(join(path, 'asked')))
    return { gateway, first, say: (what) => writeFileSync(join(path, what), '') }
  }

  test('is held against what was approved once more', async (t) => {
    const changed = deferred()
    const onEvent = (event) => event.type === 'tools-changed' && changed.resolve()
    const { gateway, first, say } = await openChanging(t, { onEvent })
    const second = failure(gateway.callTool('changing', 'b', {}), 'ERR_TOOL_CHANGED')
    say('change')
    await changed.promise
    say('answer')
    assert.equal((await first).isError, false)
    await second
  })

  test('has waited as long as its caller said at most', async (t) => {
    const { gateway, first, say } = await openChanging(t)
    const { message } = await failure(gateway.callTool('changing', 'b', {}, { timeoutMs: 50 }), 'ERR_CALL_TIMEOUT')
    assert.match(message, /timeoutMs/)
    say('answer')
    await first
  })
})

describe('what agent code hands over as its value', () => {
  // The prelude takes the value out of a list. Code that changes how lists are read can choose the text in the frame, `{"value":…}`.
  const handOver = (json) =>
    `export const handler = () => { Array.prototype[Symbol.iterator] = function* () { yield ${JSON.stringify(json)}; yield [] } }`

  test('is JSON, and nothing beside it', async (t) => {
    const { sandbox } = await openGauge(t)
    for (const json of ['[1', '1},"error":{"code":"ERR_X","message":"forged"},"x":{"y":1', '1ß', '1,"logs":[]'])
      await failure(sandbox.run(handOver(json)), 'ERR_INVALID_VALUE')
  })

  test('reaches nothing of the host', async (t) => {
    const { sandbox } = await openGauge(t)
    for (const name of ['constructor', '__proto__', 'length', 'map', '0'])
      await failure(sandbox.run(handOver(JSON.stringify({ $bytes: name }))), 'ERR_INVALID_VALUE')
  })
})

test('a look at the code knows .async', async (t) => {
  const { gateway } = await openGauge(t)
  const look = async (body) =>
    (
      await gateway.check(
        `import * as gauge from "host:mcp-gauge"; import { call } from "host:mcp"; export const handler = async () => { ${body} }`,
      )
    ).problems
  assert.deepEqual(
    await look('await gauge.read.async({}); await call.async("gauge", "read", {}); await Promise.all([1].map(gauge.read.async))'),
    [],
  )
  const [unknown] = await look('await gauge.reed.async({})')
  assert.match(unknown.message, /has no function reed; did you mean read\?/)
  const [tool] = await look('await call.async("gauge", "reed", {})')
  assert.match(tool.message, /did you mean "?read/)
})
