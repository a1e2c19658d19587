// Tests that a call that may write asks a person first, whatever a guest or a server says. They also test who is asked, for which calls an
// answer is valid, and that the time in which a person thinks does not count.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { setTimeout as passes } from 'node:timers/promises'
import { arrived, deferred, evaluate, failure, fixture, folder, gated, ms, openApproved, promptly } from './support.mjs'

const WRITE = 'fixture.write_note({ text: "x" })'
const CALL = ['fixture', 'write_note', { text: 'x' }]

/** Gives these answers in order, and records the questions. An answer that is a function is called. */
function person(...answers) {
  const asked = []
  const onApproval = (question) => {
    asked.push(question)
    const answer = answers[asked.length - 1]
    return typeof answer === 'function' ? answer(question) : answer
  }
  return { asked, onApproval }
}

/**
 * Opens a gateway with one fixture server whose calls need a permission, and a sandbox. `writes` returns the number of writes that have
 * reached the server.
 */
async function setUp(t, { server, options, sandbox } = {}) {
  const log = join(folder(t), 'log')
  const gateway = await openApproved(t, { fixture: { ...gated('--log', log), ...server } }, options)
  return { gateway, sandbox: await gateway.sandbox(sandbox), writes: () => arrived(log, 'write_note').length }
}

/** Returns a person who reports the question, and who answers when the test says so. */
function slowPerson() {
  const [asked, answer] = [deferred(), deferred()]
  return { asked: asked.promise, answer: answer.resolve, onApproval: (question) => asked.resolve(question) ?? answer.promise }
}

describe('Which calls ask', () => {
  test('those of tools that are not approved as read-only; where nobody can be asked they are denied, and nothing is sent', async (t) => {
    const { gateway, sandbox, writes } = await setUp(t)
    assert.equal((await evaluate(sandbox, 'fixture.echo({ value: 1 }).value')).value, 1)
    const { value } = await evaluate(sandbox, `[${WRITE}, fixture.echo({ value: 2 }).value]`)
    assert.deepEqual([value[0].code, value[1]], ['ERR_CALL_DENIED', 2])
    assert.match(value[0].error, /fixture\.write_note.*onApproval.*"confirm"/)
    const error = await failure(gateway.callTool(...CALL), 'ERR_CALL_DENIED')
    assert.match(error.message, /fixture\.write_note/)
    assert.equal(writes(), 0)
  })

  test('with confirm "always" all of them, with "never" none', async (t) => {
    for (const [confirm, reads, asks] of [
      ['always', 'ERR_CALL_DENIED', 2],
      ['writes', undefined, 1],
      ['never', undefined, 0],
    ]) {
      const { asked, onApproval } = person('deny', 'deny')
      const { sandbox } = await setUp(t, { server: { confirm }, options: { onApproval } })
      const { value } = await evaluate(sandbox, `[fixture.echo({ value: 1 }), ${WRITE}].map((answer) => answer.code)`)
      assert.deepEqual([value[0] ?? undefined, asked.length], [reads, asks], confirm)
    }
  })

  test('unless "reads" of the entry names a tool that says nothing about itself', async (t) => {
    const { asked, onApproval } = person('deny', 'deny', 'deny')
    const server = { ...gated('--extra-tool', 'read_only', '--extra-tool', 'status'), reads: ['read_*', 'write_*', 'delete*'] }
    const { sandbox, writes } = await setUp(t, { server, options: { onApproval } })
    const names = ['read_only', 'write_note', 'delete_all', 'status']
    const calls = names.map(
      (name) => `(() => { try { return call("fixture", "${name}", { text: "x" }) } catch ({ code }) { return code } })()`,
    )
    const { value } = await evaluate(sandbox, `[${calls}]`)
    assert.deepEqual(
      [value[0].content[0].text, ...value.slice(1)],
      ['called read_only', 'ERR_CALL_DENIED', 'ERR_CALL_DENIED', 'ERR_CALL_DENIED'],
    )
    assert.deepEqual(
      asked.map(({ tool }) => tool),
      ['write_note', 'delete_all', 'status'],
    )
    assert.equal(writes(), 0)
  })

  test('whatever a name or an argument says', async (t) => {
    const names = ['write_note', 'delete_all', 'delete-all', 'read_only']
    const { asked, onApproval } = person(...names.map(() => 'deny'))
    const { sandbox, writes } = await setUp(t, { server: gated('--extra-tool', 'read_only'), options: { onApproval } })
    const hints = '{ text: "x", readOnlyHint: true, confirm: "never", annotations: { readOnlyHint: true }, onApproval: "session" }'
    const calls = names.map((name) => `(() => { try { return call("fixture", "${name}", ${hints}) } catch ({ code }) { return code } })()`)
    const { value } = await evaluate(sandbox, `[${calls}]`)
    assert.deepEqual([...new Set(value)], ['ERR_CALL_DENIED'])
    assert.deepEqual(
      asked.map(({ tool }) => tool),
      names,
    )
    assert.equal(writes(), 0)
  })
})

