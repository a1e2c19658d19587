// Tests of errors in JavaScript: all of them have one class, however the package was loaded, and whatever throws them or rejects with them.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { Gateway, HyperlightMcpError } from '../index.mjs'
import { failure, fixture, openApproved } from './support.mjs'

/** Returns the error that an action throws or rejects with. */
async function failed(action) {
  try {
    await action()
  } catch (error) {
    return error
  }
  throw new Error('it did not fail')
}

test('the error of a tool keeps what its caller has written, for code, models and Node, and no secret', async (t) => {
  const secret = 'q7Xv2LmZ9tRb4KcWn8Yp3HsDf6Jg'
  const gateway = await openApproved(t, { fixture: { ...fixture(), env: { API_KEY: secret } } })
  const path = '/var/data/deep/x.txt'
  const message = `outside allowed directories: ${path}`
  const code = `import * as fixture from "host:mcp-fixture"; export const handler = (input) => fixture.error({ message: input })`
  const [returning, throwing] = await Promise.all(['return', 'throw'].map((toolErrors) => gateway.sandbox({ toolErrors })))
  assert.equal((await returning.run(code, { input: message })).value.error, message)
  assert.match((await failed(() => throwing.run(code, { input: message }))).message, /directories: \/var\/data\/deep\/x\.txt/)
  const call = `import { call } from "host:mcp"; export const handler = (message) => call("fixture", "error", { message }).content[0].text`
  assert.equal((await returning.run(call, { input: message })).value, message)
  assert.equal((await gateway.callTool('fixture', 'error', { message })).content[0].text, message)
  const functions = gateway.pluginRegistration('fixture').createHostFunctions({ toolErrors: 'throw' })['mcp-fixture']
  assert.match((await failed(() => functions.error({ message }))).message, /directories: \/var\/data\/deep\/x\.txt/)
  const [tool] = gateway.agentTools({ include: ['run_javascript'] })
  assert.match((await tool.execute({ code, input: JSON.stringify(message) })).error.message, /directories: \/var\/data\/deep\/x\.txt/)
  const withSecret = `${message}/${secret} ${secret}`
  assert.equal((await returning.run(code, { input: withSecret })).value.error, `${message}/[redacted] [redacted]`)
  assert.ok(!(await failed(() => throwing.run(code, { input: withSecret }))).message.includes(secret))
})

test('the class of the errors is exported once, for import and require', async () => {
  const esm = await import('../index.mjs')
  const cjs = createRequire(import.meta.url)('../index.js')
  assert.deepEqual(Object.keys(cjs).sort(), ['Agent', 'Gateway', 'HyperlightMcpError', 'Sandbox', 'ServedGateway', 'commandLine'])
  assert.deepEqual(Object.keys(esm).sort(), [
    'Agent',
    'Gateway',
    'HyperlightMcpError',
    'Sandbox',
    'ServedGateway',
    'commandLine',
    'default',
  ])
  for (const name of Object.keys(cjs)) assert.equal(esm[name], cjs[name])
})

test('an error of the class has a name, a code and a stack that begins with its message', () => {
  const error = new HyperlightMcpError('ERR_IO', 'no')
  assert.ok(error instanceof Error)
  assert.deepEqual([error.name, error.code, error.message, String(error)], ['HyperlightMcpError', 'ERR_IO', 'no', 'HyperlightMcpError: no'])
  assert.match(error.stack, /^HyperlightMcpError: no\n {4}at /)
  assert.deepEqual(Object.keys(error), ['code'])
})

