// Tests of results within a budget: what is cut, what is reported about the cut, what later runs can still read, and the log beside it.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { compiled, failure, fixture, openApproved, openGateway, openSandbox, wholeFile } from './support.mjs'

const gateway = await openGateway(wholeFile)
const sandbox = await gateway.sandbox()
const ROWS = 'Array.from({ length: 2000 }, (_, id) => ({ id, name: "row " + id, tags: ["a", "b"] }))'
const rows = Array.from({ length: 2000 }, (_, id) => ({ id, name: `row ${id}`, tags: ['a', 'b'] }))
/** Returns what a later run reads with `saved`. */
async function readBack(id, { pointer, rest = '', box = sandbox } = {}) {
  const code = `import { saved } from "host:mcp"; export const handler = (args) => saved(...args)${rest}`
  return (await box.run(code, { input: pointer === undefined ? [id] : [id, pointer], maxResultTokens: 10_000_000 })).value
}
/** Returns the error that `saved` throws in the guest. */
async function refusal(args, box = sandbox) {
  const code = `import { saved } from "host:mcp"; export const handler = (args) => { try { return { value: saved(...args) } } catch (error) { return { code: error.code, message: error.message } } }`
  return (await box.run(code, { input: args })).value
}

describe('a value', () => {
  test('comes whole without a budget, and with one that it fits', async () => {
    for (const options of [{}, { maxResultTokens: 1_000_000 }]) {
      const result = await sandbox.run(`export const handler = () => ${ROWS}`, options)
      assert.deepEqual(result.value, rows)
      assert.deepEqual([Object.hasOwn(result, 'omitted'), Object.hasOwn(result, 'savedAs')], [false, false])
    }
  })

  test('over its budget is cut, says how much and where, and is read whole by a later run', async () => {
    const { value, omitted, savedAs } = await sandbox.run(`export const handler = () => ${ROWS}`, { maxResultTokens: 500 })
    assert.match(savedAs, /^[0-9a-z]{25}$/)
    const mark = value.pop()
    assert.ok(value.length > 10, `${value.length} rows`)
    assert.deepEqual(value, rows.slice(0, value.length))
    assert.equal(mark, `… ${2000 - value.length} of 2000 items left out; saved("${savedAs}") of host:mcp has all of it`)
    assert.deepEqual(omitted, [{ path: '', kind: 'items', kept: value.length, of: 2000 }])
    assert.deepEqual(await readBack(savedAs), rows)
    assert.equal(await readBack(savedAs, { pointer: '/1999/tags/1' }), 'b')
    assert.equal(await readBack(savedAs, { rest: '.filter((row) => row.id % 2).length' }), 1000)
  })

  test('keeps its type, its small parts, and says what each kind has lost', async () => {
    const code = `export const handler = () => ({
      id: 7, title: "a title", body: "lorem ipsum ".repeat(5000), photo: new Uint8Array(9000).fill(7), icon: new Uint8Array([1, 2]),
      index: Object.fromEntries(Array.from({ length: 3000 }, (_, key) => ["key" + key, key])), "…": null })`
    const { value, omitted, savedAs } = await sandbox.run(code, { maxResultTokens: 600 })
    assert.deepEqual([value.id, value.title, value.icon, value['…']], [7, 'a title', new Uint8Array([1, 2]), null])
    assert.equal(value.photo, '… [9000 bytes left out]')
    assert.match(value.body, /^(lorem ipsum )+.*… \[\d+ characters left out\] … .*(lorem ipsum )+$/)
    assert.equal(value['……'], `nested values were cut; saved("${savedAs}") of host:mcp has all of it`)
    assert.deepEqual(
      omitted.map(({ path, kind, of }) => [path, kind, of]),
      [
        ['/body', 'text', 60_000],
        ['/photo', 'bytes', 9000],
        ['/index', 'keys', 3000],
      ],
    )
    assert.deepEqual(await readBack(savedAs, { pointer: '/photo' }), new Uint8Array(9000).fill(7))
    const text = await sandbox.run('export const handler = () => "word ".repeat(9000)', { maxResultTokens: 100 })
    assert.equal(typeof text.value, 'string')
    assert.ok(text.value.includes(`saved("${text.savedAs}")`))
  })

  test('has the budget of the innermost that gives one', async (t) => {
    const outer = await openGateway(t, {}, { maxResultTokens: 200 })
    const kept = async (box, options) => (await box.run('export const handler = () => "word ".repeat(9000)', options)).omitted[0].kept
    const [ofGateway, ofSandbox] = [await outer.sandbox(), await outer.sandbox({ maxResultTokens: 400 })]
    const [least, middle, most] = [await kept(ofGateway), await kept(ofSandbox), await kept(ofSandbox, { maxResultTokens: 800 })]
    assert.ok(least > 500 && middle > least * 1.5 && most > middle * 1.5, `${least} ${middle} ${most}`)
  })

  test('is not measured where its budget is none that could be kept', async (t) => {
    for (const maxResultTokens of [99, 0, -1, 1.5, '500', null]) {
      const error = await failure(sandbox.run('export const handler = () => 1', { maxResultTokens }), 'ERR_INVALID_OPTION')
      assert.match(error.message, /Sandbox\.run.*maxResultTokens/)
    }
    await failure(gateway.sandbox({ maxResultTokens: 99 }), 'ERR_INVALID_OPTION')
    const error = await failure(openGateway(t, {}, { maxResultTokens: 99 }), 'ERR_INVALID_OPTION')
    assert.match(error.message, /Gateway\.open: maxResultTokens must be at least 100, not 99/)
  })

  test('of too many levels is refused, and of many is cut', async () => {
    const deep = (levels) => `export const handler = () => { let a = 1; for (let n = 0; n < ${levels}; n++) a = [a]; return a }`
    await failure(sandbox.run(deep(400), { maxResultTokens: 100 }), 'ERR_INVALID_VALUE')
    const { value, omitted } = await sandbox.run(deep(100), { maxResultTokens: 100 })
    assert.ok(Array.isArray(value))
    assert.equal(omitted[0].kind, 'depth')
  })
})