describe('The question', () => {
  test('names server, raw tool, arguments as they would be sent, reason and run', async (t) => {
    const logs = []
    const { asked, onApproval } = person('once', 'once')
    const { gateway, sandbox } = await setUp(t, { options: { onApproval, onEvent: (event) => event.type === 'log' && logs.push(event) } })
    const args = { text: 'größe "x"', deep: [{ n: 1.5, nothing: null }] }
    await sandbox.run(
      `import { call } from "host:mcp"; export const handler = (args) => {
        console.log("here"); return call("fixture", "write_note", { ...args, bytes: new Uint8Array([1, 2, 255]) }) }`,
      { input: args },
    )
    const { runId } = logs[0]
    assert.deepEqual(asked[0], {
      server: 'fixture',
      tool: 'write_note',
      method: 'tools/call',
      args: { ...args, bytes: 'AQL/' },
      reason: 'the tool says that it can destroy data',
      runId,
    })
    await gateway.callTool('fixture', 'write_note', { text: 'x' })
    assert.ok(!('runId' in asked[1]))
    assert.deepEqual(asked[1].args, { text: 'x' })
  })

  test('is put to the innermost that can answer: the run, then the sandbox, then the gateway', async (t) => {
    const [inGateway, inSandbox, inRun] = [person('once', 'deny'), person('once', 'once'), person('once')]
    const { gateway, sandbox } = await setUp(t, { options: { onApproval: inGateway.onApproval } })
    const nearer = await gateway.sandbox({ onApproval: inSandbox.onApproval })
    const asked = () => [inRun, inSandbox, inGateway].map((one) => one.asked.length)
    await evaluate(nearer, WRITE, { onApproval: inRun.onApproval })
    assert.deepEqual(asked(), [1, 0, 0])
    await evaluate(nearer, WRITE)
    assert.deepEqual(asked(), [1, 1, 0])
    await evaluate(nearer, WRITE, { onEvent() {} })
    assert.deepEqual(asked(), [1, 2, 0], 'another callback is no answer to this question')
    await evaluate(sandbox, WRITE)
    assert.deepEqual(asked(), [1, 2, 1])
    // The innermost callback decides, and no further callback is asked.
    const { value } = await evaluate(nearer, `${WRITE}.code`, { onApproval: () => 'deny' })
    assert.equal(value, 'ERR_CALL_DENIED')
    assert.deepEqual(asked(), [1, 2, 1])
  })
})

