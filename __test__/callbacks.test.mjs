// Tests of questions that a server asks while it is called. The innermost callback of the run or call gets the question, its answer is
// checked before the server gets it, and an abort ends the question.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { setTimeout as passes } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { Worker } from 'node:worker_threads'
import {
  arrived,
  deferred,
  evaluate,
  failure,
  fixture,
  fixtureProgram,
  folder,
  logLines,
  ms,
  openApproved,
  openSandbox,
  root,
  waitFor,
} from './support.mjs'

const accept = (answer) => ({ action: 'accept', content: { answer } })
const message = (text) => ({ role: 'assistant', content: { type: 'text', text }, model: 'test' })

/** Returns a person who answers everything in the same way, and records the questions. */
function person(answer) {
  const asked = []
  return { asked, onElicit: (question) => asked.push(question) && (typeof answer === 'function' ? answer(question) : answer) }
}
/** Records all events. `of` returns the events of one type. */
function listener() {
  const events = []
  return { onEvent: (event) => events.push(event), of: (type) => events.filter((event) => event.type === type) }
}
/** Returns the answer in the form in which the server got it. */
const ask = async (gateway, tool, args, options) => (await gateway.callTool('fixture', tool, args, options)).structuredContent

describe('onElicit', () => {
  test('is asked by callTool, with all that is known of the question', async (t) => {
    const gateway = await openApproved(t, { fixture: fixture() })
    const { asked, onElicit } = person(accept('blue'))
    assert.deepEqual(await ask(gateway, 'elicit', { message: 'Which colour?' }, { onElicit }), accept('blue'))
    assert.deepEqual(asked, [
      {
        server: 'fixture',
        tool: 'elicit',
        mode: 'form',
        message: 'Which colour?',
        requestedSchema: { type: 'object', properties: { answer: { type: 'string', title: 'Answer' } }, required: ['answer'] },
      },
    ])
  })

  test('is asked for a page to open, and its content is not sent', async (t) => {
    const gateway = await openApproved(t, { fixture: fixture() })
    const { asked, onElicit } = person(accept('never sent'))
    assert.deepEqual(await ask(gateway, 'elicit_url', {}, { onElicit }), { action: 'accept' })
    const { elicitationId, ...question } = asked[0]
    assert.equal(typeof elicitationId, 'string')
    const url = 'https://fixture.invalid/consent?id=7'
    assert.deepEqual(question, { server: 'fixture', tool: 'elicit_url', mode: 'url', message: 'Please consent', url })
    assert.deepEqual(await ask(gateway, 'elicit_url', { url: 'javascript:alert(1)' }, { onElicit }), { action: 'cancel' })
    assert.equal(asked.length, 1)
  })

  test('is the innermost that is given: the run, then the sandbox, then the gateway', async (t) => {
    const [inGateway, inSandbox, inRun] = ['gateway', 'sandbox', 'run'].map((name) => person(accept(name)))
    const { gateway, sandbox } = await openSandbox(t, { options: { onElicit: inGateway.onElicit } })
    const nearer = await gateway.sandbox({ onElicit: inSandbox.onElicit })
    const who = async (from, options) => (await evaluate(from, 'fixture.elicit({}).content.answer', options)).value
    assert.equal(await who(nearer, { onElicit: inRun.onElicit }), 'run')
    assert.equal(await who(nearer), 'sandbox')
    assert.equal(await who(nearer, { onSample: () => message('no answer to this question') }), 'sandbox')
    assert.equal(await who(sandbox), 'gateway')
    assert.equal((await ask(gateway, 'elicit', {})).content.answer, 'gateway')
    const runIds = [inRun, inSandbox, inGateway].flatMap(({ asked }) => asked.map(({ runId }) => runId))
    assert.equal(runIds.slice(0, 4).every(Number.isInteger), true)
    assert.equal(new Set(runIds.slice(0, 4)).size, 4)
    assert.equal(runIds[4], undefined)
  })

  test('is that of the very run that made the call, whatever the others do', async (t) => {
    const server = { ...fixture(), elicits: true }
    const gateway = await openApproved(t, { fixture: server })
    const runs = Array.from({ length: 8 }, async (_, number) => {
      const sandbox = await gateway.sandbox()
      const { asked, onElicit } = person(accept(String(number)))
      const code = `[1, 2, 3].map((turn) => fixture.elicit({ message: "run ${number}" }).content.answer)`
      const { value } = await evaluate(sandbox, code, { onElicit })
      assert.deepEqual(
        value,
        [1, 2, 3].map(() => String(number)),
      )
      assert.deepEqual([...new Set(asked.map((question) => question.message))], [`run ${number}`])
    })
    await Promise.all(runs)
  })

  test('missing, the server is told decline', async (t) => {
    const { gateway, sandbox } = await openSandbox(t)
    assert.deepEqual(await ask(gateway, 'elicit', {}), { action: 'decline' })
    assert.equal((await evaluate(sandbox, 'fixture.elicit({}).action')).value, 'decline')
  })

  test('that answers what fits no form cancels, and an event names the field', async (t) => {
    const { onEvent, of } = listener()
    const gateway = await openApproved(t, { fixture: fixture() }, { onEvent })
    const cancelled = () => of('elicitation-cancelled')
    const told = []
    for (const [content, named] of [
      [{ answer: 5 }, /"answer" must be a string/],
      [{}, /"answer" is required/],
      [{ answer: 'a', more: 1 }, /"more" is not a field/],
      [['a'], /must be an object/],
    ]) {
      const onElicit = () => ({ action: 'accept', content })
      assert.deepEqual(await ask(gateway, 'elicit', {}, { onElicit }), { action: 'cancel' })
      const seen = told.length
      const { type, server, reason } = cancelled()[seen]
      told.push(reason)
      assert.deepEqual([type, server], ['elicitation-cancelled', 'fixture'])
      assert.match(reason, named)
    }
  })

  test('that returns no answer, or throws, cancels, and the event says why', async (t) => {
    const { onEvent, of } = listener()
    const gateway = await openApproved(t, { fixture: fixture() }, { onEvent })
    const wrong = [undefined, null, 'accept', true, {}, { action: 'yes' }, { action: ['accept'] }, []]
    const throwing = [
      () => {
        throw new Error('the dialog is broken')
      },
      () => Promise.reject(new Error('the dialog is broken')),
      () => Promise.reject('the dialog is broken'),
    ]
    for (const onElicit of [...wrong.flatMap((value) => [() => value, async () => value]), ...throwing]) {
      assert.deepEqual(await ask(gateway, 'elicit', {}, { onElicit }), { action: 'cancel' })
    }
    const reasons = of('elicitation-cancelled').map(({ reason }) => reason)
    assert.equal(reasons.length, 2 * wrong.length + throwing.length)
    for (const reason of reasons.slice(0, 2 * wrong.length)) assert.match(reason, /onElicit.*must return \{ action: 'accept', content \}/)
    for (const reason of reasons.slice(-throwing.length)) assert.match(reason, /the dialog is broken/)
  })

  test('has all the time it wants: neither the call nor the run ends meanwhile', async (t) => {
    const { gateway, sandbox } = await openSandbox(t)
    const limit = ms(400)
    const onElicit = () => passes(2 * limit).then(() => accept('late'))
    assert.deepEqual(await ask(gateway, 'elicit', {}, { onElicit, timeoutMs: limit }), accept('late'))
    const { value } = await evaluate(sandbox, 'fixture.elicit({}).content.answer', { onElicit, timeoutMs: ms(1000) })
    assert.equal(value, 'late')
  })

  test('is forgotten with an abort, at which the server hears of it', async (t) => {
    const log = join(folder(t), 'log')
    const { gateway, sandbox } = await openSandbox(t, { args: ['--log', log] })
    const start = [
      (options) => gateway.callTool('fixture', 'elicit', {}, options),
      (options) => evaluate(sandbox, 'fixture.elicit({})', options),
    ]
    for (const [index, pending] of start.entries()) {
      const [asked, answer, controller] = [deferred(), deferred(), new AbortController()]
      const call = failure(pending({ signal: controller.signal, onElicit: () => asked.resolve() ?? answer.promise }), 'ERR_ABORTED')
      await asked.promise
      const { id } = arrived(log, 'elicit')[index]
      controller.abort()
      await call
      await waitFor('the cancellation', () =>
        logLines(log).some(({ method, params }) => method === 'notifications/cancelled' && params.requestId === id),
      )
      // This answer comes too late. Nobody waits for it, and nothing fails.
      answer.resolve(accept('too late'))
      assert.deepEqual(await ask(gateway, 'echo', { value: index }), { value: index })
    }
  })

  test('may itself call the server that asks, if it is not one whose callers take turns', async (t) => {
    const gateway = await openApproved(t, { fixture: fixture('--era', '2026') })
    const onElicit = async () => accept((await ask(gateway, 'echo', { value: 'from within' })).value)
    assert.deepEqual(await ask(gateway, 'elicit', {}, { onElicit }), accept('from within'))
  })

  test('is asked on the thread that gave it', async (t) => {
    const path = folder(t)
    const code = `
      import { parentPort, threadId, workerData } from 'node:worker_threads'
      import { Gateway } from ${JSON.stringify(pathToFileURL(join(root, 'index.mjs')))}
      const gateway = await Gateway.open({ config: { mcpServers: { fixture: workerData.server } }, stateDir: workerData.stateDir })
      await gateway.approve('fixture')
      await gateway.enable('fixture')
      const onElicit = ({ message }) => ({ action: 'accept', content: { answer: message + ' on ' + threadId } })
      const { structuredContent } = await gateway.callTool('fixture', 'elicit', { message: 'asked' }, { onElicit })
      parentPort.postMessage({ threadId, answer: structuredContent.content.answer })
      await gateway.close()`
    const workers = [1, 2].map(
      (number) =>
        new Promise((resolve, reject) => {
          const workerData = { server: { command: fixtureProgram, confirm: 'never' }, stateDir: join(path, String(number)) }
          const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(code)}`), { workerData })
          let said
          worker.on('message', (message) => {
            said = message
          })
          worker.on('error', reject).on('exit', () => resolve(said))
        }),
    )
    for (const { threadId, answer } of await Promise.all(workers)) assert.equal(answer, `asked on ${threadId}`)
  })
})

describe('onSample', () => {
  test('gives a model’s answer to the call that asks, and only then', async (t) => {
    const { gateway, sandbox } = await openSandbox(t)
    const asked = []
    const onSample = (question) => {
      asked.push(question)
      return message(question.params.messages[0].content.text.toUpperCase())
    }
    assert.deepEqual(await ask(gateway, 'sample', { prompt: 'hello' }, { onSample }), message('HELLO'))
    const { params, ...question } = asked[0]
    assert.deepEqual(question, { server: 'fixture', tool: 'sample' })
    assert.deepEqual([params.systemPrompt, params.maxTokens], ['Be brief.', 100])
    const { value } = await evaluate(sandbox, 'fixture.sample({ prompt: "run" }).content.text', { onSample })
    assert.equal(value, 'RUN')
    assert.equal(Number.isInteger(asked[1].runId), true)
  })

  test('missing, wrong or throwing is an error for the server, which does not learn the reason', async (t) => {
    const { onEvent, of } = listener()
    const gateway = await openApproved(t, { fixture: fixture() }, { onEvent })
    assert.match((await ask(gateway, 'sample', { prompt: '?' })).error.message, /sampling is not offered/)
    const refusing = [
      () => 'text',
      () => ({ role: 'assistant', content: [] }),
      () => null,
      () => {
        throw new Error('the account of alice is empty')
      },
    ]
    for (const onSample of refusing) {
      const { error } = await ask(gateway, 'sample', { prompt: '?' }, { onSample })
      assert.match(error.message, /no answer/)
      assert.doesNotMatch(JSON.stringify(error), /alice|content/)
    }
    const reasons = of('elicitation-cancelled').map(({ reason }) => reason)
    assert.equal(reasons.length, refusing.length)
    assert.match(reasons[0], /onSample.*must return \{ role, content, model \}/)
    assert.match(reasons[3], /the account of alice is empty/)
  })
})

describe('onEvent', () => {
  test('of a call is told its progress in order, and the gateway’s is not', async (t) => {
    const [outer, inner] = [listener(), listener()]
    const gateway = await openApproved(t, { fixture: fixture() }, { onEvent: outer.onEvent })
    await gateway.callTool('fixture', 'progress', { steps: 20 }, { onEvent: inner.onEvent })
    const told = inner.of('progress')
    assert.deepEqual(
      told.map(({ progress }) => progress),
      Array.from({ length: 20 }, (_, index) => index + 1),
    )
    assert.deepEqual(told[19], { type: 'progress', server: 'fixture', tool: 'progress', progress: 20, total: 20, message: 'step 20' })
    assert.equal(outer.of('progress').length, 0)
    await gateway.callTool('fixture', 'progress', { steps: 1 })
    assert.equal(outer.of('progress').length, 1)
  })

  test('is told all that happened before an outcome, however much that is', async (t) => {
    const log = join(folder(t), 'log')
    const { gateway, sandbox } = await openSandbox(t, { args: ['--log', log] })
    const { onEvent, of } = listener()
    const writing = 'Array.from({ length: 3000 }, (_, number) => console.log(number)), fixture.echo({ value: "end" })'
    const run = evaluate(sandbox, `(${writing})`, { onEvent })
    // This loop blocks the thread until the run has ended. So all events of the run wait, and its outcome may wait too.
    while (arrived(log, 'echo').length === 0);
    const { logs } = await run
    assert.equal(logs.length, 3000)
    assert.deepEqual(
      of('log').map(({ text }) => text),
      logs.map(({ text }) => text),
    )
    const calls = Array.from({ length: 20 }, async (_, number) => {
      const { onEvent, of } = listener()
      await gateway.callTool('fixture', 'progress', { steps: 1 + number }, { onEvent })
      assert.equal(of('progress').length, 1 + number)
    })
    await Promise.all(calls)
  })

  test('that throws is warned of, and is told the next event all the same', async (t) => {
    const { gateway } = await openSandbox(t)
    const [told, warned] = [[], deferred()]
    process.on('warning', warned.resolve)
    t.after(() => process.off('warning', warned.resolve))
    const onEvent = ({ progress }) => {
      told.push(progress)
      if (progress === 1) throw new Error('a listener of mine is broken')
    }
    await gateway.callTool('fixture', 'progress', { steps: 3 }, { onEvent })
    assert.deepEqual(told, [1, 2, 3])
    assert.match((await warned.promise).message, /onEvent threw: Error: a listener of mine is broken/)
  })

  test('of a run is told what its servers tell, with the run’s number, before the run is over', async (t) => {
    const { sandbox } = await openSandbox(t)
    const { onEvent, of } = listener()
    await evaluate(sandbox, '[fixture.progress({ steps: 3 }), fixture.log_lines({ count: 5 }), console.log("own")]', { onEvent })
    const [{ runId }] = of('log')
    assert.deepEqual(
      of('progress').map((event) => [event.progress, event.runId]),
      [1, 2, 3].map((step) => [step, runId]),
    )
    assert.deepEqual(
      of('server-log').map((event) => [event.data.number, event.level, event.runId]),
      [1, 2, 3, 4, 5].map((number) => [number, 'info', runId]),
    )
  })
})