describe('what was saved', () => {
  test('is this sandbox’s alone, and a handle that is none says what to do', async () => {
    const other = await gateway.sandbox()
    const { savedAs } = await sandbox.run(`export const handler = () => ${ROWS}`, { maxResultTokens: 100 })
    for (const [id, box] of [
      [savedAs, other],
      ['0'.repeat(25), sandbox],
      ['', sandbox],
    ]) {
      const { code, message } = await refusal([id], box)
      assert.equal(code, 'ERR_NOT_SAVED')
      assert.match(message, /limits\.maxSavedAgeMs.*limits\.maxSavedBytes.*return less/)
    }
    for (const args of [[], [7], [savedAs, 7], [savedAs, '', 1]]) assert.equal((await refusal(args)).code, 'ERR_INVALID_ARGUMENTS')
    const { code, message } = await refusal([savedAs, '/0/nope'])
    assert.equal(code, 'ERR_INVALID_ARGUMENTS')
    assert.match(message, /nothing at "\/0\/nope": "\/0" has 3 keys: id, name, tags/)
  })

  test('is refused with the whole pointer, which is not shortened like a path', async () => {
    const { savedAs } = await sandbox.run(`export const handler = () => ({ a: { b: { c: ${ROWS} } } })`, { maxResultTokens: 500 })
    const pointer = '/a/b/c/7/absent/d'
    const told = /there is nothing at "\/a\/b\/c\/7\/absent\/d": "\/a\/b\/c\/7" has 3 keys/
    assert.match((await refusal([savedAs, pointer])).message, told)
    await assert.rejects(readBack(savedAs, { pointer }), told)
  })

  test('is no other value: each cut has its own handle', async () => {
    const ids = new Set()
    for (let n = 0; n < 20; n++)
      ids.add((await sandbox.run(`export const handler = () => "${n} ".repeat(900)`, { maxResultTokens: 100 })).savedAs)
    assert.equal(ids.size, 20)
    let n = 0
    for (const id of ids) assert.equal(await readBack(id), `${n++} `.repeat(900))
  })

  test('gives way to newer values at maxSavedBytes, and what is larger is not saved', async (t) => {
    const box = await (await openGateway(t, {}, { limits: { maxSavedBytes: 25_000 }, maxResultTokens: 100 })).sandbox()
    const save = (length) => box.run(`export const handler = () => "a b ".repeat(${length / 4})`)
    const [first, second] = [await save(10_000), await save(10_000)]
    assert.equal(await readBack(first.savedAs, { rest: '.length', box }), 10_000)
    const third = await save(10_000)
    assert.equal((await refusal([first.savedAs], box)).code, 'ERR_NOT_SAVED')
    for (const { savedAs } of [second, third]) assert.equal(await readBack(savedAs, { rest: '.length', box }), 10_000)
    const large = await save(40_000)
    assert.deepEqual([large.savedAs, large.omitted[0].of], [undefined, 40_000])
    assert.match(large.value, /left out; it was too large to be saved: return less\]/)
    assert.match(large.warnings.join(), /not saved: it has 400\d\d bytes; limits\.maxSavedBytes is 25000/)
    assert.equal(await readBack(third.savedAs, { rest: '.length', box }), 10_000)
  })

  test('is gone at maxSavedAgeMs', async (t) => {
    const box = await (await openGateway(t, {}, { limits: { maxSavedAgeMs: 1 }, maxResultTokens: 100 })).sandbox()
    const { savedAs } = await box.run(`export const handler = () => ${ROWS}`)
    // Any run takes longer than a millisecond.
    assert.equal((await refusal([savedAs], box)).code, 'ERR_NOT_SAVED')
  })

  test('is refused where the guest has no room for it, and its parts are not', async (t) => {
    const limits = { maxResponseBytes: 256, maxInputBytes: 256, maxCodeBytes: 4096 }
    const box = await (await openGateway(t, {}, { limits, maxResultTokens: 100 })).sandbox()
    const { savedAs } = await box.run('export const handler = () => ({ small: "word ".repeat(900), large: "x".repeat(900_000) })')
    const { code, message } = await refusal([savedAs], box)
    assert.equal(code, 'ERR_RESPONSE_TOO_LARGE')
    assert.match(message, /ask for a part of it: saved\(id, "\/json\/pointer"\)/)
    assert.equal((await refusal([savedAs, '/large'], box)).code, 'ERR_RESPONSE_TOO_LARGE')
    assert.equal(await readBack(savedAs, { pointer: '/small', box }), 'word '.repeat(900))
  })

  test('of the largest value that a run may return comes back whole', async () => {
    const code = 'export const handler = () => [new Uint8Array(2 << 20).fill(5), "x".repeat((2 << 20) - 64)]'
    const { savedAs } = await sandbox.run(code, { maxResultTokens: 100 })
    const value = await readBack(savedAs)
    assert.ok(Buffer.alloc(2 << 20, 5).equals(value[0]))
    assert.equal(value[1].length, (2 << 20) - 64)
  })
})

