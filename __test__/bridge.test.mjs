// Tests of what agent code sees of a server: names, and each row of the contract's table from a tool's result to a guest's value.
// crossing.test.mjs tests what crosses the border of the VM in both directions.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { evaluate, fixture, mirror, ms, openApproved, openSandbox, wholeFile } from './support.mjs'

const EXTRA = ['then', '__proto__', 'default', '3d', 'größe', 'a-b', 'a.b'].flatMap((name) => ['--extra-tool', name])
const servers = { fixture: fixture(...EXTRA), mirror }
const gateway = await openApproved(wholeFile, servers)
const sandbox = await gateway.sandbox()
const throwing = await gateway.sandbox({ toolErrors: 'throw' })

const bytes = (length) => Uint8Array.from({ length }, (_, index) => (index * 7) % 256)
const evaluated = async (expression, options) => (await evaluate(sandbox, expression, options)).value
/** Returns the guest's value for exactly this result of a server. */
const shaped = async (result) => {
  const code = 'import { give } from "host:mcp-mirror"; export const handler = (result) => give(result)'
  return (await sandbox.run(code, { input: result })).value
}
const text = (text) => ({ type: 'text', text })
/** Returns an expression that gives the fields of an exception in the guest. */
const caught = (expression) => `(() => { try { return { returned: ${expression} } } catch (error) {
  return { isError: error instanceof Error, message: error.message, code: error.code } } })()`

// ---- from a tool's result to a guest's value

test('structured content is the value, as it is, and comes before any text', async () => {
  assert.deepEqual(await evaluated('fixture.structured({ name: "x", tags: ["a", "b"] })'), {
    name: 'x',
    count: 1,
    tags: ['a', 'b'],
    nested: { ok: true },
  })
  assert.deepEqual(await shaped({ content: [text('{"not":"this"}')], structuredContent: { b: [1.5, null], a: '' } }), {
    b: [1.5, null],
    a: '',
  })
  assert.equal(await shaped({ content: [text('x')], structuredContent: null }), null)
  const order = await evaluate(sandbox, 'Object.keys(fixture.echo({ value: { z: 1, a: 2, m: 3 } }).value)')
  assert.deepEqual(order.value, ['z', 'a', 'm'])
})

test('one text is a string', async () => {
  for (const plain of ['plain', '', 'two\nlines', 'größer als 😀', '\u0000\u2028"\\']) {
    assert.equal(await evaluated('fixture.echo_text(input)', { input: { text: plain } }), plain)
  }
})

test('a text that as a whole is a JSON object or array is that value', async () => {
  const json = async (json) => evaluated('fixture.json_text(input)', { input: { json } })
  assert.deepEqual(await json('{"a":[1,{"b":null}]}'), { a: [1, { b: null }] })
  assert.deepEqual(await json(' [1, 2]\n'), [1, 2])
})

test('prose that starts like JSON, and JSON scalars, stay text', async () => {
  for (const prose of [
    '[1] is a footnote',
    '{"a":1} and more',
    '{"a":1}{"b":2}',
    '[1,',
    '{a: 1}',
    '42',
    '"quoted"',
    'true',
    'null',
    '-0.5',
  ]) {
    assert.equal(await evaluated('fixture.json_text(input)', { input: { json: prose } }), prose)
  }
})

test('an image and a sound are their type and bytes', async () => {
  assert.deepEqual(await evaluated('fixture.image()'), { mimeType: 'image/png', data: bytes(16) })
  assert.deepEqual(await evaluated('fixture.audio({ bytes: 300 })'), { mimeType: 'audio/wav', data: bytes(300) })
  assert.deepEqual(await evaluated('fixture.image({ bytes: 0 })'), { mimeType: 'image/png', data: bytes(0) })
  assert.equal((await shaped({ content: [{ type: 'image', mimeType: 'image/png', data: 'no base64' }] })).code, 'ERR_PROTOCOL')
  assert.deepEqual(await evaluated('((data) => [data instanceof Uint8Array, data.length, data[3]])(fixture.image().data)'), [true, 16, 21])
})

test('an embedded resource is its address, type, and text or bytes', async () => {
  const blob = { uri: 'fixture://blob', mimeType: 'application/octet-stream', data: bytes(16) }
  assert.deepEqual(await evaluated('fixture.blob_resource()'), blob)
  const note = { uri: 'fixture://note.txt', mimeType: 'text/plain', text: 'a note' }
  assert.deepEqual(await evaluated('fixture.text_resource()'), note)
})

test('a link is its fields', async () => {
  const link = { uri: 'fixture://report', name: 'report', title: 'The report', description: 'A report that is not embedded' }
  assert.deepEqual(await evaluated('fixture.resource_link()'), { ...link, mimeType: 'text/markdown', size: 42 })
})

