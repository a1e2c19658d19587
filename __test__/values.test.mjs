// Tests of values that cross between Node, a guest and a server: each becomes a value or an Error with a stable code, and a person is shown
// exactly what is sent. None of these values ends the process, or leaves a promise pending.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { answerAnthropic, answerOpenAi, forLangChain, forOpenAi } from '../adapters.mjs'
import { evaluate, failure, fixture, folder, gated, mirror, openApproved, waitFor, wholeFile } from './support.mjs'

const gateway = await openApproved(wholeFile, { fixture: fixture(), gate: gated(), mirror })
const sandbox = await gateway.sandbox()
const identity = 'export const handler = (input) => input'
const CALL = ['gate', 'write_note', { text: 'x' }]

const raise = (thrown) => {
  throw thrown
}
const bytes = (count) => Array.from({ length: count }, () => new Uint8Array(0))
/** Values for `throw` that are difficult for the code that reads them. */
const odd = () => [
  undefined,
  null,
  Symbol('mark'),
  1n,
  Object.create(null),
  { message: Symbol('mark') },
  { message: Object.create(null) },
  { toString: () => raise(1) },
  {
    get message() {
      return raise(new Error('trap'))
    },
  },
  Object.defineProperty(new Error('x'), 'message', { get: () => raise(null) }),
  Object.defineProperty(new Error('x'), 'stack', { get: () => raise(null) }),
  new Proxy({}, { get: () => raise('trap'), getPrototypeOf: () => raise('trap'), has: () => raise('trap'), ownKeys: () => raise('trap') }),
  new Proxy(new Error('x'), { get: () => raise(Object.create(null)) }),
  new Error('x'.repeat(5_000_000)),
]
/** Values that cannot cross. */
const uncrossable = () =>
  [
    { toJSON: () => raise(undefined) },
    { toJSON: () => raise(Object.create(null)) },
    {
      get field() {
        return raise({ message: Object.create(null) })
      },
    },
    new Proxy({ a: 1 }, { ownKeys: () => raise(Symbol('trap')) }),
    Object.defineProperty(new DataView(new ArrayBuffer(4)), Symbol.toStringTag, { value: 'Uint8Array' }),
  ].map((value) => ({ deep: [value] }))

describe("An agent's own function", () => {
  /** Calls these functions in a guest. Returns the codes of the errors. */
  async function codes(t, functions) {
    const own = await gateway.sandbox()
    t.after(() => own.close())
    own.hostModule('agent', functions)
    const calls = Object.keys(functions).map((name) => `(() => { try { return [agent.${name}()] } catch ({ code }) { return code } })()`)
    return (await own.run(`import * as agent from "host:agent"; export const handler = () => [${calls}]`)).value
  }
  const named = (functions) => Object.fromEntries(functions.map((one, index) => [`f${index}`, one]))

  test('may throw, or reject with, anything', async (t) => {
    const functions = odd().flatMap((thrown) => [() => raise(thrown), () => Promise.reject(thrown)])
    assert.deepEqual([...new Set(await codes(t, named(functions)))], ['ERR_HOST_FUNCTION'])
  })

  test('may give a promise that is none', async (t) => {
    const thenables = odd().flatMap((thrown) => [
      () => ({
        // biome-ignore lint/suspicious/noThenProperty: this is what is tested
        then: () => raise(thrown),
      }),
      () => Object.defineProperty({}, 'then', { get: () => raise(thrown) }),
      // biome-ignore lint/suspicious/noThenProperty: this is what is tested
      () => ({ then: (_, reject) => reject(thrown) }),
    ])
    assert.deepEqual([...new Set(await codes(t, named(thenables)))], ['ERR_HOST_FUNCTION'])
  })

  test('may return what cannot cross, 500,000 byte arrays among it', async (t) => {
    const functions = uncrossable().flatMap((value) => [() => value, async () => value])
    assert.deepEqual([...new Set(await codes(t, named(functions)))], ['ERR_HOST_FUNCTION'])
    let deep = 1
    for (let level = 0; level < 1000; level++) deep = [deep]
    const lists = Array.from({ length: 500_000 }, () => [])
    const given = await codes(t, {
      most: () => bytes(500_000),
      deep: () => deep,
      lists: () => lists,
      many: () => bytes(10_000),
      text: () => () => 1,
    })
    assert.deepEqual(
      [given[0], given[1], given[2], given[3][0].length, given[4]],
      ['ERR_HOST_FUNCTION', 'ERR_HOST_FUNCTION', 'ERR_RESPONSE_TOO_LARGE', 10_000, [null]],
    )
  })

  test('that never answers ends with its run', async () => {
    const own = await gateway.sandbox()
    // biome-ignore lint/suspicious/noThenProperty: this is what is tested
    own.hostModule('agent', { never: () => new Promise(() => {}), idle: () => ({ then() {} }) })
    for (const name of ['never', 'idle']) {
      const code = `import { ${name} } from "host:agent"; export const handler = () => ${name}()`
      await failure(own.run(code, { timeoutMs: 100 }), 'ERR_RUN_TIMEOUT')
    }
    await own.close()
  })

  test('is looked for in any object', async () => {
    const trapped = new Proxy({}, { ownKeys: () => raise(Object.create(null)) })
    await failure(() => sandbox.hostModule('trapped', trapped), 'ERR_INVALID_OPTION')
    await failure(() => sandbox.hostModule('trapped', { f: () => 1 }, { toJSON: () => raise(undefined) }), 'ERR_INVALID_OPTION')
  })
})

