// Tests of several agents of one gateway (class `Agent`), and of callbacks of single calls: no question, answer, event or decision of one
// agent reaches another. tests/servers/agents.rs tests what the gateway itself promises about agents.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { Agent } from '../index.mjs'
import { arrived, deferred, failure, fixture, folder, gated, logLines, openApproved, root, waitFor } from './support.mjs'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc')

const CALL = ['fixture', 'write_note', { text: 'x' }]
const NOTE = 'fixture://note.txt'

/** Answers every question with the person's own name, and records the questions. */
function person(name, decision = 'once') {
  const asked = []
  return {
    asked,
    callbacks: {
      onApproval: ({ tool }) => asked.push(tool) && decision,
      onElicit: ({ message }) => asked.push(message) && { action: 'accept', content: { answer: name } },
      onSample: () => asked.push('sample') && { role: 'assistant', content: { type: 'text', text: name }, model: 'test' },
    },
  }
}
const asks = (tool, rest = '') => `import { ${tool} } from "host:mcp-fixture"; export const handler = async () => ${rest || `${tool}({})`}`
const answerOf = async (execute, options) => (await execute({ code: asks('elicit', 'elicit({}).content.answer') }, options)).value

/** Returns a gateway whose operator says yes to every question, and the operator. */
async function operated(t, server = gated(), options = {}) {
  const operator = person('operator', 'session')
  return { operator, gateway: await openApproved(t, { fixture: server }, { ...operator.callbacks, ...options }) }
}

