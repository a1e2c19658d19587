// Tests of what an agent's author and agent code can find out about the tools: declarations, hints, search, a part of a system prompt, a
// check of code before it runs, and TypeScript as input.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { answering, compiled, failure, fixture, openApproved, openGateway, wholeFile } from './support.mjs'

const gateway = await openApproved(wholeFile, { fixture: fixture(), other: fixture() })

/** Returns a sandbox with a module of the agent's own. */
async function withModule(t, info) {
  const opened = await openApproved(t, { fixture: fixture() })
  const sandbox = await opened.sandbox()
  sandbox.hostModule('clock', { now: () => 7, wait: () => null }, info)
  return sandbox
}

describe('declarations', () => {
  test('of all modules compile together, and agent code against them', async (t) => {
    const code = `import { echo, get_sum } from "host:mcp-fixture";
      import fixture from "host:mcp-fixture";
      import { call, search, describe, tools } from "host:mcp";
      export function handler(): string {
        const [found] = search("add numbers", { limit: 1 });
        const listed: string[] = tools("fixture").map((tool) => tool.name);
        return typeof echo === "function" ? describe(found.identifier) + listed.length + call("fixture", "echo").isError : String(fixture);
      }
      // @ts-expect-error: there is no such function
      import { nothing } from "host:mcp-fixture";`
    const text = await gateway.declarations()
    for (const name of ['mcp', 'mcp-fixture', 'mcp-other']) assert.match(text, new RegExp(`^declare module "host:${name}" \\{`, 'm'))
    assert.equal(compiled(t, { 'modules.d.ts': text, 'agent.ts': code.replace(', get_sum', '') }), '')
  })

  test('show patterns and backticks as they are, and long descriptions whole where one tool is described and where it is approved', async (t) => {
    const description = `Finds '**/*.ts' in \`src\`. ${'Mind this. '.repeat(400)}The end.`
    const tool = {
      name: 'find',
      description,
      inputSchema: { type: 'object', properties: { pattern: { type: 'string', description: 'as `**/*`' } } },
    }
    const answers = `const answers = { 'tools/list': () => ({ tools: [${JSON.stringify(tool)}] }) }`
    const opened = await openApproved(t, { files: { command: process.execPath, args: answering(answers) } })
    assert.equal((await opened.approvalRequest('files')).tools[0].description, description)
    const { declaration, ...info } = await opened.toolInfo('files', 'find')
    assert.equal(info.description, description)
    assert.equal((await opened.moduleInfo('files')).functions[0].purpose, "Finds '**/*.ts' in `src`.")
    assert.match(declaration, /Finds '\*\*\\\/\*\.ts' in `src`.*The end\./)
    const all = await opened.declarations('files')
    assert.match(all, /as `\*\*\\\/\*`/)
    assert.match(all, /\[cut: describe\("files\.find"\) of host:mcp has all of it\]/)
    const describe = opened.agentTools().find(({ name }) => name === 'describe_mcp_tools')
    const { declarations } = await describe.execute({ names: ['files.find'] })
    assert.match(declarations, /The end\./)
    const mcp = await opened.declarations('mcp')
    for (const text of [all, declarations]) assert.equal(compiled(t, { 'mcp.d.ts': mcp, 'files.d.ts': text }), '')
  })

  test('of one module are found by any of its names, and need those of `host:mcp` alone', async (t) => {
    const text = await gateway.declarations('fixture')
    for (const name of ['mcp-fixture', 'host:mcp-fixture']) assert.equal(await gateway.declarations(name), text)
    assert.doesNotMatch(text, /mcp-other/)
    const mcp = await gateway.declarations('host:mcp')
    assert.equal(compiled(t, { 'mcp.d.ts': mcp }), '')
    assert.equal(compiled(t, { 'mcp.d.ts': mcp, 'one.d.ts': text }), '')
    const error = await failure(gateway.declarations('fixtur'), 'ERR_UNKNOWN_MODULE')
    assert.match(error.message, /did you mean "host:mcp-fixture"/)
  })

  test('say how failures show: in the result, or not at all', async () => {
    assert.match(await gateway.declarations('fixture'), /ToolError/)
    assert.doesNotMatch(await gateway.declarations('fixture', { toolErrors: 'throw' }), /ToolError/)
  })

  test('are of servers that are approved and enabled', async (t) => {
    const opened = await openGateway(t, { fixture: fixture() })
    await failure(opened.declarations('fixture'), 'ERR_UNKNOWN_MODULE')
    await opened.approve('fixture')
    await failure(opened.declarations('fixture'), 'ERR_UNKNOWN_MODULE')
    await opened.enable('fixture')
    assert.match(await opened.declarations('fixture'), /host:mcp-fixture/)
  })

  test('have the agent’s own modules, in a sandbox', async (t) => {
    const signature = '(ms: number) => void'
    const sandbox = await withModule(t, {
      purpose: 'Tells the time',
      functions: { now: { signature: '() => number' }, wait: { signature } },
    })
    const text = await sandbox.declarations('clock')
    const code = `import { now, wait } from "host:clock";
      export const handler = (): number => { wait(5); return now() };
      // @ts-expect-error: it takes a number
      wait("5");`
    assert.equal(compiled(t, { 'clock.d.ts': text, 'agent.ts': code }), '')
    assert.match(await sandbox.declarations(), /declare module "host:clock"/)
  })
})