describe('A callback', () => {
  test('that throws or answers anything at all is a no, and its reason can be read', async () => {
    const answers = [...odd(), ...uncrossable()]
    for (const onApproval of answers.flatMap((one) => [() => raise(one), () => Promise.reject(one), () => one])) {
      const error = await failure(gateway.callTool(...CALL, { onApproval }), 'ERR_CALL_DENIED')
      assert.ok(error.message.includes('onApproval') && error.message.length < 40_000, error.message.slice(0, 200))
    }
  })

  test('that listens may throw and reject: that is a warning, and its run goes on', async (t) => {
    const warnings = []
    const listen = (warning) => warning.name === 'HyperlightMcpWarning' && warnings.push(warning.message)
    process.on('warning', listen)
    t.after(() => process.off('warning', listen))
    const listeners = odd().flatMap((thrown) => [
      () => raise(thrown),
      async () => raise(thrown),
      () => Object.defineProperty({}, 'then', { get: () => raise(thrown) }),
    ])
    for (const onEvent of listeners) {
      const { value } = await sandbox.run('export const handler = () => { console.log("x"); return 1 }', { onEvent })
      assert.equal(value, 1)
    }
    await waitFor('a warning for each', () => warnings.length === listeners.length)
    assert.ok(warnings.every((message) => message.startsWith('onEvent threw: ')))
  })
})

