// Tests of wrong input: each mistake gives an Error with a stable code that says what is wrong and where. Nothing is lost, and the sandbox
// stays usable.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { Gateway } from '../index.mjs'
import { failure, fixture, folder, guest, logLines, openApproved, openGateway, wholeFile } from './support.mjs'

const log = join(folder(wholeFile), 'log')
const gateway = await openApproved(wholeFile, { fixture: fixture('--log', log) })
const sandbox = await gateway.sandbox()
const cycle = {}
cycle.self = cycle
const ok = 'export const handler = (input) => input'

/** Returns the error of a run that fails. Checks that the sandbox still works afterwards. */
async function failedRun(code, expected, options) {
  const error = await failure(sandbox.run(code, options), expected)
  assert.deepEqual((await sandbox.run(ok, { input: [1] })).value, [1])
  return error
}
function names(error, ...words) {
  for (const word of words) assert.ok(error.message.includes(word), `"${word}" is missing in: ${error.message}`)
}

// ---- options

test('a revoked Proxy as options is an error of the package that names the method', async () => {
  const revoked = () => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    return proxy
  }
  names(await failure(Gateway.open(revoked()), 'ERR_INVALID_OPTION'), 'Gateway.open', 'revoked')
  names(await failure(gateway.sandbox(revoked()), 'ERR_INVALID_OPTION'), 'revoked')
  names(await failure(sandbox.run(ok, revoked()), 'ERR_INVALID_OPTION'), 'run', 'revoked')
})

// ---- servers

test('a variable that is not set is named when the server would start', async (t) => {
  const own = await openGateway(t, { a: { ...fixture(), env: { TOKEN: `\${HYPERLIGHT_MCP_NEVER_SET}` } } })
  names(await failure(own.approve('a'), 'ERR_CONFIG_INVALID'), 'a.env.TOKEN', 'HYPERLIGHT_MCP_NEVER_SET')
})

test('a command that does not exist, ends at once or speaks no protocol is an error that names it', async (t) => {
  const own = await openGateway(t, {
    gone: { command: '/no/such/program' },
    ends: fixture('--exit-at-start', '5', '--stderr', 'the reason why'),
    folder: { ...fixture(), cwd: '/no/such/folder' },
  })
  names(await failure(own.approve('gone'), 'ERR_SPAWN_FAILED'), '"gone"', '…/such/program')
  names(await failure(own.approve('ends'), 'ERR_SERVER_EXITED'), '"ends"', '5', 'the reason why')
  names(await failure(own.approve('folder'), 'ERR_SPAWN_FAILED'), '"folder"')
})

// ---- options

test('unknown and wrong options of open are errors that name method and key', async (t) => {
  const wrong = [
    { confgPath: 'x' },
    { configPath: 5 },
    { configPath: '/x', config: {} },
    { config: 'text' },
    { config: [] },
    { stateDir: 1 },
    { workspaceFolder: {} },
    { enable: 'all' },
    { enable: [1] },
    { limits: 5 },
    { limits: { maxServers: -1 } },
    { limits: { maxServer: 1 } },
    { guest: 'ring0' },
    { guest: () => 'auto' },
    { onAproval: () => 'once' },
    { onEvent: 'x' },
    { onApproval: {} },
    { signal: new AbortController().signal },
    { input: 1 },
    { timeoutMs: 5 },
  ]
  const stateDir = join(folder(t), 'state')
  for (const options of wrong) {
    const error = await failure(Gateway.open({ stateDir, ...options }), 'ERR_INVALID_OPTION')
    names(error, 'Gateway.open', ...Object.keys(options.limits ?? options).slice(0, 1))
  }
  for (const options of [5, 'x', [], true, () => {}]) names(await failure(Gateway.open(options), 'ERR_INVALID_OPTION'), 'Gateway.open')
  await failure(Gateway.open({ config: cycle, stateDir }), 'ERR_INVALID_OPTION')
  await failure(Gateway.open({ config: { n: 1n }, stateDir }), 'ERR_INVALID_OPTION')
})

test('unknown and wrong options of sandbox, run and callTool are errors that name method and key', async () => {
  const methods = {
    'Gateway.sandbox': [
      (options) => gateway.sandbox(options),
      { toolErrors: 'raise' },
      { signal: new AbortController().signal },
      { timeoutMs: 1 },
    ],
    'Sandbox.run': [(options) => sandbox.run(ok, options), { toolErrors: 1 }, { signal: {} }, { inputs: 1 }, { timeoutMs: 'x' }],
    'Gateway.callTool': [
      (options) => gateway.callTool('fixture', 'empty', {}, options),
      { toolErrors: 'throw' },
      { signal: 1 },
      { input: 1 },
    ],
  }
  for (const [method, [call, ...wrong]] of Object.entries(methods)) {
    for (const options of [...wrong, { onEvnt: () => {} }, { onEvent: 5 }, { confgPath: 'x' }]) {
      names(await failure(call(options), 'ERR_INVALID_OPTION'), method, Object.keys(options)[0])
    }
    for (const options of [5, 'x', [], true]) names(await failure(call(options), 'ERR_INVALID_OPTION'), method)
    await call(undefined)
    await call({})
  }
  for (const code of [undefined, null, 5, Buffer.from(ok), () => 1])
    names(await failure(sandbox.run(code), 'ERR_INVALID_OPTION'), 'Sandbox.run', 'code')
})

