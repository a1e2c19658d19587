// Tests that arguments are checked against the tool's approved schema: the errors for a guest and for an agent's author, and what is sent.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { answering, arrived, failure, fixture, folder, gated, openApproved, openGateway, waitFor, wholeFile } from './support.mjs'

const schema = {
  type: 'object',
  properties: {
    location: { type: 'string' },
    days: { type: 'integer', minimum: 1, default: 3 },
    units: { enum: ['metric', 'imperial'], default: 'metric' },
    filters: { type: 'array', items: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } },
  },
  required: ['location'],
  additionalProperties: false,
}
const tools = [
  { name: 'get-forecast', inputSchema: schema },
  { name: 'anything', inputSchema: {} },
  { name: 'odd', inputSchema: { type: 'object', properties: { x: { $dynamicRef: '#x' } } } },
]
/** A server whose tools answer with the arguments that they got. */
const picky = {
  command: process.execPath,
  confirm: 'never',
  args: answering(`const answers = {
      'tools/list': () => ({ tools: ${JSON.stringify(tools)} }),
      'tools/call': (params) => ({ content: [], structuredContent: { got: params.arguments } }),
    }`),
}
const lenient = { ...picky, argumentChecks: 'warn' }
const silent = { ...picky, argumentChecks: 'off' }

const warnings = []
const onEvent = (event) => event.type === 'warning' && warnings.push(event.message)
const gateway = await openApproved(wholeFile, { picky, lenient, silent }, { onEvent })
const sandbox = await gateway.sandbox()

/** Wrong arguments, each with its error message. */
const wrong = [
  [{ location: 'Rome', days: 'three' }, 'days: expected integer, got "three" (string)'],
  [{ location: 'Rome', days: 0 }, 'days: expected at least 1, got 0'],
  [{ location: 'Rome', units: 'celcius' }, 'units: expected one of "metric", "imperial", got "celcius"'],
  [{ location: 'Rome', unit: 'metric' }, 'unknown parameter "unit" at the top level; did you mean "units"?'],
  [{ locaton: 'Rome' }, 'missing required parameter "location" (you gave "locaton")'],
  [{ location: 'Rome', filters: [{ name: 'x' }, { name: 1 }] }, 'filters[1].name: expected string, got 1 (integer)'],
  [{}, 'missing required parameter "location"'],
]
const problemOf = (message, server = 'picky') => {
  const start = `the arguments of ${server}.get-forecast are not valid: `
  assert.ok(message.startsWith(start), message)
  return message.slice(start.length)
}

test('callTool says what is wrong with arguments, and what was meant', async () => {
  for (const [args, problem] of wrong) {
    const error = await failure(gateway.callTool('picky', 'get-forecast', args), 'ERR_INVALID_ARGUMENTS')
    assert.equal(problemOf(error.message), problem)
  }
})

test('a guest is told the same, by either way to call, and its run goes on', async () => {
  const code = `import { get_forecast } from "host:mcp-picky"; import { call } from "host:mcp"
    const caught = (work) => { try { return work() } catch (error) { return { code: error.code, error: error.message } } }
    export const handler = (all) => all.map((args) => [get_forecast(args), caught(() => call("picky", "get-forecast", args))])`
  const input = [...wrong.map(([args]) => args), { location: 'Rome' }]
  const { value, warnings: told } = await sandbox.run(code, { input })
  for (const [index, [, problem]] of wrong.entries()) {
    for (const answer of value[index]) {
      assert.equal(answer.code, 'ERR_INVALID_ARGUMENTS')
      assert.equal(problemOf(answer.error), problem)
    }
  }
  assert.deepEqual(value.at(-1)[0], { got: { location: 'Rome' } })
  assert.deepEqual(told, [])
  const thrown = `import { get_forecast } from "host:mcp-picky"; export const handler = () => get_forecast({})`
  const error = await failure(sandbox.run(thrown, { toolErrors: 'throw' }), 'ERR_GUEST_THREW')
  assert.match(error.message, /missing required parameter "location"/)
})

test('several problems are told at once', async () => {
  const args = { days: 'x', units: 'y', filters: 1, unknown: true }
  const { message } = await failure(gateway.callTool('picky', 'get-forecast', args), 'ERR_INVALID_ARGUMENTS')
  assert.equal(
    problemOf(message)
      .split('; ')
      .filter((part) => /expected|missing|unknown parameter/.test(part)).length,
    3,
    message,
  )
  assert.match(message, /; and 2 more$/)
})

test('what fits arrives as it was given: no default is filled in', async () => {
  for (const args of [{ location: 'Rome' }, { location: 'Rome', days: 2, filters: [{ name: 'x', more: [null] }] }]) {
    assert.deepEqual((await gateway.callTool('picky', 'get-forecast', args)).structuredContent.got, args)
    const code = 'import { get_forecast } from "host:mcp-picky"; export const handler = (args) => get_forecast(args).got'
    assert.deepEqual((await sandbox.run(code, { input: args })).value, args)
  }
  const bytes =
    'import { get_forecast } from "host:mcp-picky"; export const handler = () => get_forecast({ location: new Uint8Array([1, 2]) }).got'
  assert.deepEqual((await sandbox.run(bytes)).value, { location: 'AQI=' })
  assert.deepEqual((await gateway.callTool('picky', 'anything', { x: [1] })).structuredContent.got, { x: [1] })
})

