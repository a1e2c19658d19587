// Tests of AbortSignal at every stage of a run and of a call, and of close(), which ends everything that is pending.
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { Gateway } from '../index.mjs'
import {
  arrived,
  deferred,
  evaluate,
  failure,
  fixture,
  folder,
  guest,
  isAlive,
  ms,
  openApproved,
  openGateway,
  openSandbox,
  openTurning,
  promptly,
  waitFor,
  wholeFile,
} from './support.mjs'

const LOOP = 'export const handler = () => { console.log("started"); for (;;); }'
const ANSWER = 'export const handler = () => "fine"'
const listeners = (signal) => getEventListeners(signal, 'abort').length

/** Checks that a promise rejects as an abort with the signal's reason, and that the signal has no listeners any more. */
async function assertAborted(pending, signal) {
  await assert.rejects(pending, (error) => {
    assert.ok(error instanceof Error)
    assert.deepEqual([error.name, error.code], ['AbortError', 'ERR_ABORTED'])
    assert.equal(error.cause, signal.reason)
    return true
  })
  assert.equal(listeners(signal), 0)
}
/** Does the same, and returns the time from the abort to the rejection in milliseconds. */
async function abortAndTime(pending, controller) {
  const started = performance.now()
  controller.abort(new Error('my own reason'))
  await assertAborted(pending, controller.signal)
  return performance.now() - started
}
const assertUsable = async (sandbox) => assert.equal((await sandbox.run(ANSWER)).value, 'fine')
// The guest boots once for all tests that need no gateway of their own.
const bare = await openGateway(wholeFile)

describe('An AbortSignal ends a run', () => {
  test('that has not begun, if it is aborted already', async () => {
    const sandbox = await bare.sandbox()
    for (const reason of [undefined, 'a word', new Error('an error'), { an: 'object' }, null, 0]) {
      const signal = AbortSignal.abort(reason)
      const events = []
      await assertAborted(sandbox.run(LOOP, { signal, onEvent: (event) => events.push(event) }), signal)
      assert.deepEqual(events, [])
    }
    await assertUsable(sandbox)
  })

  test('that waits behind another one, which goes on, as do those behind it', async () => {
    const sandbox = await bare.sandbox()
    const [held, entered] = [deferred(), deferred()]
    sandbox.hostModule('agent', { hold: () => entered.resolve() ?? held.promise })
    const order = []
    const first = sandbox
      .run('import { hold } from "host:agent"; export const handler = () => hold()')
      .then(({ value }) => order.push(value))
    const controller = new AbortController()
    const second = sandbox.run(LOOP, { signal: controller.signal })
    const third = sandbox.run(ANSWER).then(({ value }) => order.push(value))
    await entered.promise
    await abortAndTime(second, controller)
    assert.deepEqual(order, [], 'the first still holds its turn')
    held.resolve('held')
    await Promise.all([first, third])
    assert.deepEqual(order, ['held', 'fine'])
  })

  test('whose VM is being made, whenever that is', async () => {
    const sandbox = await bare.sandbox()
    const moments = [() => undefined, () => Promise.resolve(), () => new Promise((resolve) => setImmediate(resolve))]
    for (let wait = 1; wait <= 15; wait++) moments.push(() => new Promise((resolve) => setTimeout(resolve, wait)))
    for (const moment of moments) {
      const controller = new AbortController()
      const pending = sandbox.run('for (;;); export const handler = () => 1', { signal: controller.signal })
      const failed = assertAborted(pending, controller.signal)
      await moment()
      controller.abort()
      await failed
    }
    await assertUsable(sandbox)
  })

  test('that loops, within 100 ms', async () => {
    const sandbox = await bare.sandbox()
    await promptly(ms(100), async () => {
      const [controller, started] = [new AbortController(), deferred()]
      const pending = sandbox.run(LOOP, { signal: controller.signal, onEvent: started.resolve })
      await Promise.race([started.promise, pending])
      return abortAndTime(pending, controller)
    })
    await assertUsable(sandbox)
  })

  test('with a tool call pending, within 100 ms', async (t) => {
    const log = join(folder(t), 'log')
    const { sandbox } = await openSandbox(t, { args: ['--log', log] })
    let calls = 0
    await promptly(ms(100), async () => {
      const controller = new AbortController()
      const pending = evaluate(sandbox, 'fixture.hang()', { signal: controller.signal })
      calls += 1
      await Promise.race([waitFor('the call to arrive', () => arrived(log, 'hang').length === calls), pending])
      return abortAndTime(pending, controller)
    })
    assert.equal((await evaluate(sandbox, 'fixture.echo({ value: 1 }).value')).value, 1)
  })

  test("with a call of the agent's own module pending, within 100 ms", async () => {
    const sandbox = await bare.sandbox()
    let entered
    sandbox.hostModule('agent', { never: () => entered.resolve() ?? new Promise(() => {}) })
    await promptly(ms(100), async () => {
      const controller = new AbortController()
      entered = deferred()
      const pending = sandbox.run('import { never } from "host:agent"; export const handler = () => never()', { signal: controller.signal })
      await Promise.race([entered.promise, pending])
      return abortAndTime(pending, controller)
    })
    await assertUsable(sandbox)
  })

  for (const flags of [['--slow-start', '600000'], ['--never-answer']]) {
    test(`while a server with ${flags[0]} is being connected, within 100 ms, and its process with it`, async (t) => {
      const { gateway, heal, connecting } = await openTurning(t, ...flags)
      const sandbox = await gateway.sandbox()
      let connects = 0
      await promptly(ms(100), async () => {
        const controller = new AbortController()
        const pending = evaluate(sandbox, 'fixture.echo({ value: 1 })', { signal: controller.signal })
        connects += 1
        await Promise.race([connecting(connects), pending])
        return abortAndTime(pending, controller)
      })
      const spawned = await connecting()
      await waitFor('the process to be gone', () => spawned.every(({ pid }) => !isAlive(pid)))
      heal()
      assert.equal((await evaluate(sandbox, 'fixture.echo({ value: 1 }).value')).value, 1)
    })
  }

  test('that is over no more, nor the one after it', async () => {
    const sandbox = await bare.sandbox()
    const controller = new AbortController()
    const { value } = await sandbox.run(ANSWER, { signal: controller.signal })
    const next = sandbox.run(ANSWER)
    controller.abort()
    assert.equal(value, 'fine')
    assert.equal((await next).value, 'fine')
  })

  test('with the log and the figures up to then in its error', async () => {
    const sandbox = await bare.sandbox()
    const [controller, started] = [new AbortController(), deferred()]
    const pending = sandbox.run(LOOP, { signal: controller.signal, onEvent: started.resolve })
    await started.promise
    controller.abort()
    const error = await pending.catch((caught) => caught)
    assert.deepEqual(error.logs, [{ level: 'log', text: 'started' }])
    assert.deepEqual(error.warnings, [])
    assert.ok(error.stats.durationMs > 0)
  })
})

