// Tests of the tools that a model gets: their descriptions, arguments and results, and the actions that a model can never take.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { encode } from 'gpt-tokenizer/encoding/o200k_base'
import { assertStrict } from './fixtures/providers.mjs'
import { answering, arrived, failure, fixture, folder, gated, ms, openApproved, openGateway, waitFor, wholeFile } from './support.mjs'

const FORECAST = 'import { get_forecast } from "host:mcp-fixture"; export const handler = ({ location }) => get_forecast({ location })'
const SUNNY = { temperature: 93, conditions: 'sunny' }

/** Returns the tools of a gateway, by name. */
const toolsOf = (gateway, options) => Object.fromEntries(gateway.agentTools(options).map((tool) => [tool.name, tool]))

/** Returns the number of tokens that an answer costs a model. */
const tokens = (answer) => encode(JSON.stringify(answer)).length

/** For each tool, arguments that lead to a long answer. */
const LONG = {
  run_javascript: { code: `export function handler() { throw new Error("${'x y '.repeat(500)}") }` },
  search_mcp_tools: { query: 'text number tool call name', limit: 50 },
  describe_mcp_tools: { names: ['fixture', 'host:mcp'] },
  list_mcp_servers: {},
  mcp_server_info: { server: 'fixture' },
  manage_mcp: { action: 'info', server: 'fixture' },
}

const gateway = await openApproved(wholeFile, { fixture: fixture() })
const tools = toolsOf(gateway)