test('nothing is sent, nobody is asked, and nothing is started', async (t) => {
  const log = join(folder(t), 'log')
  const asked = []
  const onApproval = (question) => asked.push(question) && 'once'
  const asking = await openApproved(t, { fixture: gated('--log', log) }, { onApproval })
  const box = await asking.sandbox()
  const code = 'import { write_note } from "host:mcp-fixture"; export const handler = (args) => write_note(args)'
  await failure(asking.callTool('fixture', 'write_note', { txet: 'x' }), 'ERR_INVALID_ARGUMENTS')
  assert.equal((await box.run(code, { input: { text: 1 } })).value.code, 'ERR_INVALID_ARGUMENTS')
  assert.deepEqual([arrived(log, 'write_note').length, asked.length], [0, 0])
  await asking.disable('fixture')
  await asking.enable('fixture')
  assert.equal(asking.servers()[0].state, 'idle')
  await failure(asking.callTool('fixture', 'write_note', {}), 'ERR_INVALID_ARGUMENTS')
  assert.equal((await box.run(code, { input: {} })).value.code, 'ERR_INVALID_ARGUMENTS')
  assert.equal(asking.servers()[0].state, 'idle')
  assert.equal((await box.run(code, { input: { text: 'x' } })).value, 'noted')
  assert.deepEqual([arrived(log, 'write_note').length, asked.length], [1, 1])
})

test('a server can be lenient: the call is made, with a warning or without', async () => {
  const args = { location: 'Rome', days: 'three' }
  const code = (server) => `import { get_forecast } from "host:mcp-${server}"; export const handler = (args) => get_forecast(args).got`
  const problem = /lenient\.get-forecast do not fit its inputSchema: days: expected integer/
  warnings.length = 0
  assert.deepEqual((await gateway.callTool('silent', 'get-forecast', args)).structuredContent.got, args)
  const quiet = await sandbox.run(code('silent'), { input: args })
  assert.deepEqual([quiet.value, quiet.warnings, warnings], [args, [], []])
  assert.deepEqual((await gateway.callTool('lenient', 'get-forecast', args)).structuredContent.got, args)
  await waitFor('the warning', () => warnings.length > 0)
  assert.equal(warnings.length, 1)
  assert.match(warnings[0], problem)
  const told = await sandbox.run(code('lenient'), { input: args })
  assert.deepEqual([told.value, told.warnings.length], [args, 1])
  assert.match(told.warnings[0], problem)
})

test('the mode can be settled for all servers, and a server can be stricter', async (t) => {
  const args = { location: 1 }
  const open = await openApproved(t, { picky, strict: { ...picky, argumentChecks: 'error' } }, { argumentChecks: 'off' })
  assert.deepEqual((await open.callTool('picky', 'get-forecast', args)).structuredContent.got, args)
  await failure(open.callTool('strict', 'get-forecast', args), 'ERR_INVALID_ARGUMENTS')
  for (const argumentChecks of ['Error', true, null]) {
    const error = await failure(openGateway(t, {}, { argumentChecks }), 'ERR_INVALID_OPTION')
    assert.match(error.message, /argumentChecks/)
  }
  const invalid = await openGateway(t, { picky: { ...picky, argumentChecks: 'Warn' } })
  assert.equal(invalid.servers()[0].state, 'invalid')
  assert.match(invalid.servers()[0].lastError.message, /argumentChecks: must be "error", "warn" or "off"/)
})

test('a schema that cannot be used checks nothing, and that is said once', async () => {
  warnings.length = 0
  for (let round = 0; round < 2; round++) {
    assert.deepEqual((await gateway.callTool('picky', 'odd', { x: 1 })).structuredContent.got, { x: 1 })
  }
  // Answers and events come through separate queues.
  await waitFor('the warning', () => warnings.length > 0)
  assert.equal(warnings.length, 1)
  assert.match(warnings[0], /picky\.odd are not checked, because its inputSchema cannot be used/)
})

test('names that there are not come with those that were meant', async (t) => {
  const tool = await failure(gateway.callTool('picky', 'get_forcast', {}), 'ERR_UNKNOWN_TOOL')
  assert.match(tool.message, /: did you mean "get-forecast"\? There are: get-forecast, anything, odd$/)
  const far = await failure(gateway.callTool('picky', 'delete_all', {}), 'ERR_UNKNOWN_TOOL')
  assert.match(far.message, /; there are: get-forecast, anything, odd$/)
  const server = await failure(gateway.callTool('piky', 'odd', {}), 'ERR_UNKNOWN_SERVER')
  assert.match(server.message, /did you mean "picky"\?/)
  const code = `import { call } from "host:mcp"; export const handler = () => {
    try { return call("picky", "getForecast", {}) } catch (error) { return { code: error.code, message: error.message } } }`
  const { value } = await sandbox.run(code)
  assert.equal(value.code, 'ERR_UNKNOWN_TOOL')
  assert.match(value.message, /did you mean "get-forecast"\?/)
  const many = await openApproved(t, { fixture: fixture() })
  const { message } = await failure(many.callTool('fixture', 'nothing_like_it'), 'ERR_UNKNOWN_TOOL')
  assert.match(message, / and \d+ more; search or tools\(\) lists them$/)
})