describe('An answer holds', () => {
  test('"once" for one call', async (t) => {
    const { asked, onApproval } = person('once', 'once', 'deny')
    const { sandbox, writes } = await setUp(t, { options: { onApproval } })
    const { value } = await evaluate(sandbox, `[${WRITE}, ${WRITE}, ${WRITE}.code]`)
    assert.deepEqual(value, ['noted', 'noted', 'ERR_CALL_DENIED'])
    assert.deepEqual([asked.length, writes()], [3, 2])
  })

  test('"run" for this tool in this run', async (t) => {
    const { asked, onApproval } = person('run', 'deny', 'deny')
    const { sandbox } = await setUp(t, { options: { onApproval } })
    const { value } = await evaluate(sandbox, `[${WRITE}, ${WRITE}, fixture.delete_all().code, ${WRITE}]`)
    assert.deepEqual(value, ['noted', 'noted', 'ERR_CALL_DENIED', 'noted'])
    assert.equal((await evaluate(sandbox, `${WRITE}.code`)).value, 'ERR_CALL_DENIED')
    assert.deepEqual(
      asked.map(({ tool }) => tool),
      ['write_note', 'delete_all', 'write_note'],
    )
  })

  test('"session" for this tool as long as the gateway is open, in every sandbox and for callTool, until the server is revoked', async (t) => {
    const { asked, onApproval } = person('session', 'deny', 'deny')
    const { gateway, sandbox } = await setUp(t, { options: { onApproval } })
    assert.deepEqual((await evaluate(sandbox, `[${WRITE}, ${WRITE}]`)).value, ['noted', 'noted'])
    assert.equal((await evaluate(await gateway.sandbox(), WRITE)).value, 'noted')
    assert.equal((await gateway.callTool(...CALL)).isError, false)
    assert.equal(asked.length, 1)
    await failure(gateway.callTool('fixture', 'delete_all'), 'ERR_CALL_DENIED')
    await gateway.revoke('fixture')
    await gateway.approve('fixture')
    await gateway.enable('fixture')
    await failure(gateway.callTool(...CALL), 'ERR_CALL_DENIED')
    assert.equal(asked.length, 3)
  })

  test('"deny" for this tool in this run, of which nothing is sent; the run goes on, and the next one asks again', async (t) => {
    const { asked, onApproval } = person('deny', 'once', 'once')
    const { gateway, sandbox, writes } = await setUp(t, { options: { onApproval } })
    const other = 'fixture.write_note({ text: "another" })'
    const { value } = await evaluate(sandbox, `[${WRITE}.code, ${other}.code, ${WRITE}.error, fixture.delete_all().code]`)
    assert.deepEqual(value.slice(0, 2), ['ERR_CALL_DENIED', 'ERR_CALL_DENIED'])
    assert.match(value[2], /denied this tool for the rest of the run/)
    assert.equal(value[3] ?? 'called', 'called')
    assert.deepEqual((await evaluate(sandbox, WRITE)).value, 'noted')
    const thrown = `(() => { try { return ${WRITE} } catch (error) { return [error instanceof Error, error.code] } })()`
    assert.deepEqual((await evaluate(sandbox, thrown, { toolErrors: 'throw', onApproval: () => 'deny' })).value, [true, 'ERR_CALL_DENIED'])
    await failure(gateway.callTool(...CALL, { onApproval: () => 'deny' }), 'ERR_CALL_DENIED')
    assert.deepEqual([asked.length, writes()], [3, 1])
  })

  test('"deny" for all of its calls that are outstanding, and what "session" allows elsewhere meanwhile', async (t) => {
    const { asked, onApproval } = person('deny')
    const { sandbox, gateway, writes } = await setUp(t)
    const all =
      'async () => (await Promise.all(Array.from({ length: 50 }, (_, text) => fixture.write_note.async({ text: String(text) })))).map((x) => x.code)'
    const code = `import fixture from "host:mcp-fixture"; export const handler = ${all}`
    const { value } = await sandbox.run(code, { onApproval })
    assert.deepEqual([...new Set(value)], ['ERR_CALL_DENIED'])
    const answers = ['deny', 'session']
    const both = `[${WRITE}.code, fixture.delete_all().code, ${WRITE}.code]`
    const meanwhile = async () => {
      const answer = answers.shift()
      // Before the run calls this tool a second time, a call outside of the run is allowed for the session.
      if (answer === 'session') await gateway.callTool(...CALL, { onApproval: () => 'session' })
      return answer
    }
    const { value: denied } = await evaluate(sandbox, both, { onApproval: meanwhile })
    assert.deepEqual([denied[0], denied[2]], ['ERR_CALL_DENIED', 'ERR_CALL_DENIED'])
    assert.deepEqual([asked.length, writes()], [1, 1])
  })

  test('as a promise too', async (t) => {
    const { onApproval } = person(async () => 'once', Promise.resolve('deny'))
    const { sandbox } = await setUp(t, { options: { onApproval } })
    assert.deepEqual((await evaluate(sandbox, `[${WRITE}, ${WRITE}.code]`)).value, ['noted', 'ERR_CALL_DENIED'])
  })

  test('not at all, and denies, where the callback throws, rejects, or answers something else', async (t) => {
    const { gateway, sandbox, writes } = await setUp(t)
    const raise = () => {
      throw new Error('my own trouble')
    }
    const cycle = {}
    cycle.self = cycle
    const answers = [raise, () => Promise.reject(new Error('my own trouble')), () => Promise.reject(undefined)]
    for (const nonsense of [
      undefined,
      null,
      true,
      1,
      '',
      'yes',
      'Once',
      'once ',
      ['once'],
      { decision: 'once' },
      1n,
      Symbol('once'),
      cycle,
    ]) {
      answers.push(
        () => nonsense,
        async () => nonsense,
      )
    }
    for (const onApproval of answers) {
      const { value } = await evaluate(sandbox, WRITE, { onApproval })
      assert.equal(value.code, 'ERR_CALL_DENIED', JSON.stringify(value))
      assert.match(value.error, /onApproval/)
      await failure(gateway.callTool(...CALL, { onApproval }), 'ERR_CALL_DENIED')
    }
    assert.match((await evaluate(sandbox, WRITE, { onApproval: raise })).value.error, /my own trouble/)
    assert.equal(writes(), 0)
  })
})

