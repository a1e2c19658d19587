// Tests of each limit one byte below it, exactly at it and above it, in one-byte and longer characters. Too much fails or is cut, and
// affects nothing else.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import * as support from './support.mjs'
import {
  evaluate,
  failure,
  fixture,
  isAlive,
  logLines,
  ms,
  openApproved,
  openGateway,
  openSandbox,
  waitFor,
  wholeFile,
} from './support.mjs'

const LIMIT = 1000
const MIB = 1024 * 1024
/** More bytes than the guest's buffers can store if the limits are small. */
const FAR = 400_000
const UNITS = ['a', 'é', '€', '😀']
const utf8 = (text) => Buffer.byteLength(text)
/** Text of exactly this many UTF-8 bytes. */
const textOf = (bytes, unit = 'a') => unit.repeat(Math.floor(bytes / utf8(unit))) + 'a'.repeat(bytes % utf8(unit))
/** Returns code for the same text in the guest. The code must stay short. */
const guestText = (bytes, unit) => `(${JSON.stringify(unit)}.repeat(${Math.floor(bytes / utf8(unit))}) + "a".repeat(${bytes % utf8(unit)}))`

/** This gateway has a small limit for the results of tools … */
const inLimits = { maxResponseBytes: LIMIT, maxInputBytes: 4 * LIMIT, maxCodeBytes: 4 * LIMIT }
const servers = { fixture: fixture(), mirror: support.mirror }
const gateway = await openApproved(wholeFile, servers, { limits: inLimits })
const sandbox = await gateway.sandbox()
const throwing = await gateway.sandbox({ toolErrors: 'throw' })
/** … and this one has small limits for arguments, input, value, code and log. */
const sizes = ['maxArgumentBytes', 'maxInputBytes', 'maxValueBytes', 'maxCodeBytes', 'maxLogBytes'].map((name) => [name, LIMIT])
const narrow = await openApproved(wholeFile, { fixture: fixture() }, { limits: Object.fromEntries(sizes) })
const sized = await narrow.sandbox()

const call = (tool, input, box = sandbox) => evaluate(box, `fixture.${tool}(input)`, { input })
const works = async (box) => assert.equal((await box.run('export default (n) => n + 1', { input: 1 })).value, 2)
function names(text, ...words) {
  for (const word of words) assert.ok(text.includes(String(word)), `"${word}" is missing in: ${text.slice(0, 500)}`)
}

// ---- results of tools

