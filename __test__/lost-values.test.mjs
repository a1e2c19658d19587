// Tests of values of a run that JSON cannot represent: promises are awaited, maps and similar objects become data, and all others are
// reported.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { failure, fixture, openApproved, wholeFile } from './support.mjs'

const gateway = await openApproved(wholeFile, { fixture: fixture() })
const sandbox = await gateway.sandbox()
const run = (expression, before = '') =>
  sandbox.run(`import * as fixture from "host:mcp-fixture"; ${before}; export const handler = async () => (${expression})`)
const value = async (expression, before) => (await run(expression, before)).value
const warnings = async (expression) => (await run(expression)).logs.filter(({ level }) => level === 'warn').map(({ text }) => text)

describe('promises in a value', () => {
  test('are awaited wherever they are, with the promises that they lead to', async () => {
    assert.deepEqual(await value('[1, 2].map(async (number) => number * 2)'), [2, 4])
    const nested =
      '{ a: Promise.resolve({ b: [Promise.resolve(new Map([["c", Promise.resolve(new Uint8Array([1]))]]))] }), d: Promise.resolve() }'
    assert.deepEqual(await value(nested), { a: { b: [{ c: new Uint8Array([1]) }] }, d: null })
    assert.deepEqual(await value('["Oslo", "Rome"].map((location) => fixture.get_forecast.async({ location }))'), [
      { temperature: 93, conditions: 'sunny' },
      { temperature: 93, conditions: 'sunny' },
    ])
    const shared = 'const one = new Promise((resolve) => setTimeout(resolve, 1, new Date(0)))'
    assert.deepEqual(await value('[one, { one }]', shared), ['1970-01-01T00:00:00.000Z', { one: '1970-01-01T00:00:00.000Z' }])
    assert.deepEqual(await warnings('[1].map(async () => fixture.get_forecast.async({ location: "Oslo" }))'), [])
  })

  test('fail the run as their error, or if nothing can settle them', async () => {
    const error = await failure(run('[1].map(async () => { throw new TypeError("no such row") })'), 'ERR_GUEST_THREW')
    assert.match(error.message, /TypeError.*no such row/)
    await failure(run('[new Promise(() => {})]'), 'ERR_NEVER_SETTLES')
  })

  test('in the arguments of a call are an error that names the place, and send nothing', async () => {
    for (const call of ['fixture.args', 'fixture.args.async', 'mcp.call.bind(null, "fixture", "args")']) {
      const error = await failure(
        run(`await (${call})({ cities: [1, Promise.resolve("Oslo")] })`, 'import * as mcp from "host:mcp"'),
        'ERR_GUEST_THREW',
      )
      assert.match(error.message, /\.cities\[1\] is a promise: await it first/, call)
    }
  })
})

describe('values that are no plain data', () => {
  test('become the data that people expect', async () => {
    const all = `{
      map: new Map([["a", 1], [2, new Set([3])]]), pairs: new Map([[{ id: 1 }, "x"]]), twins: new Map([[1, "a"], ["1", "b"]]),
      set: new Set([1, [2]]), date: new Date(0), pattern: /a+/g, floats: new Float64Array([1.5, 2]),
      buffer: new Uint8Array([1, 2]).buffer, view: new DataView(new Uint8Array([1, 2, 3]).buffer, 1),
      error: Object.assign(new TypeError("no"), { code: "ERR_X" }), query: new URLSearchParams("a=1&b=2"), url: new URL("https://a.example/b") }`
    assert.deepEqual(await value(all), {
      map: { a: 1, 2: [3] },
      pairs: [[{ id: 1 }, 'x']],
      twins: [
        [1, 'a'],
        ['1', 'b'],
      ],
      set: [1, [2]],
      date: '1970-01-01T00:00:00.000Z',
      pattern: '/a+/g',
      floats: [1.5, 2],
      buffer: new Uint8Array([1, 2]),
      view: new Uint8Array([2, 3]),
      error: { name: 'TypeError', message: 'no', code: 'ERR_X' },
      query: 'a=1&b=2',
      url: 'https://a.example/b',
    })
    const settled = await value('Promise.allSettled([Promise.reject(new Error("gone"))])')
    assert.deepEqual(settled, [{ status: 'rejected', reason: { name: 'Error', message: 'gone' } }])
    assert.deepEqual(await value('[new Map([["$bytes", 0]]), new Uint8Array([7])]'), [{ $bytes: 0 }, new Uint8Array([7])])
    assert.deepEqual(await warnings(all), [])
  })

  test('are the same as input, as arguments, and from the functions of an agent', async () => {
    const input = { ids: new Set([1, 2]), names: new Map([['a', new Date(0)]]) }
    const sent = { ids: [1, 2], names: { a: '1970-01-01T00:00:00.000Z' } }
    assert.deepEqual((await sandbox.run('export const handler = (input) => input', { input })).value, sent)
    assert.deepEqual(await value('fixture.args({ ids: new Set([1, 2]), names: new Map([["a", new Date(0)]]) }).arguments'), sent)
    const own = await gateway.sandbox()
    own.hostModule('own', { give: () => input, late: () => ({ one: Promise.resolve(1) }) })
    const { value: given } = await own.run('import { give } from "host:own"; export const handler = () => give()')
    assert.deepEqual(given, sent)
    const late = own.run('import { late } from "host:own"; export const handler = () => late()')
    assert.match((await failure(late, 'ERR_GUEST_THREW')).message, /\.one is a promise/)
  })

  test('of which nothing is left are named, a few at most', async () => {
    const cases = {
      'Number.NaN': /: the value is NaN$/,
      '{ rows: [{ done() {} }] }': /: \.rows\[0\]\.done is a function$/,
      '{ "a b": new Map([["c", Symbol("x")]]), d: -1 / 0 }': /: \["a b"\]\.c is a symbol; \.d is -Infinity$/,
      '[new Date(NaN), new WeakMap(), [1].values()]':
        /\[0\] is an invalid date; \[1\] is an object of the class WeakMap, .*; \[2\] is an object/,
      '[Promise.resolve({ f() {} })]': /: \[0\]\.f is a function$/,
      'Array.from({ length: 9 }, () => () => 1)': /\[4\] is a function; and 4 more$/,
    }
    for (const [expression, named] of Object.entries(cases)) {
      const said = await warnings(expression)
      assert.equal(said.length, 1, expression)
      assert.match(said[0], /the value is incomplete/)
      assert.match(said[0], named)
    }
    for (const whole of ['{ a: undefined, b: null, c: [], d: {}, e: Object.create(null), f: new (class { x = 1 })() }', '"text"', 'null'])
      assert.deepEqual(await warnings(whole), [], whole)
  })
})