describe('An agent', () => {
  test('has what a caller of a gateway uses, and does it for itself', async (t) => {
    const { gateway, operator } = await operated(t, { ...gated('--resources', '--prompts'), confirm: 'writes' }, { learnResults: false })
    const { asked, callbacks } = person('agent', 'session')
    const agent = gateway.agent('desk-1', callbacks)
    assert.ok(agent instanceof Agent)
    assert.equal(agent.name, 'desk-1')
    assert.equal((await agent.callTool(...CALL)).isError, false)
    assert.equal((await (await agent.sandbox()).run(asks('write_note', 'write_note({ text: "y" })'))).value, 'noted')
    assert.deepEqual(asked, ['write_note'])
    const bare = await gateway.agent('other').callTool('fixture', 'elicit', {})
    assert.deepEqual(bare.structuredContent, { action: 'decline' })
    await failure(gateway.agent('other').callTool(...CALL), 'ERR_CALL_DENIED')
    assert.deepEqual(operator.asked, [])

    for (const [method, ...args] of [
      ['declarations', 'fixture'],
      ['listModules'],
      ['moduleInfo', 'fixture'],
      ['toolInfo', 'fixture', 'echo'],
      ['serverInfo', 'fixture'],
      ['searchTools', 'echo a value', { limit: 2 }],
      ['systemMessage', { budgetTokens: 2000 }],
      ['check', 'export const handler = () => 1'],
      ['resources', 'fixture'],
      ['readResource', 'fixture', NOTE],
      ['prompts', 'fixture'],
      ['getPrompt', 'fixture', 'plain'],
      ['complete', 'fixture', { type: 'ref/prompt', name: 'travel' }, { name: 'place', value: 'R' }],
    ])
      assert.deepEqual(await agent[method](...args), await gateway[method](...args), method)
    const functions = agent.pluginRegistration('fixture').createHostFunctions()['mcp-fixture']
    assert.deepEqual(await functions.elicit({}), { action: 'accept', content: { answer: 'agent' } })
    assert.equal(await answerOf(agent.agentTools()[0].execute), 'agent')
    const shared = Object.getOwnPropertyNames(Agent.prototype).filter((name) => !['constructor', 'name'].includes(name))
    assert.deepEqual(
      shared.filter((name) => typeof gateway[name] !== 'function'),
      [],
    )
  })

  test('names itself in errors, and refuses bad names, bad options and the callbacks of the operator', async (t) => {
    const { gateway } = await operated(t)
    for (const name of [undefined, null, 5, {}, '', '-a', 'a b', 'a\nb', 'é', 'x'.repeat(65)])
      await failure(() => gateway.agent(name), 'ERR_INVALID_OPTION')
    for (const options of [
      5,
      'x',
      { onAproval() {} },
      { onApproval: 'once' },
      { limit: 1 },
      { signal: new AbortController().signal },
      { input: 1 },
    ])
      await failure(() => gateway.agent('a', options), 'ERR_INVALID_OPTION')
    const agent = gateway.agent('a')
    const sandbox = await agent.sandbox()
    const [tool] = agent.agentTools()
    const { createHostFunctions } = agent.pluginRegistration('fixture')
    for (const callback of ['onInput', 'onAuthorize', 'onIssuer']) {
      const options = { [callback]() {} }
      for (const attempt of [
        () => gateway.agent('a', options),
        () => agent.sandbox(options),
        () => agent.callTool(...CALL, options),
        () => agent.readResource('fixture', NOTE, options),
        () => sandbox.run('export const handler = () => 1', options),
        () => tool.execute({ code: 'export const handler = () => 1' }, options),
        () => gateway.agentTools()[0].execute({ code: 'export const handler = () => 1' }, options),
        () => createHostFunctions(options),
      ])
        assert.match((await failure(attempt, 'ERR_INVALID_OPTION')).message, new RegExp(`${callback}.*Gateway\\.open`))
      assert.match((await createHostFunctions()['mcp-fixture'].echo({ value: 1 }, options)).error, /Gateway\.open/)
    }
    assert.match((await failure(agent.callTool('fixture'), 'ERR_INVALID_OPTION')).message, /^Agent\.callTool: /)
    assert.match((await failure(agent.searchTools('x', { limit: -1 }), 'ERR_INVALID_OPTION')).message, /^Agent\.searchTools: /)
    await failure(() => agent.agentTools({ sandbox: 5 }), 'ERR_INVALID_OPTION')
    const others = await gateway.sandbox()
    await failure(() => agent.agentTools({ sandbox: others }), 'ERR_INVALID_OPTION')
    await failure(() => gateway.agentTools({ sandbox }), 'ERR_INVALID_OPTION')
    assert.throws(() => new Agent())
  })

  test('of the same name is another one', async (t) => {
    const { gateway } = await operated(t)
    const [first, second] = [person('a', 'session'), person('a', 'deny')]
    const [one, other] = [gateway.agent('twin', first.callbacks), gateway.agent('twin', second.callbacks)]
    await one.callTool(...CALL)
    await one.callTool(...CALL)
    await failure(other.callTool(...CALL), 'ERR_CALL_DENIED')
    await one.close()
    await failure(other.callTool(...CALL), 'ERR_CALL_DENIED')
    assert.deepEqual([first.asked.length, second.asked.length], [1, 2])
  })

  test('is told of its own runs, calls and subscriptions, and nobody else is', async (t) => {
    const told = { gateway: [], one: [], other: [] }
    // Warnings are left out: an agent that makes a sandbox may get one about the guest that boots here.
    const listen = (name) => ({ onEvent: ({ type }) => type !== 'warning' && told[name].push(type) })
    const gateway = await openApproved(t, { fixture: fixture('--resources') }, listen('gateway'))
    const [one, other] = [gateway.agent('one', listen('one')), gateway.agent('other', listen('other'))]
    await (await one.sandbox()).run('export const handler = () => console.log("x")')
    assert.deepEqual(told, { gateway: [], one: ['log'], other: [] })
    await other.subscribe('fixture', NOTE)
    await one.callTool('fixture', 'touch', {})
    await waitFor('the event', () => told.other.length > 0)
    assert.deepEqual(told, { gateway: [], one: ['log'], other: ['resource-updated'] })
    await other.unsubscribe('fixture', NOTE)
    await one.callTool('fixture', 'touch', {})
    assert.deepEqual(told.other, ['resource-updated'])
  })

  test('decides by its model for itself, and reloads nothing', async (t) => {
    const { gateway } = await operated(t, fixture())
    const [one, other] = [gateway.agent('one'), gateway.agent('other')]
    const manage = (agent, action) => agent.agentTools({ include: ['manage_mcp'] })[0].execute({ action, server: 'fixture' })
    assert.equal((await manage(one, 'disable')).disabled, true)
    await failure(one.callTool('fixture', 'echo', { value: 1 }), 'ERR_NOT_ENABLED')
    assert.deepEqual((await one.agentTools({ include: ['search_mcp_tools'] })[0].execute({ query: 'echo' })).tools, [])
    assert.ok((await other.agentTools({ include: ['search_mcp_tools'] })[0].execute({ query: 'echo' })).tools.length > 0)
    assert.equal((await other.callTool('fixture', 'echo', { value: 1 })).isError, false)
    assert.equal((await manage(other, 'reload')).error.code, 'ERR_OPERATOR_ONLY')
    assert.deepEqual((await manage(gateway, 'reload')).changed, [])
    assert.equal((await manage(one, 'enable')).usable, true)
  })
})