describe('An AbortSignal ends callTool', () => {
  test('before it has begun: the server is not even started', async (t) => {
    const { gateway } = await openTurning(t)
    const signal = AbortSignal.abort()
    await assertAborted(gateway.callTool('fixture', 'echo', { value: 1 }, { signal }), signal)
    assert.equal(gateway.servers()[0].state, 'idle')
  })

  test('while it is pending, within 100 ms', async (t) => {
    const log = join(folder(t), 'log')
    const gateway = await openApproved(t, { fixture: fixture('--log', log) })
    let calls = 0
    await promptly(ms(100), async () => {
      const controller = new AbortController()
      const pending = gateway.callTool('fixture', 'hang', {}, { signal: controller.signal })
      calls += 1
      await Promise.race([waitFor('the call to arrive', () => arrived(log, 'hang').length === calls), pending])
      return abortAndTime(pending, controller)
    })
    assert.equal((await gateway.callTool('fixture', 'echo', { value: 1 })).structuredContent.value, 1)
  })

  test('while the server is being connected, within 100 ms', async (t) => {
    const { gateway, heal, connecting } = await openTurning(t, '--never-answer')
    let connects = 0
    await promptly(ms(100), async () => {
      const controller = new AbortController()
      const pending = gateway.callTool('fixture', 'echo', { value: 1 }, { signal: controller.signal })
      connects += 1
      await Promise.race([connecting(connects), pending])
      return abortAndTime(pending, controller)
    })
    heal()
    assert.equal((await gateway.callTool('fixture', 'echo', { value: 1 })).structuredContent.value, 1)
  })

  test('that is over no more', async (t) => {
    const gateway = await openApproved(t, { fixture: fixture() })
    const controller = new AbortController()
    const result = await gateway.callTool('fixture', 'echo', { value: 1 }, { signal: controller.signal })
    controller.abort()
    assert.equal(result.isError, false)
    assert.equal((await gateway.callTool('fixture', 'echo', { value: 2 })).structuredContent.value, 2)
  })
})