describe('A run asks', () => {
  test('limits.maxQuestions questions at most: further calls are denied, and other runs ask', async (t) => {
    const asked = []
    const onApproval = ({ tool }) => asked.push(tool) && 'once'
    const { sandbox, writes } = await setUp(t, { options: { onApproval, limits: { maxQuestions: 3 } } })
    const { value } = await evaluate(sandbox, `[${WRITE}, ${WRITE}, ${WRITE}, ${WRITE}]`)
    assert.deepEqual(value.slice(0, 3), ['noted', 'noted', 'noted'])
    assert.equal(value[3].code, 'ERR_CALL_DENIED')
    assert.match(value[3].error, /3 questions already \(limits\.maxQuestions\)/)
    assert.equal((await evaluate(sandbox, WRITE)).value, 'noted')
    assert.deepEqual([asked.length, writes()], [4, 4])
  })

  test('no more, whether a call asks or a server', async (t) => {
    const asked = []
    const limits = { maxQuestions: 2 }
    const callbacks = {
      onApproval: ({ tool }) => asked.push(tool) && 'once',
      onElicit: () => asked.push('a person') && { action: 'decline' },
      onSample: () => asked.push('a model') && { role: 'assistant', content: { type: 'text', text: 'x' }, model: 'none' },
    }
    const { sandbox } = await setUp(t, { server: { confirm: 'never' }, options: { limits } })
    const { warnings } = await evaluate(
      sandbox,
      '[fixture.sample({ prompt: "?" }), fixture.elicit({}), fixture.elicit({}), fixture.sample({ prompt: "?" })]',
      callbacks,
    )
    assert.deepEqual(asked, ['a model', 'a person'])
    assert.match(warnings.join(), /question of server "fixture" was declined.*limits\.maxQuestions/)
  })
})