describe('close()', () => {
  test('ends what is of the agent with ERR_CLOSED, and nothing of another', async (t) => {
    const log = join(folder(t), 'log')
    const { gateway } = await operated(t, fixture('--log', log))
    const [one, other] = [gateway.agent('one'), gateway.agent('other')]
    const sandbox = await one.sandbox()
    const tools = one.agentTools()
    const functions = one.pluginRegistration('fixture').createHostFunctions({ toolErrors: 'throw' })['mcp-fixture']
    const controller = new AbortController()
    const others = failure(other.callTool('fixture', 'hang', {}, { signal: controller.signal }), 'ERR_ABORTED')
    const pending = [
      failure(one.callTool('fixture', 'hang', {}), 'ERR_CLOSED'),
      failure(functions.hang({}), 'ERR_CLOSED'),
      failure(sandbox.run('export const handler = () => { for (;;); }'), 'ERR_CLOSED'),
    ]
    await waitFor('the calls', () => arrived(log, 'hang').length === 3)
    const closing = one.close()
    // The agent is closed from this moment on, before close() has settled.
    await failure(one.callTool('fixture', 'echo', { value: 1 }), 'ERR_CLOSED')
    await closing
    await Promise.all(pending)
    for (const attempt of [
      () => one.sandbox(),
      () => one.listModules(),
      () => one.searchTools('x'),
      () => one.subscribe('fixture', NOTE),
      () => one.check('1'),
      () => one.pluginRegistration('fixture'),
      () => functions.echo({ value: 1 }),
      () => sandbox.run('export const handler = () => 1'),
    ])
      await failure(attempt, 'ERR_CLOSED')
    assert.equal((await tools[0].execute({ code: 'export const handler = () => 1' })).error.code, 'ERR_CLOSED')
    await one.close()
    assert.equal((await other.callTool('fixture', 'echo', { value: 1 })).isError, false)
    assert.equal(logLines(log).filter(({ event }) => event === 'spawn').length, 1, 'all use one process')
    controller.abort()
    await others
    await gateway.close()
    await failure(() => gateway.agent('late'), 'ERR_CLOSED')
    await failure(other.callTool('fixture', 'echo', { value: 1 }), 'ERR_CLOSED')
  })

  test('is what `await using` does', { skip: Symbol.asyncDispose === undefined }, async (t) => {
    const { gateway } = await operated(t)
    const agent = gateway.agent('one')
    await agent[Symbol.asyncDispose]()
    await failure(agent.listModules(), 'ERR_CLOSED')
  })

  test('is not needed: an agent that is garbage collected leaves nothing', async (t) => {
    const log = join(folder(t), 'log')
    const { gateway } = await operated(t, fixture('--resources', '--log', log))
    const dropped = []
    const registry = new FinalizationRegistry(() => dropped.push(1))
    await (async () => {
      const agent = gateway.agent('short', { onEvent() {} })
      registry.register(agent)
      await agent.subscribe('fixture', NOTE)
      assert.equal((await (await agent.sandbox()).run('export const handler = () => 1')).value, 1)
    })()
    const unsubscribed = () => logLines(log).some(({ method }) => method === 'resources/unsubscribe')
    await waitFor('the collection', async () => {
      collectGarbage()
      return dropped.length === 1 && unsubscribed()
    })
    // An agent stays open while one of its sandboxes is in use.
    const sandbox = await gateway.agent('long').sandbox()
    collectGarbage()
    assert.equal((await sandbox.run('export const handler = () => 2')).value, 2)
  })
})