test('a time that is none is an error, and never means the default', async () => {
  for (const timeoutMs of [-1, 0, 1.5, '5', true, Number.NaN, Number.POSITIVE_INFINITY, null]) {
    names(await failure(sandbox.run(ok, { timeoutMs }), 'ERR_INVALID_OPTION'), 'Sandbox.run', 'timeoutMs')
    names(await failure(gateway.callTool('fixture', 'empty', {}, { timeoutMs }), 'ERR_INVALID_OPTION'), 'Gateway.callTool', 'timeoutMs')
  }
})

test('names of wrong types, and of servers that there are not, are errors', async () => {
  for (const method of ['approvalRequest', 'approve', 'revoke', 'enable', 'disable', 'test']) {
    for (const name of [undefined, null, 5, {}, ['fixture']])
      names(await failure(gateway[method](name), 'ERR_INVALID_OPTION'), `Gateway.${method}`)
    for (const name of ['nobody', '', 'Fixture', '__proto__'])
      names(await failure(gateway[method](name), 'ERR_UNKNOWN_SERVER'), `"${name}"`, 'fixture')
  }
  names(await failure(gateway.approve('fixture', 5), 'ERR_INVALID_OPTION'), 'Gateway.approve')
  for (const digest of ['', 'x', '0'.repeat(64)]) names(await failure(gateway.approve('fixture', digest), 'ERR_DIGEST_CHANGED'), 'fixture')
  await failure(openGateway(wholeFile, {}, { enable: ['nobody'] }), 'ERR_UNKNOWN_SERVER')
  assert.equal(gateway.servers()[0].state, 'connected')
})

test('wrong arguments of callTool are refused before anything is sent', async () => {
  const sent = () => logLines(log).filter((line) => line.method === 'tools/call').length
  await gateway.callTool('fixture', 'args')
  const before = sent()
  for (const args of [5, 'x', [], true, () => {}, Symbol('x'), new Uint8Array(3)])
    names(await failure(gateway.callTool('fixture', 'args', args), 'ERR_INVALID_ARGUMENTS'), 'fixture.args')
  for (const args of [cycle, { n: 1n }])
    names(await failure(gateway.callTool('fixture', 'args', args), 'ERR_INVALID_ARGUMENTS'), 'fixture.args')
  for (const server of [undefined, 5, {}]) names(await failure(gateway.callTool(server, 'args'), 'ERR_INVALID_OPTION'), 'Gateway.callTool')
  for (const tool of [undefined, 5, {}]) names(await failure(gateway.callTool('fixture', tool), 'ERR_INVALID_OPTION'), 'Gateway.callTool')
  for (const args of [undefined, {}]) names(await failure(gateway.callTool('fixtures', args), 'ERR_UNKNOWN_TOOL'), '"fixtures"')
  names(await failure(gateway.callTool('nobody', 'args'), 'ERR_UNKNOWN_SERVER'), 'nobody', 'fixture')
  names(await failure(gateway.callTool('fixture', 'nothing'), 'ERR_UNKNOWN_TOOL'), 'fixture', 'nothing', 'echo')
  names(await failure(gateway.callTool('fixture', 'arg'), 'ERR_UNKNOWN_TOOL'), 'did you mean "args"')
  assert.equal(sent(), before)
})

test('text with half a character, and data as deep as can be, reach a tool or are refused as arguments', async () => {
  const odd = { lone: '\ud800', nested: { a: '\udc00x' } }
  const mended = { lone: '\ufffd', nested: { a: '\ufffdx' } }
  assert.deepEqual((await gateway.callTool('fixture', 'args', odd)).structuredContent.arguments, mended)
  const code = 'import { args } from "host:mcp-fixture"; export const handler = () => args({ lone: "\\ud800", nested: { a: "\\udc00x" } })'
  assert.deepEqual((await sandbox.run(code)).value.arguments, mended)
  let deep = 0
  for (let level = 0; level < 500; level++) deep = [deep]
  const error = await failure(gateway.callTool('fixture', 'args', { deep }), 'ERR_INVALID_ARGUMENTS')
  names(error, 'fixture.args')
  const guest = `import { args } from "host:mcp-fixture"; export const handler = (deep) => {
    try { return args({ deep }) } catch (error) { return { code: error.code, error: error.message } } }`
  const { value } = await sandbox.run(guest, { input: deep })
  assert.ok(
    ['ERR_INVALID_ARGUMENTS', 'ERR_INVALID_VALUE'].includes(value.code) && value.error.includes('fixture.args'),
    JSON.stringify(value),
  )
})