describe('definitions', () => {
  test('have a name, a description with an example, and a strict schema', () => {
    const names = ['run_javascript', 'search_mcp_tools', 'describe_mcp_tools', 'list_mcp_servers', 'mcp_server_info', 'manage_mcp']
    assert.deepEqual(Object.keys(tools), names)
    for (const { name, description, inputSchema } of Object.values(tools)) {
      assertStrict(inputSchema)
      assert.match(description, /Example: \{/, name)
      assert.ok(description.length < 1500, name)
    }
  })

  test('say that a failed call throws, in every text for the model, unless it is to be returned', async () => {
    const texts = async ({ run_javascript, describe_mcp_tools, search_mcp_tools }) =>
      JSON.stringify([
        run_javascript.description,
        await describe_mcp_tools.execute({ names: ['fixture.error'] }),
        await search_mcp_tools.execute({ query: 'error message', limit: 10, servers: null }),
      ])
    const sandbox = await gateway.sandbox({ toolErrors: 'return' })
    for (const options of [{}, { sandbox }, { describeServers: 500 }, { sandbox, describeServers: 500 }]) {
      const said = await texts(toolsOf(gateway, options))
      assert.match(said, /A call that fails throws an Error/)
      assert.doesNotMatch(said, /ToolError|returns \{ error/)
      const returning = await texts(toolsOf(gateway, { ...options, toolErrors: 'return' }))
      assert.match(returning, /A call that fails returns \{ error \}.*ToolError/s)
      assert.doesNotMatch(returning, /fails throws/)
    }
    assert.match(await gateway.systemMessage(), /throws an Error/)
    assert.match(await gateway.systemMessage({ toolErrors: 'return' }), /returns \{ error/)
    assert.match(await sandbox.systemMessage(), /returns \{ error/)
  })

  test('can tell of the servers, within a budget', () => {
    const described = toolsOf(gateway, { describeServers: 300 }).run_javascript.description
    assert.match(described, /host:mcp-fixture/)
    assert.doesNotMatch(tools.run_javascript.description, /host:mcp-fixture/)
  })

  test('are chosen by name', async () => {
    assert.deepEqual(Object.keys(toolsOf(gateway, { include: ['manage_mcp', 'run_javascript'] })), ['run_javascript', 'manage_mcp'])
    const error = await failure(() => gateway.agentTools({ include: ['run_javscript'] }), 'ERR_INVALID_OPTION')
    assert.match(error.message, /did you mean "run_javascript"/)
  })

  test('are refused with options that are wrong', async (t) => {
    const other = await openGateway(t)
    const wrong = [
      [{ maxResultToken: 5 }, /maxResultToken/],
      [{ maxResultTokens: 99 }, /at least 100/],
      [{ maxResultTokens: 1.5 }, /whole number/],
      [{ maxPendingRuns: 0 }, /from 1 to 1000/],
      [{ toolErrors: 'raise' }, /toolErrors/],
      [{ sandbox: {} }, /must be a Sandbox/],
      [{ sandbox: await other.sandbox() }, /belongs to another gateway or agent/],
      [{ onEvent: () => {} }, /onEvent/],
      [5, /must be an object/],
    ]
    for (const [options, message] of wrong)
      assert.match((await failure(() => gateway.agentTools(options), 'ERR_INVALID_OPTION')).message, message)
  })
})

describe('run_javascript', () => {
  const run = (code, more) => tools.run_javascript.execute({ code, input: null, timeoutMs: null, ...more })

  test('gives the value of code that calls tools', async () => {
    assert.deepEqual(await run(FORECAST, { input: '{"location":"Oslo"}' }), { value: SUNNY })
  })

  test('takes TypeScript, values in the place of JSON text, and the arguments as one JSON text', async () => {
    const code = 'export const handler = ({ n }: { n: number }): number => n * 2'
    assert.deepEqual(await run(code, { input: { n: 4 } }), { value: 8 })
    assert.deepEqual(await tools.run_javascript.execute(JSON.stringify({ code, input: '{"n":5}' })), { value: 10 })
  })

  test('takes code within a fence, and says of an import of another file to bundle first', async () => {
    for (const code of [
      '```js title="a b.js"\nexport const handler = () => 1\n```',
      '~~~ts\nexport const handler = (): number => 1\n~~~\n',
    ])
      assert.deepEqual(await tools.run_javascript.execute({ code }), { value: 1 })
    const { error } = await tools.run_javascript.execute({ code: 'import { a } from "./lib.js"; export const handler = () => a' })
    assert.match(JSON.stringify(error), /\.\/lib\.js.*bundle it first/)
  })

  test('ends with the error of a call that fails, which no code can take for data', async () => {
    const failing = 'import { error } from "host:mcp-fixture"; export const handler = () => "found " + error({ message: "no such city" })'
    const { error, value } = await run(failing)
    assert.equal(value, undefined)
    assert.equal(error.code, 'ERR_GUEST_THREW')
    assert.match(error.message, /no such city/)
    const caught = `import { error } from "host:mcp-fixture"
      export function handler() { try { return error({ message: "no such city" }) } catch ({ message }) { return { message } } }`
    assert.deepEqual(await run(caught), { value: { message: 'no such city' } })
    const sandbox = await gateway.sandbox({ toolErrors: 'return' })
    assert.equal((await toolsOf(gateway, { sandbox }).run_javascript.execute({ code: failing })).error.code, 'ERR_GUEST_THREW')
    const returning = toolsOf(gateway, { toolErrors: 'return' }).run_javascript
    assert.deepEqual(await returning.execute({ code: failing }), { value: 'found [object Object]' })
  })

  test('gives what was printed', async () => {
    const { value, logs } = await run('export function handler() { console.log("one"); console.warn("two"); return null }')
    assert.equal(value, null)
    assert.match(JSON.stringify(logs), /one.*two/)
  })

  test('looks at code first: what is obviously wrong costs no micro-VM', async (t) => {
    const events = []
    const opened = await openApproved(t, { fixture: fixture() }, { onEvent: (event) => events.push(event), guest: 'standard' })
    const { error } = await toolsOf(opened).run_javascript.execute({
      code: 'import { get_forcast } from "host:mcp-fixture"\nexport const handler = () => get_forcast({})',
    })
    assert.equal(error.code, 'ERR_CODE_SYNTAX')
    assert.match(error.message, /did you mean get_forecast/)
    assert.equal(error.line, 1)
    assert.match(error.excerpt, /1 \| import \{ get_forcast \}.*\n.*\^/)
    assert.match(error.hint, /nothing was run/)
    assert.equal((await run('const x = 1')).error.code, 'ERR_NO_HANDLER')
  })

  test('says where code threw', async () => {
    const { error, logs } = await run('export function handler() {\n  console.log("before");\n  throw new Error("no");\n}')
    assert.equal(error.code, 'ERR_GUEST_THREW')
    assert.equal(error.line, 3)
    assert.match(JSON.stringify(logs), /before/)
  })

  test('asks the person that the gateway asks, and says what a model can do about a no', async (t) => {
    const asked = []
    const onApproval = (question) => asked.push(question) && 'deny'
    const opened = await openApproved(t, { fixture: gated() }, { onApproval })
    const code = 'import { write_note } from "host:mcp-fixture"; export const handler = () => write_note({ text: "x" })'
    const { error } = await toolsOf(opened).run_javascript.execute({ code })
    assert.match(error.message, /write_note was not called/)
    assert.equal(asked.length, 1)
    assert.equal(typeof asked[0].runId, 'number')
  })

  test('ends at its time-out, which is no longer than the limit', async (t) => {
    const opened = await openGateway(t, {}, { limits: { runTimeoutMs: 300 } })
    const { error } = await toolsOf(opened).run_javascript.execute({ code: 'export const handler = () => { for (;;); }', timeoutMs: 1e9 })
    assert.equal(error.code, 'ERR_RUN_TIMEOUT')
    assert.match(error.hint, /do less/)
  })

  test('keeps the answer within its budget, and the whole of it for a later run', async () => {
    const small = toolsOf(gateway, { maxResultTokens: 300 })
    const code =
      'export function handler() { console.log("y ".repeat(5000)); return Array.from({ length: 5000 }, (_, index) => ({ index })) }'
    const answer = await small.run_javascript.execute({ code })
    assert.ok(tokens(answer) <= 300, JSON.stringify(answer))
    const [, id] = /saved\("([^"]+)"\)/.exec(answer.value.at(-1))
    const later = 'import { saved } from "host:mcp"; export const handler = (id) => saved(id).length'
    assert.deepEqual(await small.run_javascript.execute({ code: later, input: JSON.stringify(id) }), { value: 5000 })
  })

  test('and so does every other tool', async () => {
    for (const tool of gateway.agentTools({ maxResultTokens: 100 })) {
      const answer = await tool.execute(LONG[tool.name])
      assert.ok(tokens(answer) <= 100, `${tool.name}: ${tokens(answer)} of ${JSON.stringify(answer)}`)
    }
  })
})

describe('finding tools', () => {
  test('search_mcp_tools gives modules, functions and signatures', async () => {
    const { tools: found } = await tools.search_mcp_tools.execute({ query: 'weather forecast', limit: 1, servers: null })
    assert.equal(found.length, 1)
    assert.equal(found[0].module, 'host:mcp-fixture')
    assert.equal(found[0].function, 'get_forecast')
    assert.match(found[0].signature, /^get_forecast\(/)
    assert.equal((await tools.search_mcp_tools.execute({ query: '!!' })).error.code, 'ERR_INVALID_OPTION')
    assert.match((await tools.search_mcp_tools.execute({ query: 'x', servers: ['fixtur'] })).error.message, /did you mean "fixture"/)
  })

  test('describe_mcp_tools gives declarations of servers and of single tools', async () => {
    const { declarations } = await tools.describe_mcp_tools.execute({ names: ['fixture.get_forecast'] })
    assert.match(declarations, /declare module "host:mcp-fixture"/)
    assert.doesNotMatch(declarations, /\becho\b/)
    assert.match((await tools.describe_mcp_tools.execute({ names: 'fixture' })).declarations, /\becho\b/)
    const { error } = await tools.describe_mcp_tools.execute({ names: ['fixture.get_forcast'] })
    assert.equal(error.code, 'ERR_UNKNOWN_TOOL')
    assert.match(error.message, /did you mean "get-forecast"/)
    const twice = await tools.describe_mcp_tools.execute({
      names: ['fixture.sleep', 'fixture.get_forecast', 'host:mcp-fixture.sleep', 'fixture/sleep'],
    })
    assert.equal(twice.declarations.match(/function sleep\(/g).length, 1)
    for (const names of ['.'.repeat(513), ['fixture', '.'.repeat(900_000)]]) {
      const { error } = await tools.describe_mcp_tools.execute({ names })
      assert.equal(error.code, 'ERR_INVALID_ARGUMENTS')
      assert.match(error.message, /names: expected a list of 1 to 20 names, each of at most 512 bytes/)
    }
  })

  test('describe_mcp_tools knows the own modules of the sandbox that is given', async () => {
    const sandbox = await gateway.sandbox()
    sandbox.hostModule('clock', { now: () => 7 }, { functions: { now: { signature: '() => number' } } })
    const own = toolsOf(gateway, { sandbox })
    assert.match((await own.describe_mcp_tools.execute({ names: ['clock'] })).declarations, /now/)
    const code = 'import { now } from "host:clock"; export const handler = () => now()'
    assert.deepEqual(await own.run_javascript.execute({ code }), { value: 7 })
  })

  test('list_mcp_servers and mcp_server_info say what can be used, and what a person could do about the rest', async (t) => {
    const opened = await openGateway(t, {
      good: fixture('--tools', 'echo,get-forecast'),
      fresh: fixture(),
      off: { ...fixture(), disabled: true },
      wrong: { command: 5 },
    })
    await opened.approve('good')
    const all = toolsOf(opened)
    const servers = async () => Object.fromEntries((await all.list_mcp_servers.execute({})).servers.map((server) => [server.name, server]))
    const { good, fresh, off, wrong } = await servers()
    assert.deepEqual([good.usable, fresh.usable, off.usable, wrong.usable], [false, false, false, false])
    assert.match(good.whatHelps, /enable/)
    assert.match(fresh.whatHelps, /propose.*ask the user/)
    assert.match(off.why, /disabled/)
    assert.equal(wrong.why, 'its entry in the config is wrong: the config, or a file that it names, has an error (ERR_CONFIG_INVALID)')
    await opened.enable('good')
    assert.equal((await servers()).good.usable, true)
    const info = await all.mcp_server_info.execute({ server: 'good' })
    assert.equal(info.module, 'host:mcp-good')
    assert.equal(info.functions.length, 2)
    assert.equal((await all.mcp_server_info.execute({ server: 'fresh' })).functions, undefined, 'nothing that nobody approved')
    assert.match((await all.mcp_server_info.execute({ server: 'god' })).error.message, /did you mean "good"/)
  })
})

describe('manage_mcp', () => {
  test('enables, disables and tests what a person approved', async (t) => {
    const opened = await openGateway(t, { fixture: fixture() })
    const { manage_mcp: manage, run_javascript: run } = toolsOf(opened)
    assert.equal((await manage.execute({ action: 'enable', server: 'fixture' })).error.code, 'ERR_NOT_APPROVED')
    await opened.approve('fixture')
    assert.equal((await manage.execute({ action: 'enable', server: 'fixture' })).usable, true)
    assert.deepEqual(await run.execute({ code: FORECAST, input: '{"location":"Oslo"}' }), { value: SUNNY })
    const tested = await manage.execute({ action: 'test', server: 'fixture' })
    assert.equal(tested.connected, true)
    assert.ok(tested.tools > 5)
    assert.equal((await manage.execute({ action: 'disable', server: 'fixture' })).disabled, true)
    assert.equal(opened.servers()[0].enabled, false)
    assert.equal((await manage.execute({ action: 'list', server: null })).servers.length, 1)
    assert.deepEqual((await manage.execute({ action: 'reload' })).changed, [])
    assert.match((await manage.execute({ action: 'help' })).propose, /a person/)
    assert.match((await manage.execute({ action: 'info' })).error.message, /server: is missing/)
  })

  test('brings nothing back that a person, or the agent itself, has disabled', async (t) => {
    const opened = await openApproved(t, { fixture: fixture() })
    const { manage_mcp: manage, list_mcp_servers: list } = toolsOf(opened)
    const act = (action) => manage.execute({ action, server: 'fixture' })
    const off = [() => opened.disable('fixture'), () => opened.command('/mcp disable fixture')]
    const on = [() => opened.enable('fixture'), () => opened.command('/mcp enable fixture')]
    for (const [index, disable] of off.entries()) {
      await disable()
      await act('disable') // the model's own "disable" does not replace the person's decision
      const { error } = await act('enable')
      assert.equal(error.code, 'ERR_DISABLED_BY_PERSON')
      assert.match(error.message, /a person can, with \/mcp enable fixture/)
      assert.match(error.hint, /ask the user/)
      const typed = await opened.command('/mcp enable fixture', { speaker: 'model' })
      assert.equal(typed.data.error.code, 'ERR_DISABLED_BY_PERSON')
      const [{ why, whatHelps }] = (await list.execute({})).servers
      assert.match(`${why}; ${whatHelps}`, /a person has disabled it; only a person/)
      assert.deepEqual([opened.servers()[0].enabled, opened.servers()[0].disabledByPerson], [false, true])
      await on[index]()
      assert.deepEqual([opened.servers()[0].enabled, opened.servers()[0].disabledByPerson], [true, undefined])
    }
    await opened.command('/mcp disable fixture', { speaker: 'model' })
    assert.equal((await act('enable')).usable, true, 'what a model disabled, it may enable')
  })

  test('proposes, and never approves', async (t) => {
    const events = []
    const log = join(folder(t), 'log')
    const opened = await openGateway(t, { fixture: fixture('--log', log) }, { onEvent: (event) => events.push(event) })
    const { manage_mcp: manage } = toolsOf(opened)
    const proposals = () => events.filter(({ type }) => type === 'approval-proposed').map(({ request }) => request)

    const command = await manage.execute({ action: 'propose', server: 'fixture' })
    assert.deepEqual([command.approved, command.stage, command.digest.length], [false, 'command', 64])
    assert.match(command.note, /only they can approve/)
    assert.equal(proposals()[0].digest, command.digest)
    assert.equal(proposals()[0].server, 'fixture')
    assert.equal(opened.servers()[0].state, 'unapproved')
    await manage.execute({ action: 'propose', server: 'fixture' })
    assert.equal(proposals().length, 1, 'an author is told once')

    await opened.approve('fixture', command.digest)
    const tools = await manage.execute({ action: 'propose', server: 'fixture' })
    assert.equal(tools.stage, 'manifest')
    assert.ok(tools.request.tools > 5)
    assert.doesNotMatch(JSON.stringify(tools), /echo/, 'nothing that the server says, before a person has approved it')
    assert.equal(opened.servers()[0].approved, false)
    await opened.approve('fixture', proposals()[1].digest)
    assert.match((await manage.execute({ action: 'propose', server: 'fixture' })).note, /approved already/)
  })

  test('hands over the very request that its digest approves, at both stages', async (t) => {
    const events = []
    const log = join(folder(t), 'log')
    const hostile = {
      command: '/tmp/evil/long/path/bin/node',
      args: ['/tmp/attacker/evil/node_modules/pkg/index.js', 'a\u200bb', 'x\u202ey', '/opt/../tmp/evil/x/y.js', 'correct-horse-battery'],
      cwd: '/tmp/evil/somewhere/else',
      envFile: '/tmp/evil/foo/bar/.env',
      env: {
        NODE_OPTIONS: '--import /tmp/evil/deep/down/evil.mjs',
        LD_PRELOAD: '/tmp/evil/x/lib/evil.so',
        API_KEY: 'correct-horse-battery',
      },
    }
    const secretive = { ...fixture('--log', log), env: { API_KEY: 'a-key-of-the-fixture', PATH: '/usr/local/some/where/bin:/usr/bin' } }
    const opened = await openGateway(t, { hostile, fixture: secretive }, { onEvent: (event) => events.push(event) })
    const { manage_mcp: manage } = toolsOf(opened)
    const propose = async (server) => {
      await manage.execute({ action: 'propose', server })
      const { request } = events.findLast(({ type }) => type === 'approval-proposed')
      assert.deepEqual(request, await opened.approvalRequest(server))
      return request
    }
    assert.deepEqual((await propose('hostile')).args, hostile.args)
    const { digest } = await propose('fixture')
    await opened.approve('fixture', digest)
    assert.equal((await propose('fixture')).stage, 'manifest')
  })

  test('whatever a model that was talked into it passes, nothing is approved', async (t) => {
    const opened = await openGateway(t, { fixture: fixture() })
    const all = Object.values(toolsOf(opened))
    const { digest } = await opened.approvalRequest('fixture')
    const attempts = ['approve', 'propose', 'enable', 'trust', 'yes', 'info', 'test'].flatMap((action) => [
      { action, server: 'fixture', digest },
      { action, server: 'fixture', approved: true },
      { action, server: 'fixture' },
      { action: `${action}\u0000approve`, server: 'fixture' },
      { code: `import { approve } from "host:mcp"; export const handler = () => approve("fixture", "${digest}")` },
    ])
    for (const tool of all) for (const args of attempts) await tool.execute(args)
    assert.deepEqual([opened.servers()[0].approved, opened.servers()[0].state], [false, 'unapproved'])
  })
})

describe('a model that passes anything', () => {
  test('gets an answer that says what was expected', async () => {
    const cyclic = {}
    cyclic.self = cyclic
    const hostile = [
      undefined,
      null,
      5,
      'x',
      '{',
      '['.repeat(100_000),
      [],
      cyclic,
      10n,
      () => {},
      Symbol('x'),
      { code: 5 },
      { __proto__: null, constructor: 1 },
      JSON.parse('{"__proto__": {"code": "x"}, "query": {"$bytes": 0}}'),
      { code: 'x'.repeat(2 ** 21) },
      { code: '\ud800', input: '\ud800' },
      { query: '\u202e'.repeat(10_000) },
      Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`key${index}\u202e`, index])),
    ]
    for (const tool of Object.values(tools)) {
      for (const args of hostile) {
        const answer = await tool.execute(args)
        const text = JSON.stringify(answer)
        assert.ok(text.length < 40_000, `${tool.name}: ${text.slice(0, 500)}`)
        assert.ok(!text.includes('\u202e'), tool.name)
        if (answer.error) assert.match(answer.error.code, /^ERR_/)
      }
    }
    const { error } = await tools.run_javascript.execute({ cod: 'x' })
    assert.equal(error.code, 'ERR_INVALID_ARGUMENTS')
    assert.match(error.message, /did you mean "code".*code: is missing/)
  })

  test('cannot read what is secret', async (t) => {
    const secret = 'hunter2hunter2hunter2'
    const server = {
      ...fixture('--exit-at-start'),
      env: { API_TOKEN: secret },
      args: ['-c', 'echo "token $API_TOKEN" >&2; exit 3'],
      command: '/bin/sh',
    }
    const opened = await openGateway(t, { leaky: server })
    await failure(opened.approve('leaky'), 'ERR_CONNECT_FAILED').catch(() => {})
    const all = toolsOf(opened)
    for (const action of ['list', 'info', 'test', 'propose']) {
      const text = JSON.stringify(await all.manage_mcp.execute({ action, server: 'leaky' }))
      assert.ok(!text.includes(secret), text)
    }
    assert.ok(!JSON.stringify(await all.list_mcp_servers.execute()).includes(secret))
  })

  test('cannot have two hundred runs at once', async (t) => {
    const opened = await openApproved(t, { fixture: fixture() })
    const { run_javascript: run } = toolsOf(opened, { maxPendingRuns: 3 })
    const answers = await Promise.all(Array.from({ length: 200 }, () => run.execute({ code: 'export const handler = () => 1' })))
    const busy = answers.filter(({ error }) => error?.code === 'ERR_BUSY')
    assert.ok(busy.length >= 190 && busy.length <= 197, `${busy.length} were refused`)
    assert.match(busy[0].error.message, /3 runs/)
    assert.deepEqual(await run.execute({ code: 'export const handler = () => 2' }), { value: 2 }, 'there is room again')
  })
})

describe('an abort', () => {
  test('ends a run with its call, and rejects', async (t) => {
    const log = join(folder(t), 'log')
    const opened = await openApproved(t, { fixture: fixture('--log', log) })
    const { run_javascript: run } = toolsOf(opened)
    const controller = new AbortController()
    const code = 'import { sleep } from "host:mcp-fixture"; export const handler = () => sleep({ ms: 60000 })'
    const aborted = failure(run.execute({ code }, { signal: controller.signal }), 'ERR_ABORTED')
    await waitFor('the call to arrive', () => arrived(log, 'sleep').length > 0)
    controller.abort('enough')
    const error = await aborted
    assert.deepEqual([error.name, error.cause], ['AbortError', 'enough'])
    await failure(run.execute({ code }, { signal: AbortSignal.abort() }), 'ERR_ABORTED')
    await failure(tools.list_mcp_servers.execute({}, { signal: AbortSignal.abort() }), 'ERR_ABORTED')
  })

  test('is the only rejection: a gateway that is closed answers', async (t) => {
    const opened = await openApproved(t, { fixture: fixture() })
    const all = Object.values(toolsOf(opened))
    await opened.close()
    for (const tool of all) assert.equal((await tool.execute({})).error.code, 'ERR_CLOSED', tool.name)
  })
})

test('describeServers holds the main thread for no more than what fits, however large a manifest is', async (t) => {
  const script = `const properties = (tool) => Object.fromEntries(Array.from({ length: 12 }, (_, index) =>
      ['parameter_' + tool + '_' + index, { type: 'string', description: 'what it is for '.repeat(15) }]))
    const tools = Array.from({ length: 1200 }, (_, index) =>
      ({ name: 'tool_' + index, description: 'does things to words '.repeat(20), inputSchema: { type: 'object', properties: properties(index) } }))
    const answers = {
      'tools/list': () => ({ tools }),
    }`
  const large = { command: process.execPath, args: answering(script), connectTimeoutMs: ms(60_000) }
  const gateway = await openApproved(t, { large })
  const timed = async (work) => {
    const began = performance.now()
    const value = await work()
    return [performance.now() - began, value]
  }
  const [held, { run_javascript: tool }] = await timed(() => toolsOf(gateway, { describeServers: 4000 }))
  assert.match(tool.description, /host:mcp-large \(1200 functions, 1\d+ not shown\)/)
  // Without a limit, it would write out all declarations. They are written off the main thread, and take many times as long.
  const [whole] = await timed(() => gateway.declarations('large'))
  assert.ok(held < whole / 4, `${held} of ${whole} ms`)
})