describe('The signal itself', () => {
  test('has no listener left after a run or call of any outcome', async (t) => {
    const { gateway, sandbox } = await openSandbox(t)
    const { signal } = new AbortController()
    await sandbox.run(ANSWER, { signal })
    await gateway.callTool('fixture', 'echo', { value: 1 }, { signal })
    for (const pending of [
      () => sandbox.run('export const handler = () => { throw 1 }', { signal }),
      () => sandbox.run('no code', { signal }),
      () => sandbox.run(LOOP, { signal, timeoutMs: 50 }),
      () => sandbox.run(ANSWER, { signal, unknown: 1 }),
      () => sandbox.run(ANSWER, { signal, input: () => {} }),
      () => gateway.callTool('fixture', 'no-such-tool', {}, { signal }),
      () => gateway.callTool('fixture', 'hang', {}, { signal, timeoutMs: 50 }),
    ]) {
      await assert.rejects(pending())
      assert.equal(listeners(signal), 0)
    }
    const ended = assert.rejects(sandbox.run(LOOP, { signal }), { code: 'ERR_CLOSED' })
    await sandbox.close()
    await ended
    assert.equal(listeners(signal), 0)
  })

  test('keeps its own onabort, which is called once', async () => {
    const sandbox = await bare.sandbox()
    const controller = new AbortController()
    let called = 0
    const onabort = () => {
      called += 1
    }
    controller.signal.onabort = onabort
    const pending = sandbox.run(LOOP, { signal: controller.signal, onEvent: () => controller.abort() })
    await assert.rejects(pending, { code: 'ERR_ABORTED' })
    assert.equal(controller.signal.onabort, onabort)
    assert.equal(called, 1)
  })

  test('may end many runs at once', async () => {
    const controller = new AbortController()
    const sandboxes = await Promise.all(Array.from({ length: 3 }, () => bare.sandbox()))
    const pending = sandboxes.flatMap((sandbox) => [1, 2].map(() => sandbox.run(LOOP, { signal: controller.signal })))
    const ended = Promise.all(pending.map((run) => assert.rejects(run, { code: 'ERR_ABORTED', cause: 'enough' })))
    controller.abort('enough')
    await ended
    assert.equal(listeners(controller.signal), 0)
  })

  test('ends twenty calls at once, without a warning of Node’s, and has no listener left where one has ended', async (t) => {
    const gateway = await openApproved(t, { fixture: fixture() })
    const controller = new AbortController()
    const warnings = []
    const warn = (warning) => warnings.push(warning.name)
    process.on('warning', warn)
    const options = { signal: controller.signal }
    await gateway.callTool('fixture', 'echo', { value: 1 }, options)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    const calls = Array.from({ length: 20 }, () => failure(gateway.callTool('fixture', 'hang', {}, options), 'ERR_ABORTED'))
    assert.equal(getEventListeners(controller.signal, 'abort').length, 1)
    await gateway.callTool('fixture', 'echo', { value: 1 }, options)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 1, 'the others are still pending')
    controller.abort()
    await Promise.all(calls)
    process.off('warning', warn)
    assert.deepEqual([warnings, getEventListeners(controller.signal, 'abort').length], [[], 0])
  })

  test('may be a time-out, or any of several', async () => {
    const sandbox = await bare.sandbox()
    const error = await sandbox.run(LOOP, { signal: AbortSignal.timeout(20) }).catch((caught) => caught)
    assert.deepEqual([error.code, error.cause.name], ['ERR_ABORTED', 'TimeoutError'])
    const signal = AbortSignal.any([AbortSignal.abort('first'), new AbortController().signal])
    await assertAborted(sandbox.run(LOOP, { signal }), signal)
  })

  test('must be an AbortSignal', async (t) => {
    const { gateway, sandbox } = await openSandbox(t)
    for (const signal of [{ aborted: false }, 'signal', 1, null, new EventTarget(), new AbortController()]) {
      await assert.rejects(sandbox.run(ANSWER, { signal }), { code: 'ERR_INVALID_OPTION', message: /signal/ })
      await assert.rejects(gateway.callTool('fixture', 'echo', {}, { signal }), { code: 'ERR_INVALID_OPTION', message: /signal/ })
    }
  })
})