test('wrong host modules are errors that say what is wrong', async () => {
  const f = () => 1
  for (const name of [undefined, 5, {}, '', 'a b', '../x', '1st', 'host:x', 'a.b', 'ä', 'x'.repeat(65)])
    names(await failure(() => sandbox.hostModule(name, { f }), 'ERR_INVALID_OPTION'), 'Sandbox.hostModule')
  for (const functions of [undefined, null, 5, f, {}, [], { f, g: 5 }, { 'a-b': f }, { class: f }, { default: f }, { '': f }])
    names(await failure(() => sandbox.hostModule('agent', functions), 'ERR_INVALID_OPTION'), 'Sandbox.hostModule')
  sandbox.hostModule('agent', { f })
  assert.equal((await sandbox.run('import { f } from "host:agent"; export const handler = () => f()')).value, 1)
})

// ---- code

test('code that does not parse is an error with line and column', async () => {
  for (const [code, line, column] of [
    ['export const handler = () => {\n  return 1 +;\n}', 2, 13],
    ['let a = 1 +;', 1, 12],
    ['export const handler = () => 1\n}', 2, 1],
    ['let a = 1;\nlet a = 2;', 2],
    ['\n\nfunction handler( { return 1 }', 3],
    ['const x = "unterminated', 1],
  ]) {
    const error = await failedRun(code, 'ERR_CODE_SYNTAX')
    names(error, `(line ${error.line}, column ${error.column})`)
    assert.equal(error.line, line, `${JSON.stringify(code)}: ${error.message}`)
    assert.ok(error.column >= 1 && error.column <= code.split('\n')[line - 1].length + 1, `${JSON.stringify(code)}: ${error.message}`)
    if (column !== undefined) assert.equal(error.column, column, `${JSON.stringify(code)}: ${error.message}`)
  }
})

test('an import that is not there is an error that names it', async () => {
  for (const specifier of ['host:nothing', 'node:fs', 'fs', './x.js', '/etc/passwd', 'https://example.com/x.js', 'host:mcp-nobody', ''])
    names(await failedRun(`import x from ${JSON.stringify(specifier)};\n${ok}`, 'ERR_CODE_SYNTAX'), specifier)
  names(await failedRun(`import { nothing } from "host:mcp-fixture"; ${ok}`, 'ERR_CODE_SYNTAX'), 'nothing')
})

test('code without a handler is an error that says what to write', async () => {
  for (const code of [
    '',
    '   \n',
    '1 + 1',
    'export const handler = 5',
    'const handler = null',
    'export default {}',
    'function other() {}',
    '// nothing',
  ])
    names(await failedRun(code, 'ERR_NO_HANDLER'), 'handler')
})

test('whatever a handler throws rejects with its words, its log and its place', async () => {
  const error = await failedRun(
    'export function handler() {\n  console.warn("before")\n  throw new RangeError("too far")\n}',
    'ERR_GUEST_THREW',
  )
  names(error, 'RangeError', 'too far', 'line 3')
  assert.deepEqual(error.guest.name, 'RangeError')
  assert.deepEqual(error.logs, [{ level: 'warn', text: 'before' }])
  assert.equal(typeof error.stats.durationMs, 'number')
  for (const [thrown, word] of [
    ['"just text"', 'just text'],
    ['null', 'null'],
    ['undefined', 'undefined'],
    ['{ reason: "no city" }', 'no city'],
    ['42', '42'],
    ['Symbol("mark")', 'mark'],
    ['(() => { const cycle = {}; cycle.self = cycle; return cycle })()', ''],
    ['Object.create(null)', ''],
  ]) {
    for (const handler of ['export const handler = () =>', 'export const handler = async () =>'])
      names(await failedRun(`${handler} { throw ${thrown} }`, 'ERR_GUEST_THREW'), word)
  }
  names(await failedRun('throw new TypeError("at the top")', 'ERR_GUEST_THREW'), 'TypeError', 'at the top')
  names(await failedRun('undefined_name; export const handler = () => 1', 'ERR_GUEST_THREW'), 'undefined_name')
})

test('what throws while it is being described is an exception all the same', async () => {
  for (const thrown of [
    'new Proxy({}, { get() { throw 1 }, ownKeys() { throw 2 } })',
    '{ get reason() { throw new Error("trap") } }',
    'Object.defineProperty(new Error("x"), "message", { get() { throw new Error("trap") } })',
    'Object.assign(new Error("x"), { stack: Object.create(null) })',
  ]) {
    await failedRun(`export const handler = () => { throw ${thrown} }`, 'ERR_GUEST_THREW')
  }
  const value = '{ toJSON() { throw new Proxy({}, { ownKeys() { throw null } }) } }'
  await failedRun(`export const handler = () => (${value})`, 'ERR_INVALID_VALUE')
})