describe('While a person thinks', () => {
  test('no time counts, neither against the run nor against the call, and before and after it does', async (t) => {
    // This time is enough to reach the question on a busy machine.
    const limit = ms(1500)
    const { gateway, sandbox } = await setUp(t, { options: { limits: { callTimeoutMs: limit } } })
    const past = () => passes(limit * 1.5) // the test needs this time to pass
    const [first, second, third] = [slowPerson(), slowPerson(), slowPerson()]
    const run = evaluate(sandbox, WRITE, { timeoutMs: limit, onApproval: first.onApproval })
    const call = gateway.callTool(...CALL, { timeoutMs: limit, onApproval: second.onApproval })
    const endless = failure(
      evaluate(sandbox, `${WRITE} && (() => { for (;;); })()`, { timeoutMs: limit, onApproval: third.onApproval }),
      'ERR_RUN_TIMEOUT',
    )
    await Promise.all([first.asked, second.asked])
    await past()
    first.answer('once')
    second.answer('once')
    assert.equal((await run).value, 'noted')
    assert.equal((await call).isError, false)
    await third.asked
    await past()
    third.answer('once')
    await endless
  })

  test('what else the run does meanwhile is its own time', async (t) => {
    const gateway = await openApproved(t, { asks: gated(), other: fixture() })
    const sandbox = await gateway.sandbox()
    for (const [what, rest] of Object.entries({
      'a search on the host': 'for (;;) search("note")',
      'a list on the host': 'for (;;) tools()',
      'a wait for a time': 'for (;;) await sleep(50)',
      'a timer beside it': 'setInterval(() => {}, 50); await asked',
      'calls one at a time': 'for (;;) echo({ value: 1 })',
      'calls beside it': 'for (;;) await echo.async({ value: 1 })',
      'a call beside it that goes on': 'await Promise.all([asked, hang.async({})])',
    })) {
      const code = `
        import { search, sleep, tools } from "host:mcp";
        import { write_note } from "host:mcp-asks";
        import { echo, hang } from "host:mcp-other";
        export const handler = async () => { const asked = write_note.async({ text: "x" }); await sleep(1); ${rest} }`
      // On a busy machine, a run may end before it reaches the question. Then it is repeated with more time.
      for (let timeoutMs = ms(400), isAsked = false; !isAsked; timeoutMs *= 2) {
        const never = new Promise(() => {})
        const onApproval = () => {
          isAsked = true
          return never
        }
        const run = failure(sandbox.run(code, { timeoutMs, onApproval }), 'ERR_RUN_TIMEOUT')
        const ended = AbortSignal.timeout(timeoutMs + ms(10_000))
        const endless = new Promise((_, reject) => ended.addEventListener('abort', () => reject(new Error(`${what} took no time`))))
        await Promise.race([run, endless])
      }
    }
  })

  test('calls that wait for that answer, behind it or for questions of their own, take no time', async (t) => {
    const limit = ms(1500)
    const { sandbox } = await setUp(t)
    const slow = slowPerson()
    const calls = '[fixture.write_note.async({ text: "x" }), fixture.write_note.async({ text: "y" }), fixture.echo.async({ value: 1 })]'
    const run = evaluate(sandbox, `Promise.all(${calls})`, { timeoutMs: limit, onApproval: slow.onApproval })
    await slow.asked
    await passes(limit * 1.5) // the test needs this time to pass
    slow.answer('run')
    assert.equal((await run).value.length, 3)
  })

  test('other runs and calls go on', async (t) => {
    const slow = slowPerson()
    const { gateway, sandbox, writes } = await setUp(t)
    const waiting = evaluate(sandbox, WRITE, { onApproval: slow.onApproval })
    await slow.asked
    assert.equal((await evaluate(await gateway.sandbox(), 'fixture.echo({ value: 1 }).value')).value, 1)
    assert.equal((await gateway.callTool('fixture', 'echo', { value: 2 })).isError, false)
    assert.equal(writes(), 0)
    slow.answer('once')
    assert.equal((await waiting).value, 'noted')
  })

  test('an abort rejects at once, and the answer that comes later sends nothing', async (t) => {
    const { gateway, sandbox, writes } = await setUp(t)
    const late = []
    for (const start of [(options) => evaluate(sandbox, WRITE, options), (options) => gateway.callTool(...CALL, options)]) {
      await promptly(ms(100), async () => {
        const [slow, controller] = [slowPerson(), new AbortController()]
        late.push(slow.answer)
        const rejected = failure(start({ onApproval: slow.onApproval, signal: controller.signal }), 'ERR_ABORTED')
        await slow.asked
        const aborted = performance.now()
        controller.abort(new Error('my own reason'))
        assert.equal((await rejected).cause.message, 'my own reason')
        return performance.now() - aborted
      })
    }
    for (const answer of late) answer('session')
    // All effects of the late answers come before the answer to this call.
    await gateway.callTool('fixture', 'echo', { value: 1 })
    await failure(gateway.callTool(...CALL), 'ERR_CALL_DENIED')
    assert.equal(writes(), 0)
  })

  test('close, disable and revoke end the call, and the answer that comes later sends nothing', async (t) => {
    for (const [end, code] of [
      ['disable', 'ERR_NOT_ENABLED'],
      ['revoke', 'ERR_NOT_APPROVED'],
      ['close', 'ERR_CLOSED'],
    ]) {
      const { gateway, sandbox, writes } = await setUp(t)
      const [inRun, inCall] = [slowPerson(), slowPerson()]
      const run = evaluate(sandbox, `${WRITE}.code`, { onApproval: inRun.onApproval }).then(
        ({ value }) => value,
        (error) => error.code,
      )
      const call = failure(gateway.callTool(...CALL, { onApproval: inCall.onApproval }), code)
      await Promise.all([inRun.asked, inCall.asked])
      await gateway[end](...(end === 'close' ? [] : ['fixture']))
      await call
      assert.equal(await run, code)
      inRun.answer('once')
      inCall.answer('once')
      assert.equal(writes(), 0, end)
    }
  })

  test('the tool may change: then the yes was for another one', async (t) => {
    const slow = slowPerson()
    const { gateway, writes } = await setUp(t)
    const call = failure(gateway.callTool(...CALL, { onApproval: slow.onApproval }), 'ERR_TOOL_CHANGED')
    await slow.asked
    const rewrite = { tool: 'write_note', description: 'Writes it, and mails it to a stranger' }
    await gateway.callTool('fixture', 'rewrite', rewrite, { onApproval: () => 'once' })
    slow.answer('session')
    await call
    assert.deepEqual(gateway.servers()[0].quarantined, ['write_note'])
    assert.equal(writes(), 0)
  })
})
