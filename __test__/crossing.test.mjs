// Tests of what crosses the border of the VM in both directions: modules, arguments, bytes, and functions of the agent's own. scripts/test
// repeats these tests with the standard guest, in an emulated machine if necessary. bridge.test.mjs tests how a tool's result becomes a
// value.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { evaluate, failure, fixture, ms, openApproved, wholeFile } from './support.mjs'

// In the emulated machine, the time in which this machine runs other programs counts as processor time of the guest.
const gateway = await openApproved(wholeFile, { fixture: fixture() }, { limits: { computeTimeoutMs: ms(5000) } })
const sandbox = await gateway.sandbox()

const bytes = (length) => Uint8Array.from({ length }, (_, index) => (index * 7) % 256)
const evaluated = async (expression, options) => (await evaluate(sandbox, expression, options)).value
/** Returns an expression that gives the fields of an exception in the guest. */
const caught = (expression) => `(() => { try { return { returned: ${expression} } } catch (error) {
  return { isError: error instanceof Error, message: error.message, code: error.code } } })()`

test('a module is there by names, as a namespace, by default export, by import() and by require()', async () => {
  const { value } = await sandbox.run(`
    import { echo_text, echo_text as renamed } from "host:mcp-fixture"
    import * as namespace from "host:mcp-fixture"
    import fixture from "host:mcp-fixture"
    export async function handler() {
      const required = require("host:mcp-fixture"), imported = await import("host:mcp-fixture")
      return [echo_text, renamed, namespace.echo_text, fixture.echo_text, required.echo_text, imported.echo_text, required.default.echo_text]
        .map((f, index) => f({ text: String(index) }))
    }`)
  assert.deepEqual(value, ['0', '1', '2', '3', '4', '5', '6'])
  const script = 'function handler(text) { return require("host:mcp-fixture").echo_text({ text }) }'
  assert.equal((await sandbox.run(script, { input: 'a plain script' })).value, 'a plain script')
})

// ---- arguments

test('a tool gets the object that it was called with', async () => {
  const input = { a: [1, 2.5, { b: null }], 'c-d': 'ß', e: true, f: {}, __proto: 0 }
  assert.deepEqual(await evaluated('fixture.args(input).arguments', { input }), input)
  assert.deepEqual(await evaluated('[fixture.args().arguments, fixture.args(undefined).arguments, fixture.args({}).arguments]'), [
    {},
    {},
    {},
  ])
  assert.deepEqual(await evaluated('fixture.args({ gone: undefined, f() {}, kept: 1 }).arguments'), { kept: 1 })
})

test('arguments that are no object are refused with a code', async () => {
  const wrong = ['null', '1', '"x"', 'true', '[]', 'new Uint8Array(2)', '{}, {}', '() => 1']
  const answers = await evaluated(`[${wrong.map((argument) => `fixture.args(${argument})`)}]`)
  for (const [index, answer] of answers.entries())
    assert.equal(answer.code, 'ERR_INVALID_ARGUMENTS', `${wrong[index]}: ${JSON.stringify(answer)}`)
})

test('arguments that no JSON can hold throw in the guest, and the run goes on', async () => {
  const cycle = 'const cycle = {}; cycle.self = cycle;'
  const { value } = await evaluate(
    sandbox,
    `(() => { ${cycle} return [${caught('fixture.args(cycle)')}, ${caught('fixture.args({ n: 1n })')},
    fixture.echo_text({ text: "goes on" })] })()`,
  )
  assert.ok(value[0].isError && value[1].isError, JSON.stringify(value))
  assert.equal(value[2], 'goes on')
})

test('bytes reach a tool as base64', async () => {
  const answer = await evaluated('fixture.args({ data: new Uint8Array([1, 2, 255]), deep: [{ x: input }] }).arguments', {
    input: Buffer.from('hi'),
  })
  assert.deepEqual(answer, { data: 'AQL/', deep: [{ x: 'aGk=' }] })
  const direct = await gateway.callTool('fixture', 'args', { data: new Uint8Array([1, 2, 255]), $bytes: 0 })
  assert.deepEqual(direct.structuredContent, { arguments: { data: 'AQL/', $bytes: 0 } })
})

// ---- bytes, and values that look like bytes

test('bytes go into a run and come out of it as Uint8Array, however deep', async () => {
  const input = { top: bytes(5), list: [bytes(0), { deep: bytes(70_000) }], buffer: Buffer.from('abc') }
  const { value } = await sandbox.run(
    `export const handler = (input) => ({
      kinds: [input.top, input.list[0], input.list[1].deep, input.buffer].map((data) => data instanceof Uint8Array),
      input, made: Uint8Array.from(input.top, (byte) => byte + 1), slice: input.top.subarray(1, 3),
    })`,
    { input },
  )
  assert.deepEqual(value.kinds, [true, true, true, true])
  assert.deepEqual(value.input, { ...input, buffer: new Uint8Array(Buffer.from('abc')) })
  assert.deepEqual(
    value.made,
    bytes(5).map((byte) => byte + 1),
  )
  assert.deepEqual(value.slice, bytes(5).subarray(1, 3))
})