test('agents are told of saved: its type compiles, and check knows it', async (t) => {
  const declarations = await gateway.declarations()
  const use = `import { saved } from "host:mcp"; export const n: number = saved("x", "/a").length; saved("x")`
  assert.equal(compiled(t, { 'host.d.ts': declarations, 'use.ts': use }), '')
  assert.match(compiled(t, { 'host.d.ts': declarations, 'use.ts': 'import { saved } from "host:mcp"; saved(1)' }), /TS2345/)
  const { problems } = await gateway.check('import { save } from "host:mcp"; export const handler = () => save("x")')
  assert.match(problems[0].message, /did you mean saved\?/)
})

describe('the log', () => {
  test('keeps its order and levels, and streams in order among what servers tell', async (t) => {
    const events = []
    const { sandbox: own } = await openSandbox(t, { options: { onEvent: (event) => events.push(event) } })
    const code = `import { progress } from "host:mcp-fixture";
      console.debug("top");
      export const handler = () => {
        for (const level of ["log", "info", "warn", "error", "debug"]) console[level](level, 1);
        progress({ steps: 3 }); console.log("between"); progress({ steps: 2 }); console.error("end"); return null }`
    const { logs } = await own.run(code)
    const levels = ['debug', 'log', 'info', 'warn', 'error', 'debug', 'log', 'error']
    assert.deepEqual(
      logs.map(({ level }) => level),
      levels,
    )
    assert.deepEqual(logs[2], { level: 'info', text: 'info 1' })
    const told = events.filter(({ type }) => type === 'log' || type === 'progress')
    const order = told.map(({ text, progress }) => text ?? progress)
    assert.deepEqual(order, ['top', 'log 1', 'info 1', 'warn 1', 'error 1', 'debug 1', 1, 2, 3, 'between', 1, 2, 'end'])
    assert.ok(told.every(({ runId }) => runId === told[0].runId))
  })

  test('streams while the run goes on', async (t) => {
    let seen
    const heard = new Promise((resolve) => {
      seen = resolve
    })
    const own = await (await openApproved(t, { fixture: fixture() })).sandbox()
    own.hostModule('agent', { wait: () => heard })
    const code = `import { wait } from "host:agent"; export const handler = () => { console.info("started"); return wait() }`
    const { value } = await own.run(code, { onEvent: ({ level, text }) => seen([level, text]) })
    assert.deepEqual(value, ['info', 'started'])
  })

  test('has nothing to do with the value’s budget', async () => {
    const code = `export const handler = () => { console.log("word ".repeat(5000)); return ${ROWS} }`
    const { logs } = await sandbox.run(code, { maxResultTokens: 100 })
    assert.equal(logs[0].text, 'word '.repeat(5000))
  })
})