test('text up to maxResponseBytes is whole; over it, it is cut on a character, marked, and warned of', async () => {
  for (const char of UNITS) {
    for (const bytes of [LIMIT - 1, LIMIT]) {
      const { value, warnings } = await call('big_text', { bytes, char })
      assert.equal(value, textOf(bytes, char))
      assert.deepEqual(warnings, [])
    }
    for (const bytes of [LIMIT + 1, FAR]) {
      const { value, warnings } = await call('big_text', { bytes, char })
      assert.ok(utf8(value) <= LIMIT && utf8(value) > LIMIT - utf8(char), `${utf8(value)} bytes`)
      const [, kept, mark] = /^(.*?)(\n\[cut.*)$/s.exec(value)
      assert.ok(textOf(bytes, char).startsWith(kept), 'cut within a character')
      names(mark, bytes, 'maxResponseBytes')
      assert.equal(warnings.length, 1)
      names(warnings[0], 'fixture.big_text', bytes, LIMIT, 'maxResponseBytes')
    }
  }
})

test("a server's own error is cut like any text, returned or thrown", async () => {
  const { value, warnings } = await call('error', { message: textOf(LIMIT, 'é') })
  assert.deepEqual([value, warnings], [{ error: textOf(LIMIT, 'é') }, []])
  const over = await call('error', { message: textOf(LIMIT + 1, 'é') })
  assert.ok(over.value.error.includes('[cut') && utf8(over.value.error) <= LIMIT && over.warnings.length === 1, JSON.stringify(over))
  const error = await failure(call('error', { message: textOf(LIMIT + 1) }, throwing), 'ERR_GUEST_THREW')
  names(error.message, '[cut', 'maxResponseBytes')
})

test('JSON text that would be cut stays text', async () => {
  const json = (bytes) => JSON.stringify([textOf(bytes - 4, 'é')])
  assert.deepEqual((await call('json_text', { json: json(LIMIT) })).value, JSON.parse(json(LIMIT)))
  const { value, warnings } = await call('json_text', { json: json(LIMIT + 1) })
  assert.deepEqual([typeof value, warnings.length], ['string', 1])
})

test('structured content, and bytes, over maxResponseBytes are an error that names both sizes', async () => {
  const length = { big_structured: (value) => value.pad.length + 10, image: (value) => value.data.length }
  for (const tool of ['big_structured', 'image', 'audio', 'blob_resource']) {
    for (const bytes of [LIMIT - 1, LIMIT]) assert.equal((length[tool] ?? length.image)((await call(tool, { bytes })).value), bytes)
    for (const bytes of [LIMIT + 1, FAR]) {
      const { value } = await call(tool, { bytes })
      assert.deepEqual(Object.keys(value), ['error', 'code'])
      assert.equal(value.code, 'ERR_RESPONSE_TOO_LARGE')
      names(value.error, `fixture.${tool}`, bytes, LIMIT)
      names((await failure(call(tool, { bytes }, throwing), 'ERR_GUEST_THREW')).message, bytes, LIMIT)
    }
  }
  await works(throwing)
})

test('the blocks of one result share maxResponseBytes', async () => {
  const code = 'import { give } from "host:mcp-mirror"; export default (content) => give({ content })'
  const give = async (...content) => (await sandbox.run(code, { input: content })).value
  const text = (bytes) => ({ type: 'text', text: textOf(bytes) })
  const image = (bytes) => ({ type: 'image', mimeType: 'image/png', data: Buffer.alloc(bytes).toString('base64') })
  assert.equal((await give(text(400), image(600)))[1].data.length, 600)
  assert.equal((await give(text(400), image(601))).code, 'ERR_RESPONSE_TOO_LARGE')
  const cut = await give(text(400), text(700))
  assert.ok(cut[0] === textOf(400) && cut[1].includes('[cut') && utf8(cut[1]) <= 600, JSON.stringify(cut))
})

test('the default of 1 MiB holds, also for text that is longest when it is quoted', async (t) => {
  const { sandbox: box } = await openSandbox(t)
  for (const char of ['\u0001', '😀']) {
    const arrived = `(({ bytes, char }) => fixture.big_text({ bytes, char }) === ${guestText(MIB, char)})(input)`
    const { value, warnings } = await evaluate(box, arrived, { input: { bytes: MIB, char } })
    assert.deepEqual([value, warnings], [true, []])
  }
  assert.equal((await evaluate(box, `fixture.image({ bytes: ${MIB} }).data.length`)).value, MIB)
  const { value, warnings } = await evaluate(box, `fixture.big_text({ bytes: ${MIB + 1} }).length`)
  assert.ok(value <= MIB && warnings.length === 1, `${value} ${warnings}`)
})

test('call throws where its ToolResult is over maxResponseBytes', async () => {
  const attempt = '(() => { try { return call("fixture", "big_text", input).isError } catch (error) { return error.code } })()'
  const run = async (bytes) => (await evaluate(sandbox, attempt, { input: { bytes } })).value
  const frame = JSON.stringify({ content: [{ type: 'text', text: '' }], isError: false }).length
  assert.equal(await run(LIMIT - frame), false)
  assert.equal(await run(LIMIT - frame + 1), 'ERR_RESPONSE_TOO_LARGE')
})

test('a message over 16 MiB on the wire fails its call, and the connection stays', async (t) => {
  const [before, big, after] = (await evaluate(sandbox, `[fixture.pid(), fixture.big_text({ bytes: ${16 * MIB} }), fixture.pid()]`)).value
  assert.equal(big.code, 'ERR_RESPONSE_TOO_LARGE')
  names(big.error, 'fixture.big_text', 16 * MIB)
  assert.deepEqual(after, before)
  for (const bytes of [16 * MIB, 16 * MIB + 1]) {
    const edge = await openApproved(t, { edge: fixture('--oversized-line', String(bytes)) })
    if (bytes === 16 * MIB) assert.equal((await edge.callTool('edge', 'empty')).isError, false)
    else names((await failure(edge.callTool('edge', 'empty'), 'ERR_RESPONSE_TOO_LARGE')).message, 'edge.empty', bytes, 16 * MIB)
  }
})

test('errors of any size reach the guest as errors, and the run goes on', async () => {
  const box = await gateway.sandbox()
  const fails = () => {
    throw new Error(textOf(FAR))
  }
  box.hostModule('agent', { fails, gives: () => textOf(FAR) })
  const run = async (expression) => {
    const code = `import * as fixture from "host:mcp-fixture"; import { fails, gives } from "host:agent"
      const attempt = () => { try { return ${expression}.code } catch (error) { return error.code } }
      export default () => [attempt(), fixture.echo_text({ text: "goes on" })]`
    return (await box.run(code)).value
  }
  assert.deepEqual(await run('gives()'), ['ERR_RESPONSE_TOO_LARGE', 'goes on'])
  assert.deepEqual(await run(`fixture.protocol_error({ message: "x".repeat(${FAR}) })`), ['ERR_PROTOCOL', 'goes on'])
  assert.deepEqual(await run('fails()'), ['ERR_HOST_FUNCTION', 'goes on'])
})

test('an exception with a message of any size is that exception', async () => {
  await failure(sized.run(`export default () => { throw new Error("x".repeat(${FAR})) }`), 'ERR_GUEST_THREW')
  await works(sized)
})

test('a server with many tools harms nothing', async (t) => {
  const extra = Array.from({ length: 1900 }, (_, index) => ['--extra-tool', `tool-${index}-${'x'.repeat(100)}`]).flat()
  const { sandbox: box } = await openSandbox(t, { args: extra, options: { limits: inLimits } })
  const { value } = await box.run(`import { tools } from "host:mcp"; import * as fixture from "host:mcp-fixture"
    const listed = () => { try { return tools().length } catch (error) { return error.code } }
    export default () => [listed(), Object.keys(fixture).length > 1900]`)
  assert.ok([1932, 'ERR_RESPONSE_TOO_LARGE'].includes(value[0]) && value[1], JSON.stringify(value))
})

// ---- arguments, input, value, code, log

test('arguments over maxArgumentBytes are refused with their size', async () => {
  const frame = '{"text":""}'.length
  const echo = async (bytes, unit = 'a') => (await evaluate(sized, `fixture.echo_text({ text: ${guestText(bytes - frame, unit)} })`)).value
  for (const unit of UNITS) {
    for (const bytes of [LIMIT - 1, LIMIT]) assert.equal(await echo(bytes, unit), textOf(bytes - frame, unit))
    for (const bytes of [LIMIT + 1, FAR]) {
      const value = await echo(bytes, unit)
      assert.equal(value.code, 'ERR_ARGUMENTS_TOO_LARGE')
      names(value.error, 'fixture.echo_text', 'maxArgumentBytes', LIMIT)
    }
  }
  names((await echo(LIMIT + 1)).error, LIMIT + 1)
  await narrow.callTool('fixture', 'echo_text', { text: textOf(LIMIT - frame) })
  const error = await failure(narrow.callTool('fixture', 'echo_text', { text: textOf(LIMIT - frame + 1) }), 'ERR_ARGUMENTS_TOO_LARGE')
  names(error.message, 'fixture.echo_text', LIMIT + 1, LIMIT)
})

test('bytes count as the base64 that a server gets, and the limit holds for host modules too', async () => {
  // {"data":"…"} has 11 bytes; 741 bytes are 988 as base64.
  const send = async (bytes) =>
    (await evaluate(sized, `((answer) => answer.code ?? answer.arguments.data.length)(fixture.args({ data: new Uint8Array(${bytes}) }))`))
      .value
  assert.deepEqual([await send(741), await send(742)], [988, 'ERR_ARGUMENTS_TOO_LARGE'])
  const box = await narrow.sandbox()
  let calls = 0
  box.hostModule('agent', { take: (text) => ++calls && text.length })
  const take = (bytes) => box.run(`import { take } from "host:agent"; export default () => take("a".repeat(${bytes}))`)
  assert.equal((await take(LIMIT - 2)).value, LIMIT - 2)
  for (const bytes of [LIMIT - 1, FAR]) names((await failure(take(bytes), 'ERR_GUEST_THREW')).message, 'agent.take', 'maxArgumentBytes')
  assert.equal(calls, 1)
})

test('input over maxInputBytes is refused with its size', async () => {
  const run = (input) => sized.run('export default (input) => input', { input })
  for (const unit of UNITS) {
    for (const bytes of [LIMIT - 3, LIMIT - 2]) assert.equal((await run(textOf(bytes, unit))).value, textOf(bytes, unit))
    const error = await failure(run(textOf(LIMIT - 1, unit)), 'ERR_INPUT_TOO_LARGE')
    names(error.message, LIMIT + 1, LIMIT, 'maxInputBytes')
  }
  for (const input of [textOf(20 * MIB), { data: new Uint8Array(LIMIT + 1) }]) await failure(run(input), 'ERR_INPUT_TOO_LARGE')
  await works(sized)
})

test('a value over maxValueBytes is refused with its size', async () => {
  const run = (bytes, unit) => sized.run(`export default () => ${guestText(bytes, unit)}`)
  for (const unit of UNITS) {
    for (const bytes of [LIMIT - 3, LIMIT - 2]) assert.equal((await run(bytes, unit)).value, textOf(bytes, unit))
    names((await failure(run(LIMIT - 1, unit), 'ERR_VALUE_TOO_LARGE')).message, LIMIT + 1, LIMIT, 'maxValueBytes')
    await failure(run(FAR, unit), 'ERR_VALUE_TOO_LARGE')
  }
  await failure(sized.run(`export default () => [new Uint8Array(${LIMIT + 1})]`), 'ERR_VALUE_TOO_LARGE')
  await works(sized)
})

test('a value over maxValueParts is refused with the limit and a way out', async (t) => {
  const box = await (await openGateway(t)).sandbox()
  const shared = '(() => { let list = []; for (let n = 0; n < 99; n++) list = [list]; return list })()'
  for (const value of [
    `Array(20_000).fill(${shared})`,
    'Array(230).fill(Array(5_000).fill({}))',
    "Array.from({ length: 110_000 }, (_, n) => ({ ['k' + n]: 1 }))",
  ]) {
    const { message } = await failure(box.run(`export default () => ${value}`), 'ERR_VALUE_TOO_LARGE')
    names(message, 400_000, 'maxValueParts', 'JSON.stringify')
  }
  const rows = 'Array.from({ length: 50_000 }, (_, id) => ({ id, name: "user " + id, kind: "a", on: true, mail: id + "@example.com" }))'
  assert.equal((await box.run(`export default () => ${rows}`)).value.length, 50_000)
  const text = await box.run('export default () => JSON.stringify(Array(230).fill(Array(5_000).fill({})))')
  assert.equal(JSON.parse(text.value).length, 230)
  const raised = await (await openGateway(t, {}, { limits: { maxValueParts: 1_000_000 } })).sandbox()
  assert.equal((await raised.run('export default () => Array(180).fill(Array(5_000).fill({}))')).value.length, 180)
})

test('the default of 4 MiB holds for input and value', async (t) => {
  const box = await (await openGateway(t)).sandbox()
  const [echo, frame] = ['export default (input) => input', '{"$bytes":0}'.length]
  const input = Buffer.alloc(4 * MIB - frame, 7)
  assert.ok(input.equals((await box.run(echo, { input })).value))
  await failure(box.run(echo, { input: Buffer.alloc(4 * MIB - frame + 1) }), 'ERR_INPUT_TOO_LARGE')
  await failure(box.run(`export default () => new Uint8Array(${4 * MIB - frame + 1})`), 'ERR_VALUE_TOO_LARGE')
  await failure(box.run(`export default () => new Uint8Array(${5 * MIB})`), 'ERR_VALUE_TOO_LARGE')
})

test('code over maxCodeBytes is refused with its size', async () => {
  const code = (bytes, unit) => 'export default () => 5 //'.concat(textOf(bytes - 25, unit))
  for (const unit of UNITS) {
    for (const bytes of [LIMIT - 1, LIMIT]) assert.equal((await sized.run(code(bytes, unit))).value, 5)
    names((await failure(sized.run(code(LIMIT + 1, unit)), 'ERR_CODE_TOO_LARGE')).message, LIMIT + 1, LIMIT, 'maxCodeBytes')
  }
})

test('the log is whole up to maxLogBytes; over it, it is cut on a character, marked, and ends', async () => {
  for (const unit of UNITS) {
    for (const bytes of [LIMIT - 401, LIMIT - 400, LIMIT - 399, FAR]) {
      const events = []
      const code = `export default () => { console.log("a".repeat(400)); console.info(${guestText(bytes, unit)}); console.log("") }`
      const { logs } = await sized.run(code, { onEvent: ({ level, text }) => events.push({ level, text }) })
      assert.deepEqual(events, logs)
      if (bytes <= LIMIT - 400) assert.deepEqual(logs[1], { level: 'info', text: textOf(bytes, unit) })
      if (bytes <= LIMIT - 400) continue
      assert.equal(logs.length, 2)
      const [, kept, mark] = /^(.*?)(… \[.*\])$/s.exec(logs[1].text)
      // A cut removes the end of the text, because it may contain the beginning of a secret. Here, this is the whole text.
      assert.equal(kept, '')
      names(mark, 'maxLogBytes')
    }
  }
})

test('a log of entries without text ends as well', async () => {
  const { logs } = await sized.run('export default () => { for (let n = 0; n < 3000; n++) console.log("") }')
  assert.ok(logs.length <= LIMIT + 1, `${logs.length} entries`)
})

// ---- servers, connections, times, memory

test('a limit out of its range, or of a wrong type, is refused by name', async (t) => {
  for (const [name, values] of Object.entries({
    guestHeapBytes: [8 * MIB - 1, -1],
    maxResponseBytes: [0, 255, 1.5, '1000', 17 * MIB],
    callTimeoutMs: [0, null],
    maxConnections: [0],
    maxServer: [1],
  })) {
    for (const value of values) {
      const error = await failure(openGateway(t, {}, { limits: { [name]: value } }), 'ERR_INVALID_OPTION')
      names(error.message, 'Gateway.open', name)
    }
  }
})

test('maxServers servers are read, and one more is refused', async (t) => {
  const many = (count) => Object.fromEntries(Array.from({ length: count }, (_, index) => [`s${index}`, fixture()]))
  assert.equal((await openGateway(t, many(20))).servers().length, 20)
  names((await failure(openGateway(t, many(21)), 'ERR_TOO_MANY_SERVERS')).message, 21, 20, 'maxServers')
  await failure(openGateway(t, many(3), { limits: { maxServers: 2 } }), 'ERR_TOO_MANY_SERVERS')
})

test('at maxConnections the idle connection gives way, and where all are busy the call waits, and is refused in the end', async (t) => {
  const log = join(support.folder(t), 'log')
  const own = await openApproved(t, { one: fixture('--log', log), two: fixture() }, { limits: { maxConnections: 1 } })
  const pid = async (name) => (await own.callTool(name, 'pid')).structuredContent.pid
  const one = await pid('one')
  const two = await pid('two')
  await waitFor('the end of the idle server', () => !isAlive(one))
  assert.ok(isAlive(two))
  const stop = new AbortController()
  const hanging = own.callTool('one', 'hang', {}, { signal: stop.signal })
  await waitFor('the call to arrive', () => logLines(log).some((line) => line.name === 'hang'))
  const error = await failure(own.callTool('two', 'pid', {}, { timeoutMs: 300 }), 'ERR_TOO_MANY_CONNECTIONS')
  names(error.message, 'two', 'one', 1, 'maxConnections')
  stop.abort()
  await failure(hanging, 'ERR_ABORTED')
  assert.equal(typeof (await pid('two')), 'number')
})

test('servers that were called in a run keep their sessions, also beyond maxConnections, up to twice as many', async (t) => {
  const all = ['one', 'two', 'three', 'four', 'five']
  const servers = Object.fromEntries(all.map((name) => [name, fixture()]))
  const own = await openApproved(t, servers, { limits: { maxConnections: 2, callTimeoutMs: 2000 } })
  const sandbox = await own.sandbox({ toolErrors: 'throw' })
  const code = (servers) => `
    ${servers.map((name) => `import * as ${name} from "host:mcp-${name}"`).join('\n')}
    export const handler = () => [1, 2, 3].map(() => [${servers.join(', ')}].map((server) => server.count({}).count))`
  const { value } = await sandbox.run(code(all.slice(0, 4)))
  assert.deepEqual(
    value,
    [1, 2, 3].map((count) => [count, count, count, count]),
  )
  const connected = () => own.servers().filter((server) => server.state === 'connected').length
  await waitFor('the end of the extra connections', () => connected() === 2)
  const error = await failure(sandbox.run(code(all)), 'ERR_GUEST_THREW')
  assert.match(error.message, /five.* 4 connections are open \(limits\.maxConnections\), held by four, one, three, two/)
  await waitFor('the end of the extra connections', () => connected() === 2)
  assert.equal((await own.callTool('five', 'count')).structuredContent.count, 1)
  assert.equal(connected(), 2)
})

test('the config sets limits, those of Gateway.open win, and a reload says that changed ones wait', async (t) => {
  const config = (limits) => ({ mcpServers: {}, limits })
  const gateway = await openGateway(t, {}, { config: config({ runTimeoutMs: 150, maxCodeBytes: 300 }), limits: { maxCodeBytes: 400 } })
  const sandbox = await gateway.sandbox()
  names(
    (await failure(sandbox.run('export const handler = () => new Promise(() => setTimeout(() => {}, 60_000))'), 'ERR_RUN_TIMEOUT')).message,
    150,
  )
  names((await failure(sandbox.run(`// ${'x'.repeat(400)}`), 'ERR_CODE_TOO_LARGE')).message, 400)
  const error = await failure(openGateway(t, {}, { config: config({ maxServer: 1, runTimeoutMs: 0 }) }), 'ERR_CONFIG_INVALID')
  names(error.message, 'limits.maxServer', 'this key is unknown', 'limits.runTimeoutMs', 'must be from 1 to 86400000, not 0')
  const path = join(support.folder(t), 'config.json')
  writeFileSync(path, JSON.stringify(config({ maxServers: 1 })))
  const fromFile = await openGateway(t, undefined, { config: undefined, configPath: path })
  writeFileSync(path, JSON.stringify(config({ maxServers: 2 })))
  assert.deepEqual((await fromFile.reload()).warnings, ['limits: these have changed, and apply from the next start'])
})

test('connectTimeoutMs ends a server that never gets ready, from the limits or the config', async (t) => {
  const log = join(support.folder(t), 'log')
  const silent = fixture('--never-answer', '--log', log)
  const slow = { limits: { connectTimeoutMs: 100_000 } }
  for (const own of [
    await openGateway(t, { silent }, { limits: { connectTimeoutMs: 300 } }),
    await openGateway(t, { silent: { ...silent, connectTimeoutMs: 300 } }, slow),
  ]) {
    const error = await failure(own.approve('silent'), 'ERR_CONNECT_TIMEOUT')
    names(error.message, 'silent', 300, 'connectTimeoutMs')
    assert.equal(own.servers()[0].lastError.code, 'ERR_CONNECT_TIMEOUT')
  }
  for (const { pid } of logLines(log)) await waitFor('its end', () => !isAlive(pid))
})

test("callTimeoutMs ends a call, and the server's own timeoutMs and a call's go before it, but never above", async (t) => {
  const limits = { callTimeoutMs: 300 }
  const own = await openApproved(t, { plain: fixture(), timed: { ...fixture(), timeoutMs: 200 } }, { limits })
  for (const [server, timeoutMs, effective] of [
    ['plain', undefined, 300],
    ['plain', 150, 150],
    ['plain', 100_000, 300],
    ['timed', undefined, 200],
    ['timed', 100_000, 200],
  ]) {
    const error = await failure(own.callTool(server, 'hang', {}, { timeoutMs }), 'ERR_CALL_TIMEOUT')
    names(error.message, `${server}.hang`, `${effective} ms`, 'callTimeoutMs')
  }
  const { value } = await (await own.sandbox()).run('import { hang } from "host:mcp-timed"; export default () => hang()')
  assert.equal(value.code, 'ERR_CALL_TIMEOUT')
})

test('runTimeoutMs ends a run, its loops and its calls; timeoutMs goes before it, but never above', async (t) => {
  const { sandbox: box } = await openSandbox(t, { options: { limits: { runTimeoutMs: ms(500) } } })
  for (const [expression, timeoutMs, effective] of [
    ['(() => { for (;;); })()', undefined, ms(500)],
    ['(() => { for (;;); })()', 100, 100],
    ['fixture.hang()', 100_000, ms(500)],
    ['fixture.hang()', 100, 100],
  ]) {
    const error = await failure(evaluate(box, expression, { timeoutMs }), 'ERR_RUN_TIMEOUT')
    names(error.message, `${effective} ms`)
    await works(box)
  }
})

test('computeTimeoutMs ends code that works for too long, and no run that waits for calls and timers', async (t) => {
  const { sandbox: box } = await openSandbox(t, { options: { limits: { computeTimeoutMs: ms(300) } } })
  const loop = '(() => { for (;;); })()'
  for (const expression of [
    loop,
    `(setInterval(() => {}, 1), ${loop})`,
    `(fixture.echo({ message: 'x' }), ${loop})`,
    `[fixture.hang.async(), ${loop}]`,
  ]) {
    const error = await failure(evaluate(box, expression), 'ERR_RUN_TIMEOUT')
    names(error.message, `${ms(300)} ms`, 'limits.computeTimeoutMs')
    assert.doesNotMatch(error.message, /runTimeoutMs/)
    await works(box)
  }
  const many = '(() => { for (;;) fixture.echo({ message: "x".repeat(100_000) }) })()'
  names((await failure(evaluate(box, many), 'ERR_RUN_TIMEOUT')).message, 'limits.computeTimeoutMs')
  const code = `import { slow } from 'host:slow'
    import { sleep } from 'host:mcp'
    export async function handler() { await sleep(${ms(700)}); slow(); await slow.async(); return 'waited' }`
  box.hostModule('slow', { slow: () => new Promise((resolve) => setTimeout(resolve, ms(700))) })
  const { value, stats } = await box.run(code)
  assert.equal(value, 'waited')
  assert.ok(stats.durationMs > ms(2000), `${stats.durationMs} ms`)
})

test('code that maps, filters, joins and sorts 60,000 rows of five fields stays within the default computeTimeoutMs', async (t) => {
  // 5,000 is the default, and ms() raises it only in the emulated machine.
  const box = await (await openGateway(t, {}, { limits: { computeTimeoutMs: ms(5000) } })).sandbox()
  const work = `export default () => {
    let rows = Array.from({ length: 60_000 }, (_, id) => ({ id, name: 'user ' + ((id * 7919) % 60_000), kind: 'a', on: true, n: id * 2 }))
    rows = rows.map((row) => ({ ...row, n: row.n + 1 }))
    const byName = new Map(rows.map((row) => [row.name, row]))
    rows = rows.filter((row) => byName.get(row.name).id % 2)
    rows.sort((a, b) => (a.name < b.name ? -1 : 1))
    return [rows.length, rows[0].name, byName.size]
  }`
  assert.deepEqual((await box.run(work)).value, [30_000, 'user 1', 60_000])
})

test('memory that small objects used is free for large ones, and the other way round', async (t) => {
  const box = await (await openGateway(t, {}, { limits: { guestHeapBytes: 16 * MIB } })).sandbox()
  const work = `export default () => {
    let small = 0
    let large = 0
    for (let round = 0; round < 3; round++) {
      small += Array.from({ length: 50_000 }, (_, id) => ({ id })).length
      large += new Uint8Array(${7 * MIB}).length
    }
    return [small, large]
  }`
  assert.deepEqual((await box.run(work)).value, [150_000, 3 * 7 * MIB])
})

test('code that needs more than guestHeapBytes fails, and the sandbox stays usable', async (t) => {
  const box = await (await openGateway(t, {}, { limits: { guestHeapBytes: 8 * MIB } })).sandbox()
  const hungry = 'export default () => { const all = []; for (;;) all.push("x".repeat(100_000 + all.length)) }'
  for (const code of [hungry, `export default () => new Uint8Array(${64 * MIB}).length`]) {
    names((await failure(box.run(code), 'ERR_GUEST_MEMORY')).message, 'guestHeapBytes', 8 * MIB)
    await works(box)
  }
})