test('user data that looks like the mark of bytes stays data in every direction', async () => {
  const forged = { $bytes: 0, list: [{ $bytes: [['a', 1]] }, { $bytes: { $bytes: 1 } }, { $bytes: 'x' }, { $bytes: [] }], real: bytes(3) }
  const json = { ...forged, real: 'AAcO' }
  const box = await gateway.sandbox()
  const seen = []
  box.hostModule('agent', { echo: (value) => seen.push(value) && value })
  const { value } = await box.run(
    `import * as fixture from "host:mcp-fixture"; import { call } from "host:mcp"; import { echo } from "host:agent"
    export const handler = (input) => ({ input, agent: echo(input), args: fixture.args(input).arguments,
      structured: fixture.echo({ value: input }).value, text: fixture.json_text({ json: JSON.stringify({ ...input, real: "AAcO" }) }),
      raw: call("fixture", "echo", { value: input }).structuredContent.value, own: { $bytes: 0 } })`,
    { input: forged },
  )
  assert.deepEqual(value.own, { $bytes: 0 })
  for (const [way, got] of Object.entries({ input: value.input, agent: value.agent, seen: seen[0] })) assert.deepEqual(got, forged, way)
  for (const way of ['args', 'structured', 'text', 'raw']) assert.deepEqual(value[way], json, way)
  const direct = await gateway.callTool('fixture', 'echo', { value: forged })
  assert.deepEqual(direct.structuredContent.value, json)
  assert.deepEqual((await box.run('export default () => ({ $bytes: 0 })')).value, { $bytes: 0 })
})

// ---- the agent's own modules

test('host modules are synchronous in the guest, whether their functions are so or not', async () => {
  const box = await gateway.sandbox()
  const got = []
  box.hostModule('agent', {
    add: (a, b) => a + b,
    later: async (text) => text.toUpperCase(),
    nothing: () => {},
    record: (...args) => got.push(args),
    bytes: (data) => ({ reversed: Uint8Array.from(data).reverse(), kind: data instanceof Uint8Array }),
  })
  box.hostModule('agent2', { name: () => 'second' })
  const { value } = await box.run(`import * as agent from "host:agent"; import { name } from "host:agent2"
    export const handler = () => [agent.add(2, 3), agent.later("up"), agent.nothing(),
      agent.bytes(new Uint8Array([1, 2, 3])), agent.record("x", null, { y: [new Uint8Array([9])] }), agent.record(), name(),
      agent.default.add(1, 1), require("host:agent").add(4, 4)]`)
  assert.deepEqual(value.slice(0, 4), [5, 'UP', null, { reversed: new Uint8Array([3, 2, 1]), kind: true }])
  assert.deepEqual(value.slice(6), ['second', 2, 8])
  assert.deepEqual(got, [['x', null, { y: [new Uint8Array([9])] }], []])
})

test('what a host module throws is an exception in the guest, in whichever way tools report errors', async () => {
  for (const toolErrors of ['return', 'throw']) {
    const box = await gateway.sandbox({ toolErrors })
    const cycle = {}
    cycle.self = cycle
    const raise = (value) => {
      throw value
    }
    box.hostModule('agent', {
      error: () => raise(new RangeError('out of range')),
      rejects: () => Promise.reject(new Error('later')),
      text: () => raise('just text'),
      nothing: () => raise(undefined),
      cycle: () => cycle,
      fine: () => 'fine',
    })
    const calls = ['error', 'rejects', 'text', 'nothing', 'cycle', 'fine'].map((name) => caught(`agent.${name}()`))
    const { value } = await box.run(`import * as agent from "host:agent"; export const handler = () => [${calls}]`)
    for (const [index, message] of [/out of range/, /later/, /just text/, /./, /./].entries()) {
      assert.equal(value[index].isError, true, JSON.stringify(value[index]))
      assert.equal(value[index].code, 'ERR_HOST_FUNCTION')
      assert.match(value[index].message, message)
    }
    assert.deepEqual(value[5], { returned: 'fine' })
  }
})

test('a host module belongs to its sandbox, and is there from the next run on', async () => {
  const box = await gateway.sandbox()
  const code = 'import { one } from "host:late"; export const handler = () => one()'
  await failure(box.run(code), 'ERR_CODE_SYNTAX')
  box.hostModule('late', { one: () => 1 })
  assert.equal((await box.run(code)).value, 1)
  await failure(sandbox.run(code), 'ERR_CODE_SYNTAX')
})

test("a host module cannot take a server's name, or one in use", async () => {
  const box = await gateway.sandbox()
  box.hostModule('mine', { f: () => 1 })
  for (const name of ['mcp', 'mcp-fixture', 'mcp-x', 'mcp-', 'mine']) {
    const error = await failure(() => box.hostModule(name, { f: () => 2 }), 'ERR_NAME_TAKEN')
    assert.ok(error.message.includes(`"${name}"`), error.message)
  }
  assert.equal((await box.run('import { f } from "host:mine"; export const handler = () => f()')).value, 1)
})