describe('What is given to a method', () => {
  test('and cannot cross is an error that says why', async () => {
    const module = gateway.pluginRegistration('fixture').createHostFunctions({ toolErrors: 'throw' })['mcp-fixture']
    for (const value of [...uncrossable(), bytes(500_000)]) {
      const error = await failure(sandbox.run(identity, { input: value }), 'ERR_INVALID_VALUE')
      assert.match(error.message, /^the input cannot enter the sandbox: ./)
      await failure(gateway.callTool('fixture', 'args', { value }), 'ERR_INVALID_ARGUMENTS')
      await failure(module.args({ value }), 'ERR_INVALID_ARGUMENTS')
      await failure(gateway.getPrompt('fixture', 'plan', { value }), 'ERR_INVALID_ARGUMENTS')
    }
    assert.equal((await sandbox.run(identity, { input: bytes(10_000) })).value.length, 10_000)
    assert.match((await failure(sandbox.run(identity, { input: bytes(10_001) }), 'ERR_INVALID_VALUE')).message, /10001.*10000/)
    await failure(gateway.callTool(Symbol('x'), { toString: null }, { toJSON: () => raise(null) }), 'ERR_INVALID_ARGUMENTS')
  })

  test('as options may have getters and traps of its own', async () => {
    const trapped = () => [
      new Proxy({}, { ownKeys: () => raise(Object.create(null)) }),
      {
        get timeoutMs() {
          return raise(undefined)
        },
      },
      { timeoutMs: { toJSON: () => raise(Object.create(null)) } },
      JSON.parse('{ "__proto__": { "timeoutMs": 5 } }'),
    ]
    for (const options of trapped()) {
      await failure(sandbox.run(identity, options), 'ERR_INVALID_OPTION')
      await failure(gateway.callTool('fixture', 'empty', {}, options), 'ERR_INVALID_OPTION')
      await failure(() => gateway.agentTools(options), 'ERR_INVALID_OPTION')
    }
    for (const box of [Object.create(Object.getPrototypeOf(sandbox)), new Proxy(sandbox, {})])
      await failure(() => gateway.agentTools({ sandbox: box }), 'ERR_INVALID_OPTION')
  })

  test('as a signal is one, or is refused', async () => {
    for (const signal of [Object.create(AbortSignal.prototype), new Proxy({}, { getPrototypeOf: () => raise(1) }), new EventTarget()]) {
      await failure(sandbox.run(identity, { signal }), 'ERR_INVALID_OPTION')
      await failure(gateway.callTool('fixture', 'empty', {}, { signal }), 'ERR_INVALID_OPTION')
    }
    // Own properties of a real signal have no effect.
    const traps = Object.fromEntries(
      ['aborted', 'reason', 'addEventListener', 'removeEventListener'].map((name) => [name, { get: () => raise(name) }]),
    )
    const controller = new AbortController()
    const signal = Object.defineProperties(controller.signal, traps)
    assert.equal((await sandbox.run(identity, { input: 1, signal })).value, 1)
    const run = failure(sandbox.run('export const handler = () => { for (;;); }', { signal }), 'ERR_ABORTED')
    const reason = Object.create(null)
    controller.abort(reason)
    assert.equal((await run).cause, reason)
    assert.equal((await failure(gateway.callTool('fixture', 'empty', {}, { signal }), 'ERR_ABORTED')).cause, reason)
  })

  test('fails with its code whatever prepares stacks', async (t) => {
    const before = Error.prepareStackTrace
    t.after(() => {
      Error.prepareStackTrace = before
    })
    Error.prepareStackTrace = () => 5
    await failure(gateway.callTool('nobody', 'x'), 'ERR_UNKNOWN_SERVER')
  })

  test("as a model's arguments is answered", async () => {
    const tools = gateway.agentTools({ sandbox })
    for (const tool of tools) {
      for (const args of [...odd(), ...uncrossable(), () => 1, Symbol('x')]) {
        if (args === undefined || args === null) continue
        const answer = await tool.execute(args)
        assert.ok(answer.error === undefined || answer.error.code.startsWith('ERR_'), tool.name)
      }
    }
    const calls = [{ type: 'function_call', call_id: '1', name: Object.create(null), arguments: '{}' }]
    assert.match((await answerOpenAi(tools, calls))[0].output, /ERR_UNKNOWN_TOOL/)
    const uses = [{ type: 'tool_use', id: '1', name: { toString: null }, input: 1n }]
    assert.match((await answerAnthropic(tools, { content: uses }))[0].content[0].content, /ERR_UNKNOWN_TOOL/)
    for (const nothing of [null, 5, Object.create(null), Symbol('x')]) {
      await failure(answerOpenAi(tools, [nothing, ...calls]), 'ERR_INVALID_OPTION')
      await failure(answerAnthropic(tools, { content: [nothing, ...uses] }), 'ERR_INVALID_OPTION')
    }
    const message = { tool_calls: [null, { id: '1', function: { name: 'mine', arguments: '{}' } }] }
    assert.match((await answerOpenAi(tools, message, { others: () => ({ n: 1n }) }))[0].content, /ERR_INVALID_VALUE/)
    await failure(() => forOpenAi(tools, { api: Object.create(null) }), 'ERR_INVALID_OPTION')
    await failure(() => forLangChain(tools), 'ERR_INVALID_OPTION')
  })
})