test('several blocks are an array of what each would be', async () => {
  assert.deepEqual(await evaluated('fixture.several()'), ['before', { mimeType: 'image/png', data: bytes(16) }, 'after'])
  const link = { type: 'resource_link', uri: 'x:1', name: 'n' }
  assert.deepEqual(await shaped({ content: [text('{"a":1}'), text('[1] note'), link] }), [{ a: 1 }, '[1] note', { uri: 'x:1', name: 'n' }])
})

test('nothing is null', async () => {
  assert.equal(await evaluated('fixture.empty()'), null)
  assert.equal(await shaped({ content: [] }), null)
})

test('a block of an unknown type is its fields, and extra keys of a result change nothing', async () => {
  const hologram = { type: 'hologram', depth: 3, payload: { frames: [1, 2] } }
  assert.deepEqual(await evaluated('fixture.unknown_block()'), hologram)
  assert.equal(await evaluated('fixture.extra_keys()'), 'fine')
  assert.equal(await shaped({ content: [text('x')], isError: false, prompts: [], resources: [], messages: [] }), 'x')
})

test("a server's own error is { error } without a code", async () => {
  assert.deepEqual(await evaluated('fixture.error({ message: "no such city" })'), { error: 'no such city' })
  assert.deepEqual(await evaluated('fixture.error_structured({ message: "busy" })'), { error: 'busy' })
  assert.deepEqual(await shaped({ isError: true, content: [text('{"json":1}')] }), { error: '{"json":1}' })
})

test('isError knows what a failed call returns, and takes no data for it', async () => {
  const { value } = await sandbox.run(`import { isError } from 'host:mcp'
    import { error } from 'host:mcp-fixture'
    export const handler = () => [
      error({ message: 'no such city' }), { error: 'late', code: 'ERR_CALL_TIMEOUT' },
      'a text with error in it', null, undefined, 5, [], ['error'], new Error('x'), { error: null, rows: [] }, { error: 'x', rows: [] },
      { code: 'ERR_X' }, { error: 'x', code: 5 }, { error: { message: 'x' } },
    ].map((value) => isError(value))`)
  assert.deepEqual(value, [true, true, ...Array(12).fill(false)])
})

test('with toolErrors "throw" an exception is thrown instead, for a sandbox or for one run', async () => {
  const expression = caught('fixture.error({ message: "no such city" })')
  const thrown = { isError: true, message: 'no such city' }
  const returned = { returned: { error: 'no such city' } }
  assert.deepEqual((await evaluate(throwing, expression)).value, thrown)
  assert.deepEqual((await evaluate(throwing, expression, { toolErrors: 'return' })).value, returned)
  assert.deepEqual((await evaluate(sandbox, expression, { toolErrors: 'throw' })).value, thrown)
  assert.deepEqual((await evaluate(sandbox, expression)).value, returned)
})

test('a time-out, a crash, a refusal and a protocol error are { error, code }, or thrown with the code, and the run goes on', async (t) => {
  const cases = [
    ['fixture.hang()', 'ERR_CALL_TIMEOUT', /fixture\.hang/],
    ['fixture.crash({ code: 7 })', 'ERR_SERVER_EXITED', /fixture\.crash/],
    ['fixture.echo_text("no object")', 'ERR_INVALID_ARGUMENTS', /fixture\.echo_text/],
    ['fixture.protocol_error({ message: "not today" })', 'ERR_PROTOCOL', /fixture\.protocol_error.*not today/],
  ]
  const quick = await openSandbox(t, { options: { limits: { callTimeoutMs: ms(400) } } })
  for (const [expression, code, message] of cases) {
    const { value } = await evaluate(quick.sandbox, `[${expression}, fixture.echo_text({ text: "goes on" })]`)
    assert.deepEqual(Object.keys(value[0]), ['error', 'code'], expression)
    assert.equal(value[0].code, code)
    assert.match(value[0].error, message)
    assert.equal(value[1], 'goes on')
    const thrown = (await evaluate(quick.sandbox, caught(expression), { toolErrors: 'throw' })).value
    assert.deepEqual({ ...thrown, message: '' }, { isError: true, message: '', code })
  }
})

test('a crashed server is started again by the next call', async () => {
  const [first, crash, second] = await evaluated('[fixture.pid().pid, fixture.crash(), fixture.pid().pid]')
  assert.equal(crash.code, 'ERR_SERVER_EXITED')
  assert.notEqual(first, second)
})

test('a server that is hidden or revoked during a run refuses the calls that come after', async (t) => {
  const { gateway, sandbox } = await openSandbox(t)
  sandbox.hostModule('agent', { disable: () => gateway.disable('fixture'), revoke: () => gateway.revoke('fixture') })
  const code = (act) => `import { pid } from "host:mcp-fixture"; import { ${act} } from "host:agent";
    export const handler = () => { const before = pid(); ${act}(); return { before, after: pid() } }`
  const { value } = await sandbox.run(code('disable'))
  assert.equal(typeof value.before.pid, 'number')
  assert.equal(value.after.code, 'ERR_NOT_ENABLED')
  await gateway.enable('fixture')
  assert.equal((await sandbox.run(code('revoke'))).value.after.code, 'ERR_NOT_APPROVED')
})