describe('Callbacks of one call', () => {
  test('of a tool for a model are asked about its run, and no others are', async (t) => {
    const { gateway, operator } = await operated(t, fixture())
    const people = ['one', 'two'].map((name) => person(name))
    for (const [tools, general] of [
      [gateway.agentTools(), 'operator'],
      [gateway.agent('a', person('agent').callbacks).agentTools(), 'agent'],
    ]) {
      const events = []
      const [run] = tools
      const code = { code: asks('elicit', '(console.log("x"), elicit({}).content.answer)') }
      const given = people.map(({ callbacks }) => ({ ...callbacks, onEvent: (event) => events.push(event.type) }))
      const answers = await Promise.all([...given, undefined].map(async (options) => (await run.execute(code, options)).value))
      assert.deepEqual(answers, ['one', 'two', general])
      assert.deepEqual(events, ['log', 'log'])
    }
    assert.deepEqual(
      [...people, operator].map(({ asked }) => asked.length),
      [2, 2, 1],
    )
  })

  test('of a plugin are, too', async (t) => {
    const { gateway, operator } = await operated(t, fixture())
    const plugin = gateway.plugin()
    plugin.approve(plugin.manifest().digest)
    await plugin.enable()
    assert.equal(await answerOf(plugin.tools()[0].execute, person('one').callbacks), 'one')
    assert.deepEqual(operator.asked, [])
  })

  test('of a function for another sandbox are asked about it, then those of all its functions, then the agent’s', async (t) => {
    const { gateway, operator } = await operated(t, { ...gated(), elicits: true })
    const [all, one] = [person('all'), person('one')]
    const registration = gateway.pluginRegistration('fixture')
    const functions = registration.createHostFunctions(all.callbacks)['mcp-fixture']
    const who = async (answer) => (await answer).content.answer
    const several = [functions.elicit({}), functions.elicit({}, one.callbacks), functions.elicit({}, { onApproval: () => 'once' })]
    assert.deepEqual(await Promise.all(several.map(who)), ['all', 'one', 'all'])
    assert.equal(await who(registration.createHostFunctions()['mcp-fixture'].elicit({})), 'operator')
    assert.equal(await functions.write_note({ text: 'x' }, person('no', 'deny').callbacks).then(({ code }) => code), 'ERR_CALL_DENIED')
    assert.equal(await functions.write_note({ text: 'x' }), 'noted')
    assert.deepEqual(
      [all, one, operator].map(({ asked }) => asked.length),
      [3, 1, 1],
    )
  })

  test('of a function come with a signal, and nothing else', async (t) => {
    const gateway = await openApproved(t, { fixture: fixture() })
    const functions = gateway.pluginRegistration('fixture').createHostFunctions()['mcp-fixture']
    const controller = new AbortController()
    const aborted = failure(functions.hang({}, { signal: controller.signal }), 'ERR_ABORTED')
    controller.abort(new Error('my own reason'))
    assert.equal((await aborted).cause.message, 'my own reason')
    await failure(functions.hang({}, { signal: controller.signal }), 'ERR_ABORTED')
    // A wrong option gives an answer with a code and no exception, as code in a guest elsewhere may pass it.
    for (const options of [{ toolErrors: 'throw' }, { timeoutMs: 1 }, { signal: {} }, { onElicit: 'x' }, { input: 1 }, []])
      assert.equal((await functions.echo({ value: 1 }, options)).code, 'ERR_INVALID_OPTION', JSON.stringify(options))
    assert.equal((await functions.echo({ value: 1 }, 5)).code, 'ERR_INVALID_ARGUMENTS')
    assert.deepEqual((await functions.echo({ value: 1 }, undefined)).value, 1)
  })

  test('of many at once get the answers of their own', async (t) => {
    const { gateway, operator } = await operated(t, { ...gated(), elicits: true })
    const agents = ['a', 'b'].map((name) => ({ name, agent: gateway.agent(name, person(name).callbacks) }))
    const people = Array.from({ length: 24 }, (_, index) => person(`person ${index}`))
    const answers = people.map(async ({ callbacks }, index) => {
      const { agent } = agents[index % 2]
      await new Promise((resolve) => setImmediate(resolve))
      if (index % 3 === 0) return (await agent.callTool('fixture', 'elicit', {}, callbacks)).structuredContent.content.answer
      if (index % 3 === 1) return answerOf(agent.agentTools()[0].execute, callbacks)
      return (await agent.pluginRegistration('fixture').createHostFunctions()['mcp-fixture'].elicit({}, callbacks)).content.answer
    })
    assert.deepEqual(
      await Promise.all(answers),
      people.map((_, index) => `person ${index}`),
    )
    assert.deepEqual(operator.asked, [])
  })
})

test('The example of docs/AGENTS.md does what it says', async (t) => {
  const [, section] = readFileSync(join(root, 'docs/AGENTS.md'), 'utf8').split('\n## One gateway, several agents\n')
  const example = /```js\n(.*?)```/s.exec(section)[1]
  const asked = []
  const ask = (name) => (question) => asked.push([name, question.tool]) && 'once'
  const gateway = await openApproved(t, { notes: gated() }, { onApproval: ask('operator') })
  const code = 'import { write_note } from "host:mcp-notes"; export const handler = () => write_note({ text: "x" })'
  const given = { gateway, code, log() {}, askSupport: ask('support'), askResearch: ask('research'), askCustomer: ask('customer') }
  const run = new Function(...Object.keys(given), `return (async () => { ${example}; return { answer, support, research } })()`)
  const { answer, support, research } = await run(...Object.values(given))
  assert.equal(answer.value, 'noted')
  assert.deepEqual(asked, [
    ['customer', 'write_note'],
    ['research', 'write_note'],
  ])
  await failure(support.listModules(), 'ERR_CLOSED')
  assert.equal(research.name, 'research')
})

test('A question that waits ends with its agent, and the answer that comes later sends nothing', async (t) => {
  const log = join(folder(t), 'log')
  const { gateway, operator } = await operated(t, gated('--log', log))
  const [asked, answer] = [deferred(), deferred()]
  const agent = gateway.agent('slow', { onApproval: () => asked.resolve() ?? answer.promise })
  const call = failure(agent.callTool(...CALL), 'ERR_CLOSED')
  await asked.promise
  await agent.close()
  await call
  answer.resolve('session')
  await gateway.callTool('fixture', 'echo', { value: 1 })
  assert.deepEqual([arrived(log, 'write_note').length, operator.asked.length], [0, 0])
})