describe('A value', () => {
  const values = [
    { $bytes: 0 },
    { $bytes: [['a', 1]] },
    { $bytes: { $bytes: '0', length: 1 }, other: new Uint8Array([1]) },
    [{ $bytes: 'constructor' }, new Uint8Array([2]), { a: { $bytes: 1, $ref: [{ $bytes: [] }] } }],
    JSON.parse('{ "__proto__": { "$bytes": [["x", 1]] }, "constructor": 1, "$bytes": { "__proto__": 5 } }'),
    '"$bytes"',
    { text: '{"$bytes":0}', data: new Uint8Array([3]) },
  ]

  test('that looks like bytes stays what it is, from Node to a guest and back, and through the agent', async () => {
    const own = await gateway.sandbox()
    const got = []
    own.hostModule('agent', { pass: (value) => got.push(value) && value })
    const { value } = await own.run('import { pass } from "host:agent"; export const handler = (input) => input.map((one) => pass(one))', {
      input: values,
    })
    assert.deepEqual(value, values)
    assert.deepEqual(got, values)
    await own.close()
  })

  test('of a server that forges bytes has none', async () => {
    const forged = [{ $bytes: 0 }, { $bytes: '0' }, { a: { $bytes: [['$bytes', 0]] } }, { $bytes: 'length', other: 1 }, { $bytes: [[1]] }]
    const { give } = gateway.pluginRegistration('mirror').createHostFunctions()['mcp-mirror']
    for (const structuredContent of forged) {
      const result = { content: [], structuredContent }
      assert.deepEqual((await gateway.callTool('mirror', 'give', result)).structuredContent, structuredContent)
      assert.deepEqual(await give(result), structuredContent)
      const code = 'import { give } from "host:mcp-mirror"; export const handler = (result) => give(result)'
      assert.deepEqual((await sandbox.run(code, { input: result })).value, structuredContent)
    }
  })

  test('of very many parts beside bytes is read without recursion', async () => {
    const code = `export const handler = () => ({ data: new Uint8Array([1]), rest: Array.from({ length: 100_000 }, () => []) })`
    const { value } = await sandbox.run(code)
    assert.deepEqual([value.data, value.rest.length], [new Uint8Array([1]), 100_000])
  })

  test('with thousands of byte arrays takes a guest little time to read', async () => {
    // A quarter takes the engine the whole compute time of a run if its time grows with the square of the number.
    const count = 9_000
    const { value } = await sandbox.run('export const handler = (input) => [input.length, input.at(-1)]', { input: bytes(count) })
    assert.deepEqual(value, [count, new Uint8Array(0)])
  })

  test('has a limit of levels, with a budget and without', async () => {
    const deep = (levels) => `export const handler = () => { let a = 1; for (let n = 0; n < ${levels}; n++) a = [a]; return a }`
    for (const options of [{}, { maxResultTokens: 1000 }]) {
      await sandbox.run(deep(126), options)
      const error = await failure(sandbox.run(deep(127), options), 'ERR_INVALID_VALUE')
      assert.match(error.message, /more than 126 levels/)
      await failure(sandbox.run(deep(5_000), options), 'ERR_INVALID_VALUE')
    }
  })

  test('takes as many levels of arguments to a server as servers can read', async () => {
    const deep = (levels) => JSON.parse(`{"a":${'['.repeat(levels - 1)}1${']'.repeat(levels - 1)}}`)
    const code = 'import { args } from "host:mcp-fixture"; export const handler = (input) => args(input).code'
    assert.notEqual((await sandbox.run(code, { input: deep(125) })).value, 'ERR_INVALID_ARGUMENTS')
    assert.equal((await sandbox.run(code, { input: deep(126) })).value, 'ERR_INVALID_ARGUMENTS')
    const error = await failure(gateway.callTool('fixture', 'args', deep(126)), 'ERR_INVALID_ARGUMENTS')
    assert.match(error.message, /more than 125 levels/)
  })

  test('with more bytes than cross together is refused where it leaves a guest', async () => {
    const many = 'Array.from({ length: 10_001 }, () => new Uint8Array(0))'
    const error = await failure(sandbox.run(`export const handler = () => ${many}`), 'ERR_INVALID_VALUE')
    assert.match(error.message, /10001 Uint8Arrays, and at most 10000/)
    const { value } = await evaluate(
      sandbox,
      `[fixture.args({ all: ${many} }), (() => { try { call("fixture", "args", { all: ${many} }) } catch ({ code }) { return code } })()]`,
    )
    assert.deepEqual([value[0].code, value[1]], ['ERR_INVALID_ARGUMENTS', 'ERR_INVALID_ARGUMENTS'])
  })
})