// ---- names

test('a tool whose name is an identifier keeps it, and every other gets one', async () => {
  const names = await evaluated('Object.keys(fixture)')
  for (const name of ['echo', 'write_note', 'pid']) assert.ok(names.includes(name), name)
  for (const name of ['get-forecast', 'class', 'then', '__proto__', '3d']) assert.ok(!names.includes(name), name)
  assert.deepEqual(await evaluated('fixture.get_forecast({ location: "Austin, TX" })'), { temperature: 93, conditions: 'sunny' })
  const given = { _class: 'class', _then: 'then', ___proto__: '__proto__', _default: 'default', _3d: '3d', gr__e: 'größe' }
  const called = await evaluated(`${JSON.stringify(Object.keys(given))}.map((name) => fixture[name]())`)
  assert.deepEqual(
    called,
    Object.values(given).map((raw) => `called ${raw}`),
  )
})

test('of two tools that would get the same name, the kept one keeps it and the other gets six digits of its digest', async () => {
  assert.deepEqual(await evaluated('[fixture.delete_all(), fixture.delete_all_bd4d1b()]'), ['called delete_all', 'called delete-all'])
  const both = await evaluated('Object.keys(fixture).filter((name) => name.startsWith("a_b")).map((name) => [name, fixture[name]()])')
  assert.deepEqual(both.map(([, answer]) => answer).sort(), ['called a-b', 'called a.b'])
  assert.ok(both.some(([name]) => name === 'a_b') && both.some(([name]) => /^a_b_[0-9a-f]{6}$/.test(name)), JSON.stringify(both))
})

test('call takes raw names and gives a ToolResult, whatever the server answered', async () => {
  const forecast = { temperature: 93, conditions: 'sunny' }
  const result = await evaluated('call("fixture", "get-forecast", { location: "x" })')
  assert.deepEqual(result, { content: [text(JSON.stringify(forecast))], structuredContent: forecast, isError: false })
  const called = await evaluated('["delete-all", "delete_all", "class", "__proto__"].map((name) => call("fixture", name).content[0].text)')
  assert.deepEqual(called, ['called delete-all', 'called delete_all', 'called class', 'called __proto__'])
  for (const box of [sandbox, throwing]) {
    const { value } = await evaluate(box, 'call("fixture", "error", { message: "m" })')
    assert.deepEqual(value, { content: [text('m')], isError: true })
  }
  const { value } = await sandbox.run(
    'import { call } from "host:mcp"; export const handler = (result) => call("mirror", "give", result)',
    {
      input: { content: [], _meta: { trace: 7 }, vendor: 1 },
    },
  )
  assert.deepEqual(value, { content: [], isError: false, meta: { trace: 7 } })
})

test('call throws everything else, with a code', async () => {
  const cases = {
    'call("nobody", "x")': 'ERR_UNKNOWN_SERVER',
    'call("fixture", "get_forecast")': 'ERR_UNKNOWN_TOOL',
    'call("fixture", "protocol_error")': 'ERR_PROTOCOL',
    'call("fixture", "crash")': 'ERR_SERVER_EXITED',
    'call("fixture", "echo", [])': 'ERR_INVALID_ARGUMENTS',
    'call("fixture", "echo", {}, {})': 'ERR_INVALID_ARGUMENTS',
    'call("fixture")': 'ERR_INVALID_ARGUMENTS',
    'call()': 'ERR_INVALID_ARGUMENTS',
    'call({}, "echo")': 'ERR_INVALID_ARGUMENTS',
    'tools("nobody")': 'ERR_UNKNOWN_SERVER',
    'tools(1)': 'ERR_INVALID_ARGUMENTS',
  }
  const list = await evaluated(`[${Object.keys(cases).map(caught)}]`)
  for (const [index, [expression, code]] of Object.entries(cases).entries()) {
    assert.equal(list[index].code, code, `${expression}: ${JSON.stringify(list[index])}`)
    assert.equal(list[index].isError, true)
  }
})

test('tools lists what a run can call', async () => {
  const all = await evaluated('tools()')
  assert.deepEqual([...new Set(all.map((tool) => tool.server))].sort(), ['fixture', 'mirror'])
  const listed = await evaluated('tools("fixture")')
  assert.ok(listed.every((tool) => tool.server === 'fixture'))
  const forecast = listed.find((tool) => tool.name === 'get-forecast')
  assert.equal(forecast.identifier, 'get_forecast')
  assert.equal(forecast.description, 'Forecast for a place')
  assert.deepEqual(forecast.inputSchema.required, ['location'])
  assert.deepEqual(Object.keys(forecast.outputSchema.properties), ['temperature', 'conditions'])
  assert.deepEqual(await evaluated('tools("fixture").every(({ identifier }) => typeof fixture[identifier] === "function")'), true)
})