describe('hints', () => {
  test('list all modules in a line each', async (t) => {
    const sandbox = await withModule(t, { purpose: 'Tells the time' })
    const modules = await sandbox.listModules()
    assert.deepEqual(
      modules.map(({ specifier, kind }) => [specifier, kind]),
      [
        ['host:mcp', 'built-in'],
        ['host:mcp-fixture', 'server'],
        ['host:clock', 'agent'],
      ],
    )
    assert.deepEqual(modules[2], { name: 'clock', specifier: 'host:clock', kind: 'agent', purpose: 'Tells the time', functions: 2 })
    assert.equal((await gateway.listModules()).length, 3)
  })

  test('tell a module’s functions with parameters, returns, caveats and an example that runs', async (t) => {
    const info = await gateway.moduleInfo('fixture')
    assert.equal(info.server, 'fixture')
    const sleep = info.functions.find(({ name }) => name === 'sleep')
    assert.deepEqual(sleep.parameters, [{ name: 'ms', type: 'number', required: true }])
    assert.equal(sleep.purpose, 'Waits, then answers')
    assert.match(sleep.returns, /ToolError/)
    assert.equal(sleep.example, 'sleep({ ms: 1 })')
    const note = info.functions.find(({ name }) => name === 'write_note')
    assert.match(note.caveats.join(), /a person may be asked/)
    const hyphen = info.functions.find(({ tool }) => tool === 'delete-all')
    assert.notEqual(hyphen.name, 'delete-all')
    const sandbox = await (await openApproved(t, { fixture: fixture() })).sandbox()
    const { value } = await sandbox.run(info.example)
    assert.ok(value !== undefined)
    await failure(gateway.moduleInfo('nobody'), 'ERR_UNKNOWN_MODULE')
  })

  test('tell of host:mcp and of the agent’s own modules in the same words', async (t) => {
    const mcp = await gateway.moduleInfo('host:mcp')
    assert.deepEqual(mcp.functions.map(({ name }) => name).sort(), [
      'all',
      'allSettled',
      'call',
      'describe',
      'isError',
      'prompt',
      'prompts',
      'read',
      'resources',
      'saved',
      'search',
      'sleep',
      'tools',
    ])
    const sandbox = await withModule(t, { functions: { wait: { description: 'Waits.', signature: '(ms: number) => void' } } })
    const [now, wait] = (await sandbox.moduleInfo('clock')).functions
    assert.deepEqual([now.signature, wait.signature, wait.purpose], ['now(...args: any[]): any', 'wait(ms: number): void', 'Waits.'])
  })

  test('tell a tool whole, by its raw name or its identifier', async () => {
    const tool = await gateway.toolInfo('fixture', 'sleep')
    assert.deepEqual(await gateway.toolInfo('fixture', 'sleep', {}), tool)
    assert.equal(tool.specifier, 'host:mcp-fixture')
    assert.match(tool.declaration, /export function sleep\(/)
    assert.doesNotMatch(tool.declaration, /export function echo\(/)
    assert.equal(tool.inputSchema.type, 'object')
    const identifier = (await gateway.toolInfo('fixture', 'delete-all')).name
    assert.equal((await gateway.toolInfo('fixture', identifier)).tool, 'delete-all')
    assert.match((await failure(gateway.toolInfo('fixture', 'slep'), 'ERR_UNKNOWN_TOOL')).message, /did you mean "sleep"/)
    await failure(gateway.toolInfo('fixtur', 'sleep'), 'ERR_UNKNOWN_SERVER')
  })

  test('tell a server: its status, and what it offers once it is approved', async (t) => {
    const opened = await openGateway(t, { fixture: fixture('--resources', '--prompts') })
    const before = await opened.serverInfo('fixture')
    assert.deepEqual([before.state, before.offer], ['unapproved', undefined])
    await opened.approve('fixture')
    const { approved, offer } = await opened.serverInfo('fixture')
    assert.equal(approved, true)
    assert.deepEqual([offer.specifier, offer.resources, offer.resourceTemplates, offer.prompts], ['host:mcp-fixture', 4, 1, 2])
    assert.ok(offer.functions.some(({ tool, purpose }) => tool === 'sleep' && purpose === 'Waits, then answers'))
    await failure(opened.serverInfo('nobody'), 'ERR_UNKNOWN_SERVER')
  })
})

describe('searchTools', () => {
  test('finds by what a tool does, its name however it is written, a slip of the pen, a parameter', async () => {
    for (const [query, tool] of [
      ['wait and then answer', 'sleep'],
      ['writeNote', 'write_note'],
      ['slepe', 'sleep'],
      ['numbered lines in the log', 'log_lines'],
    ]) {
      const found = await gateway.searchTools(query, { limit: 3, servers: ['fixture'] })
      assert.ok(
        found.some((match) => match.tool === tool),
        `${query}: ${found.map((match) => match.tool)}`,
      )
    }
  })

  test('gives what a model needs to call: module, identifier, signature, purpose', async () => {
    const [best] = await gateway.searchTools('sleep', { limit: 1, servers: ['other'] })
    const { score, ...rest } = best
    assert.ok(score > 0)
    assert.deepEqual(rest, {
      server: 'other',
      tool: 'sleep',
      module: 'host:mcp-other',
      identifier: 'sleep',
      signature: 'sleep(input: { ms: number }): ToolOutput',
      purpose: 'Waits, then answers',
    })
  })

  test('follows what is enabled', async (t) => {
    const opened = await openApproved(t, { fixture: fixture() })
    assert.equal((await opened.searchTools('sleep', { limit: 1 })).length, 1)
    await opened.disable('fixture')
    assert.deepEqual(await opened.searchTools('sleep'), [])
    await opened.enable('fixture')
    assert.equal((await opened.searchTools('sleep', { limit: 1 })).length, 1)
  })

  test('refuses what is no query', async () => {
    for (const query of ['', '   ', '!?']) await failure(gateway.searchTools(query), 'ERR_INVALID_OPTION')
    for (const options of [{ limit: 0 }, { limit: 101 }, { limit: 1.5 }, { server: ['x'] }, { servers: 'fixture' }]) {
      await failure(gateway.searchTools('echo', options), 'ERR_INVALID_OPTION')
    }
    await failure(gateway.searchTools('echo', { servers: ['nobody'] }), 'ERR_UNKNOWN_SERVER')
    await failure(gateway.searchTools(7), 'ERR_INVALID_OPTION')
    assert.match((await failure(gateway.searchTools('echo', { limit: -1 }), 'ERR_INVALID_OPTION')).message, /limit: .*-1/)
  })
})

describe('in the guest, host:mcp', () => {
  test('searches, describes and lists', async (t) => {
    const sandbox = await withModule(t, { purpose: 'Tells the time' })
    const { value } = await sandbox.run(`import { search, describe, tools } from "host:mcp";
      export const handler = () => ({
        found: search("waits then answers", { limit: 2 }).map(({ tool, signature }) => [tool, signature]),
        one: describe("fixture.sleep"), mcp: describe("mcp.search"), now: describe("clock.now"), module: describe("mcp-fixture"), own: describe("clock"), tools: tools().length })`)
    assert.ok(value.found.some(([tool]) => tool === 'sleep'))
    assert.match(value.one, /export function sleep\(input: /)
    assert.doesNotMatch(value.one, /function echo/)
    assert.match(value.module, /function echo/)
    assert.match(value.own, /declare module "host:clock"/)
    assert.equal(value.now, value.own)
    assert.match(value.mcp, /export function search\(/)
    assert.ok(value.tools > 20)
  })

  test('throws, with a code and what was meant', async (t) => {
    const sandbox = await withModule(t)
    for (const [expression, code, words] of [
      ['search("")', 'ERR_INVALID_OPTION', /word/],
      ['search("x", { limit: "3" })', 'ERR_INVALID_OPTION', /limit/],
      ['search()', 'ERR_INVALID_OPTION', /search/],
      ['search("x", { servers: ["nobody"] })', 'ERR_UNKNOWN_SERVER', /nobody/],
      ['describe("fixtur")', 'ERR_UNKNOWN_MODULE', /did you mean/],
      ['describe("fixture.slep")', 'ERR_UNKNOWN_TOOL', /did you mean "sleep"/],
      ['describe("sleep")', 'ERR_UNKNOWN_MODULE', /did you mean "fixture.sleep"/],
      ['describe(1)', 'ERR_INVALID_OPTION', /describe/],
      ['describe(".".repeat(513))', 'ERR_INVALID_OPTION', /describe: a name has at most 512 bytes, not 513/],
      ['describe(".".repeat(512))', 'ERR_UNKNOWN_MODULE', /there is no module/],
    ]) {
      const { value } = await sandbox.run(`import { search, describe } from "host:mcp";
        export const handler = () => { try { return ${expression} } catch (error) { return { code: error.code, message: error.message } } }`)
      assert.equal(value.code, code, `${expression}: ${JSON.stringify(value)}`)
      assert.match(value.message, words)
    }
  })
})

describe('systemMessage', () => {
  test('says as much as its budget allows', async () => {
    const short = await gateway.systemMessage({ budgetTokens: 300 })
    const middle = await gateway.systemMessage({ budgetTokens: 2000 })
    const long = await gateway.systemMessage({ budgetTokens: 100_000 })
    assert.ok(short.length < middle.length && middle.length < long.length)
    for (const message of [short, middle, long]) {
      assert.match(message, /search/)
      assert.match(message, /host:mcp-fixture/)
    }
    assert.doesNotMatch(short, /sleep/)
    assert.match(middle, /sleep\(\{ ms \}\): Waits, then answers/)
    assert.match(long, /export function sleep\(/)
  })

  test('fills its budget function by function, those that a task needs first', async () => {
    const budget = { budgetTokens: 500 }
    const [inTurns, forTask] = [
      await gateway.systemMessage(budget),
      await gateway.systemMessage({ ...budget, task: 'wait some milliseconds, sleep' }),
    ]
    assert.match(inTurns, /There are 2 modules with \d+ functions; \d+ of them are not shown:/)
    for (const message of [inTurns, forTask]) for (const name of ['fixture', 'other']) assert.match(message, new RegExp(`host:mcp-${name}`))
    assert.doesNotMatch(inTurns, /function sleep\(/)
    assert.match(forTask, /export function sleep\(input: \{/)
    assert.equal(await gateway.systemMessage({ ...budget, task: ' -- ' }), inTurns, 'without a word it is as without a task')
    const sandbox = await gateway.sandbox()
    assert.match(await sandbox.systemMessage({ ...budget, task: 'sleep' }), /export function sleep\(/)
  })

  test('names the least budget where not even that is enough', async () => {
    const { message } = await failure(gateway.systemMessage({ budgetTokens: 10 }), 'ERR_INVALID_OPTION')
    const least = Number(/at least (\d+)/.exec(message)[1])
    assert.match(await gateway.systemMessage({ budgetTokens: least }), /search/)
    await failure(gateway.systemMessage({ budget: 10 }), 'ERR_INVALID_OPTION')
    const sandbox = await gateway.sandbox()
    assert.match((await failure(sandbox.systemMessage({ budgetTokens: 10 }), 'ERR_INVALID_OPTION')).message, /^Sandbox\.systemMessage/)
  })

  test('has the agent’s own modules, in a sandbox', async (t) => {
    const sandbox = await withModule(t, { purpose: 'Tells the time' })
    assert.match(await sandbox.systemMessage(), /Tells the time[\s\S]*declare module "host:clock"/)
    assert.doesNotMatch(await gateway.systemMessage(), /clock/)
  })
})

describe('check', () => {
  test('finds nothing in code that is right, in JavaScript and TypeScript', async () => {
    for (const code of [
      'import { sleep } from "host:mcp-fixture"; export const handler = () => sleep({ ms: 1 })',
      'import { sleep, type Item } from "host:mcp-fixture"; export function handler(input: { ms: number }): unknown { return sleep(input) }',
    ]) {
      assert.deepEqual(await gateway.check(code), { ok: true, looked: true, problems: [], hints: [] })
    }
  })

  test('tells place, excerpt and what was meant', async () => {
    const { ok, problems } = await gateway.check(`import { slep } from "host:mcp-fixture"
import * as other from "host:mcp-othr"
export const handler = () => slep({ ms: 1 })`)
    assert.equal(ok, false)
    assert.deepEqual(
      problems.map(({ kind, line, column, suggestion }) => [kind, line, column, suggestion]),
      [
        ['unknown-function', 1, 10, 'sleep'],
        ['unknown-module', 2, 24, 'host:mcp-other'],
      ],
    )
    assert.match(problems[0].excerpt, /slep/)
    const [syntax] = (await gateway.check('export const handler = () => {\n  const = 1\n}')).problems
    assert.deepEqual([syntax.kind, syntax.line], ['syntax', 2])
  })

  test('knows the agent’s own modules, in a sandbox', async (t) => {
    const sandbox = await withModule(t)
    const code = 'import { now } from "host:clock"; export const handler = () => now()'
    assert.equal((await sandbox.check(code)).ok, true)
    assert.equal((await gateway.check(code)).ok, false)
    await failure(sandbox.check('x'.repeat(2 ** 20 + 1)), 'ERR_CODE_TOO_LARGE')
    const tooDeep = `export const handler = () => ${'-'.repeat(100_000)}1`
    assert.deepEqual(await sandbox.check(tooDeep), { ok: true, looked: false, problems: [], hints: [] })
  })
})

describe('a run', () => {
  test('takes TypeScript, and its errors name the lines as they were given', async (t) => {
    const sandbox = await withModule(t)
    const code = `import { sleep } from "host:mcp-fixture"
type SleepInput = Parameters<typeof sleep>[0]
interface Result {
  waited: number
}
export const handler = (input: SleepInput): Result => {
  sleep(input as SleepInput)
  if (input.ms > 1) throw new Error("too long")
  return { waited: input.ms! } satisfies Result
}`
    assert.deepEqual((await sandbox.run(code, { input: { ms: 1 } })).value, { waited: 1 })
    const error = await failure(sandbox.run(code, { input: { ms: 2 } }), 'ERR_GUEST_THREW')
    assert.equal(error.guest.line, 8)
    const unsupported = await failure(sandbox.run('enum A { B }\nexport const handler = () => A.B'), 'ERR_CODE_SYNTAX')
    assert.match(unsupported.message, /enum/)
  })

  test('says what was meant where an import or a function is not there', async (t) => {
    const sandbox = await withModule(t)
    for (const code of [
      'import { slep } from "host:mcp-fixture"; export const handler = () => slep({ ms: 1 })',
      'import { sleep } from "host:mcp-fixtur"; export const handler = () => sleep({ ms: 1 })',
    ]) {
      assert.match((await failure(sandbox.run(code), 'ERR_CODE_SYNTAX')).message, /did you mean/)
    }
    const late = 'import * as fixture from "host:mcp-fixture"; export const handler = () => fixture.slep({ ms: 1 })'
    assert.match((await failure(sandbox.run(late), 'ERR_GUEST_THREW')).message, /did you mean/)
  })
})

describe('hostModule', () => {
  test('refuses what it says of itself that is not so', async (t) => {
    const sandbox = await (await openGateway(t)).sandbox()
    const add = (info) => sandbox.hostModule('clock', { now: () => 7 }, info)
    for (const [info, words] of [
      [{ functions: { noww: {} } }, /noww/],
      [{ functions: { now: { signature: 'number' } } }, /signature/],
      [{ functions: { now: { signature: '() => void } declare module "x" {' } } }, /signature/],
      [{ purposes: 'x' }, /purposes/],
      ['x', /info/],
    ]) {
      assert.match((await failure(() => add(info), 'ERR_INVALID_OPTION')).message, words)
    }
    add({ purpose: 'Tells the time' })
  })
})