test('whatever throws or rejects does so with the class', async (t) => {
  const gateway = await openApproved(t, { fixture: fixture() })
  const sandbox = await gateway.sandbox()
  // The plugin of a gateway is off at first.
  const plugin = (await openApproved(t, { fixture: fixture() })).plugin()
  const aborted = { signal: AbortSignal.abort('enough') }
  const attempts = {
    ERR_INVALID_OPTION: [
      () => Gateway.open({ confgPath: 'x' }),
      () => Gateway.open(5),
      () => gateway.approve(5),
      () => gateway.sandbox({ toolErrors: 1 }),
      () => gateway.agentTools({ include: ['approve'] }),
      () => gateway.agentTools({ sandbox: {} }),
      () => gateway.pluginRegistration(5),
      () => gateway.command('list', { width: 'x' }),
      () => sandbox.run(5),
      () => sandbox.run('', { signal: {} }),
      () => sandbox.hostModule(5, {}),
      () => sandbox.hostModule('clock', { now: 5 }),
      () => plugin.approve(5),
    ],
    ERR_UNKNOWN_SERVER: [
      () => gateway.approvalRequest('nobody'),
      () => gateway.pluginRegistration('nobody'),
      () => gateway.callTool('nobody', 'x'),
    ],
    ERR_INVALID_ARGUMENTS: [() => gateway.callTool('fixture', 'echo', 5), () => gateway.callTool('fixture', 'echo', [])],
    ERR_INVALID_VALUE: [() => sandbox.run('', { input: () => 1 }), () => sandbox.run('export const handler = () => () => 1')],
    ERR_NAME_TAKEN: [() => sandbox.hostModule('mcp', {})],
    ERR_PLUGIN_NOT_APPROVED: [() => plugin.approve('x'), () => plugin.enable()],
    ERR_CODE_SYNTAX: [() => sandbox.run('(')],
    ERR_NO_HANDLER: [() => sandbox.run('1')],
    ERR_GUEST_THREW: [() => sandbox.run('export const handler = () => { throw new TypeError("no") }')],
    ERR_ABORTED: [() => sandbox.run('1', aborted), () => gateway.callTool('fixture', 'empty', {}, aborted)],
  }
  for (const [code, actions] of Object.entries(attempts)) {
    for (const action of actions) {
      const error = await failed(action)
      assert.ok(error instanceof HyperlightMcpError, `${action}: ${error?.stack}`)
      assert.equal(error.code, code, `${action}: ${error.message}`)
      assert.equal(error.name, code === 'ERR_ABORTED' ? 'AbortError' : 'HyperlightMcpError')
      assert.equal(error.stack.split('\n')[0], `${error.name}: ${error.message.split('\n')[0]}`)
    }
  }
  await gateway.close()
  for (const action of [() => gateway.callTool('fixture', 'empty'), () => sandbox.run('1'), () => gateway.sandbox()])
    assert.ok((await failure(action(), 'ERR_CLOSED')) instanceof HyperlightMcpError)
})

test('an error has the fields that its type declares', async (t) => {
  const gateway = await openApproved(t, { fixture: fixture() })
  const sandbox = await gateway.sandbox()
  const of = (error) => Object.keys(error).sort()
  const thrown = await failure(
    sandbox.run('console.log("x"); export const handler = () => { throw new TypeError("no") }'),
    'ERR_GUEST_THREW',
  )
  assert.deepEqual(of(thrown), ['code', 'guest', 'logs', 'stats', 'warnings'])
  assert.deepEqual(Object.keys(thrown.guest), ['name', 'stack', 'line', 'column'])
  assert.deepEqual(Object.keys(thrown.logs[0]), ['level', 'text'])
  const wrong = await failure(sandbox.run('let a =\n+'), 'ERR_CODE_SYNTAX')
  assert.deepEqual(of(wrong), ['code', 'column', 'line', 'logs', 'stats', 'warnings'])
  const early = await failure(sandbox.run('1', { signal: AbortSignal.abort('enough') }), 'ERR_ABORTED')
  assert.deepEqual([of(early), early.cause], [['cause', 'code', 'logs', 'name', 'warnings'], 'enough'])
})

test("an error that a server's tool reports of itself has a code as well", async (t) => {
  const gateway = await openApproved(t, { fixture: fixture() })
  const functions = gateway.pluginRegistration('fixture').createHostFunctions({ toolErrors: 'throw' })['mcp-fixture']
  const reported = await failed(() => functions.error({ message: 'no' }))
  assert.deepEqual([reported.constructor, reported.code], [HyperlightMcpError, 'ERR_TOOL_FAILED'])
  assert.equal(reported.message, 'the tool "error" of server "fixture" failed: no')
  const refused = await failed(() => functions.echo(5))
  assert.ok(refused instanceof HyperlightMcpError)
  assert.equal(refused.code, 'ERR_INVALID_ARGUMENTS')
})