describe('What a person is asked about', () => {
  /** The same values every time, from a small generator (mulberry32). */
  function generator(seed) {
    let state = seed
    const next = () => {
      state = (state + 0x6d2b79f5) | 0
      let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
      mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
    }
    const below = (limit) => Math.floor(next() * limit)
    const numbers = [
      0,
      -0,
      0.1 + 0.2,
      5e-324,
      1.7976931348623157e308,
      2 ** 53,
      2 ** 53 + 2,
      2 ** 60,
      2 ** 63,
      -(2 ** 63),
      2 ** 64,
      1e21,
      1e-7,
    ]
    const texts = ['', 'größe', '\ud83d\ude00', '\u2028\u0000"\\', '{"$bytes":0}', '9007199254740993']
    const keys = ['a', '__proto__', 'constructor', 'toJSON', '1', '0', '$bytes', '', 'größe', 'length']
    const leaves = [
      () => numbers[below(numbers.length)],
      () => Math.round((next() - 0.5) * 2 ** (1 + below(80))),
      () => (next() - 0.5) * 10 ** (below(600) - 300),
      () => texts[below(texts.length)],
      () => next() < 0.5,
      () => null,
    ]
    const value = (depth) => {
      if (depth === 0 || next() < 0.4) return leaves[below(leaves.length)]()
      const length = below(4)
      if (next() < 0.5) return Array.from({ length }, () => value(depth - 1))
      return record(length, depth - 1)
    }
    const record = (length, depth) => {
      const made = {}
      for (let count = 0; count < length; count++) {
        const descriptor = { value: value(depth), enumerable: true, writable: true, configurable: true }
        Object.defineProperty(made, keys[below(keys.length)], descriptor)
      }
      return made
    }
    return () => record(1 + below(4), 3)
  }

  /** Returns a server that writes each line that it receives to a file. */
  const recording = (path) => ({
    ...mirror,
    confirm: 'always',
    args: [
      mirror.args[0],
      mirror.args[1].replace(`(line) => {`, `(line) => { require('node:fs').appendFileSync(${JSON.stringify(path)}, line + '\\n');`),
    ],
  })

  test('is what is sent: the same values, and of every integer the same digits', async (t) => {
    const path = join(folder(t), 'lines')
    const asked = []
    const onApproval = ({ args }) => asked.push(args) && 'once'
    const own = await openApproved(t, { recorder: recording(path) }, { onApproval })
    const box = await own.sandbox()
    const next = generator(7)
    const inputs = Array.from({ length: 150 }, next)
    for (const args of inputs.slice(0, 50)) await own.callTool('recorder', 'give', args)
    const code = 'import { give } from "host:mcp-recorder"; export const handler = (all) => all.forEach((args) => give(args))'
    await box.run(code, { input: inputs.slice(50) })
    const lines = readFileSync(path, 'utf8')
      .split('\n')
      .filter((line) => line.includes('"tools/call"'))
    const sent = lines.map((line) => JSON.parse(line).params.arguments)
    assert.equal(asked.length, inputs.length)
    assert.deepEqual(sent, asked)
    const unsigned = (json) => JSON.parse(JSON.stringify(json)) // Applies what JSON.stringify does to -0 and similar values.
    assert.deepEqual(asked.map(unsigned), inputs.map(unsigned))
    for (const line of lines) {
      // Without texts and keys, only numbers that could be integers are left.
      const integers = line.replace(/"(?:[^"\\]|\\.)*"/g, '""').match(/(?<![\d.eE+-])-?\d+(?![\d.eE])/g) ?? []
      for (const digits of integers) assert.equal(String(Number(digits)), digits, line)
    }
  })
})