test('recursion without an end is an error', async () => {
  const recursion = sandbox.run('export const handler = () => { const f = () => f() + 1; return f() }')
  const error = await recursion.catch((error) => error)
  await failure(recursion, error.code === 'ERR_GUEST_MEMORY' ? error.code : 'ERR_GUEST_THREW')
  assert.equal((await sandbox.run(ok, { input: 1 })).value, 1)
})

test('a value that cannot leave the sandbox is an error that says why', async () => {
  for (const [value, word] of [
    ['() => 1', 'function'],
    ['Symbol("x")', 'symbol'],
    ['1n', 'BigInt'],
    ['{ deep: [1n] }', 'BigInt'],
    ['(() => { const cycle = {}; cycle.self = [cycle]; return cycle })()', 'circular'],
    ['{ toJSON() { throw new Error("my own trap") } }', 'my own trap'],
    ['{ get x() { throw new Error("my own trap") } }', 'my own trap'],
    ['{ toJSON() {} }', 'toJSON'],
    ['(() => { Object.prototype.toJSON = () => undefined; return { a: 1 } })()', 'toJSON'],
  ]) {
    const error = await failedRun(`export const handler = () => (${value})`, 'ERR_INVALID_VALUE')
    assert.ok(error.message.toLowerCase().includes(word.toLowerCase()), error.message)
  }
  const { value } = await sandbox.run(
    'export const handler = () => ({ f() {}, u: undefined, n: NaN, d: new Date(0), m: new Map(), list: [() => 1] })',
  )
  assert.deepEqual(value, { n: null, d: '1970-01-01T00:00:00.000Z', m: {}, list: [null] })
  assert.equal((await sandbox.run('export const handler = () => {}')).value, null)
})

test('what agent code puts on Object.prototype is no part of the outcome', async () => {
  for (const toJSON of ['() => undefined', '() => ({ value: 1 })', '() => { throw new Error("trap") }']) {
    const thrown = await failedRun(
      `Object.prototype.toJSON = ${toJSON}; export const handler = () => { throw new Error("my own") }`,
      'ERR_GUEST_THREW',
    )
    assert.match(thrown.message, /my own/)
    await failedRun(`Object.prototype.toJSON = ${toJSON}`, 'ERR_NO_HANDLER')
  }
  const forged = 'Object.prototype.failure = { kind: "throw", name: "x", message: "forged", stack: "" }'
  assert.equal((await sandbox.run(`${forged}; export const handler = () => 1`)).value, 1)
  const replaced = 'Object.prototype.toJSON = () => ({ b: 2, toJSON: undefined })'
  assert.deepEqual((await sandbox.run(`${replaced}; export const handler = () => ({ a: 1 })`)).value, { b: 2 })
})

test('a promise that never settles is an error at once, not at the deadline', async () => {
  for (const code of [
    'export const handler = () => new Promise(() => {})',
    'export async function handler() { await new Promise(() => {}) }',
    'export const handler = () => ({ then() {} })',
    `await new Promise(() => {}); ${ok}`,
  ]) {
    await failedRun(code, 'ERR_NEVER_SETTLES')
  }
})

test('input that cannot enter the sandbox is an error, and no run starts', async () => {
  for (const input of [cycle, { deep: [cycle] }, () => 1, Symbol('x'), 1n, { deep: 1n }]) {
    const error = await failedRun('console.log("started"); export const handler = () => 1', 'ERR_INVALID_VALUE', { input })
    names(error, 'input')
  }
  const { value } = await sandbox.run(ok, { input: { text: 'lone \ud800 surrogate', f() {}, d: new Date(0), n: Number.NaN } })
  assert.deepEqual(value, { text: 'lone \ufffd surrogate', d: '1970-01-01T00:00:00.000Z', n: null })
})

test('what is closed says so', async () => {
  const own = await Gateway.open({ config: {}, stateDir: join(folder(wholeFile), 'state'), guest })
  const box = await own.sandbox()
  const other = await own.sandbox()
  await other.close()
  await other.close()
  names(await failure(other.run(ok), 'ERR_CLOSED'), 'sandbox')
  assert.equal((await box.run(ok, { input: 7 })).value, 7)
  await own.close()
  await own.close()
  for (const attempt of [
    () => own.sandbox(),
    () => own.enable('x'),
    () => own.callTool('x', 'y'),
    () => own.approvalRequest('x'),
    () => box.run(ok),
  ])
    await failure(attempt, 'ERR_CLOSED')
})