describe('close()', () => {
  const closed = (pending) => assert.rejects(pending, { code: 'ERR_CLOSED' })

  test('of a sandbox ends its run and its queue, and nothing else', async (t) => {
    const log = join(folder(t), 'log')
    const { gateway, sandbox } = await openSandbox(t, { args: ['--log', log] })
    const other = await gateway.sandbox()
    const going = evaluate(other, 'fixture.sleep(input)', { input: { ms: ms(500) } })
    const ended = [evaluate(sandbox, 'fixture.hang()'), sandbox.run(LOOP), sandbox.run(ANSWER)].map(closed)
    await waitFor('the call to arrive', () => arrived(log, 'hang').length > 0)
    await sandbox.close()
    await Promise.all(ended)
    assert.equal((await going).value, 'slept')
    await closed(sandbox.run(ANSWER))
    await assertUsable(other)
  })

  test('of a gateway ends runs, queues and calls, every time', { timeout: ms(30_000) }, async (t) => {
    for (let round = 0; round < 5; round++) {
      const log = join(folder(t), 'log')
      const { gateway, sandbox } = await openSandbox(t, { args: ['--log', log] })
      const other = await gateway.sandbox()
      sandbox.hostModule('agent', { never: () => new Promise(() => {}) })
      const never = 'import { never } from "host:agent"; export const handler = () => never()'
      const pending = [sandbox.run(never), sandbox.run(ANSWER), other.run(LOOP), other.run(ANSWER), gateway.callTool('fixture', 'hang', {})]
      const ended = pending.map(closed)
      await waitFor('the call to arrive', () => arrived(log, 'hang').length > 0)
      await gateway.close()
      await Promise.all(ended)
    }
  })

  test('of a gateway without servers ends its runs, every time', { timeout: ms(20_000) }, async (t) => {
    for (let round = 0; round < 5; round++) {
      const gateway = await openGateway(t)
      const [sandbox, started] = [await gateway.sandbox(), deferred()]
      const ended = closed(sandbox.run(LOOP, { onEvent: started.resolve }))
      await started.promise
      await gateway.close()
      await ended
    }
  })

  test('of a gateway ends connecting, testing and reading tools', async (t) => {
    const { gateway, connecting } = await openTurning(t, '--never-answer')
    const sandbox = await gateway.sandbox()
    const ended = [
      evaluate(sandbox, 'fixture.echo({ value: 1 })'),
      gateway.callTool('fixture', 'echo', { value: 1 }),
      gateway.test('fixture'),
      gateway.approvalRequest('fixture'),
    ].map(closed)
    const spawned = await connecting()
    await gateway.close()
    await Promise.all(ended)
    await waitFor('the process to be gone', () => spawned.every(({ pid }) => !isAlive(pid)))
  })

  test('leaves nothing that could still be done', async (t) => {
    const { gateway, sandbox } = await openSandbox(t)
    await gateway.close()
    for (const [name, args] of Object.entries({
      approvalRequest: ['fixture'],
      approve: ['fixture'],
      revoke: ['fixture'],
      enable: ['fixture'],
      disable: ['fixture'],
      test: ['fixture'],
      sandbox: [],
      callTool: ['fixture', 'echo', {}],
    })) {
      await assert.rejects(gateway[name](...args), { code: 'ERR_CLOSED' }, name)
    }
    await closed(sandbox.run(ANSWER))
  })

  test('may be called twice, at once or later, on both', async (t) => {
    const { gateway, sandbox } = await openSandbox(t)
    assert.deepEqual(await Promise.all([sandbox.close(), sandbox.close()]), [undefined, undefined])
    await sandbox.close()
    assert.deepEqual(await Promise.all([gateway.close(), gateway.close()]), [undefined, undefined])
    await gateway.close()
    await sandbox.close()
  })

  test('of a gateway while a sandbox is being made leaves neither waiting', { timeout: ms(10_000) }, async (t) => {
    const gateway = await openGateway(t)
    const making = gateway.sandbox().then((sandbox) => sandbox.run(ANSWER))
    const ended = closed(making)
    await gateway.close()
    await ended
  })

  test('is what `await using` calls', async (t) => {
    const gateway = await Gateway.open({ config: { mcpServers: {} }, stateDir: join(folder(t), 'state'), guest })
    const sandbox = await gateway.sandbox()
    await sandbox[Symbol.asyncDispose]()
    await closed(sandbox.run(ANSWER))
    await assertUsable(await gateway.sandbox())
    await gateway[Symbol.asyncDispose]()
    await closed(gateway.sandbox())
  })
})
