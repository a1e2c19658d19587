// Tests of the plugin (the whole gateway as a unit that a person looks at, approves and switches), and of servers for sandboxes of other
// programs.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import vm from 'node:vm'
import {
  arrived,
  failure,
  fixture,
  folder,
  gated,
  isAlive,
  logLines,
  mirror,
  openApproved,
  openGateway,
  testBox,
  waitFor,
} from './support.mjs'

const run = (plugin) => plugin.tools().find(({ name }) => name === 'run_javascript')
const PID = 'import { pid } from "host:mcp-fixture"; export const handler = () => pid().pid'

/** Returns a server that answers no call and no read, and writes the method of each to FILE. */
const silent = (file) => ({
  command: process.execPath,
  box: testBox,
  confirm: 'never',
  args: [
    '-e',
    `const answers = {
      initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {}, resources: {} }, serverInfo: { name: 's', version: '1' } }),
      'tools/list': () => ({ tools: [{ name: 'hang', inputSchema: { type: 'object' } }] }),
      'resources/list': () => ({ resources: [{ uri: 'silent://one', name: 'one' }] }),
      'resources/templates/list': () => ({ resourceTemplates: [] }),
    }
    require('node:readline').createInterface(process.stdin).on('line', (line) => {
      const { id, method, params } = JSON.parse(line)
      if (answers[method]) console.log(JSON.stringify({ jsonrpc: '2.0', id, result: answers[method](params) }))
      else if (id !== undefined) require('node:fs').appendFileSync(process.argv[1], method + '\\n')
    })`,
    file,
  ],
})

/** Opens a gateway with one fixture server, and with its plugin switched on. */
async function openPlugin(t, { args = [], options = {}, tools = {}, server = fixture(...args) } = {}) {
  const gateway = await openApproved(t, { fixture: server }, options)
  const plugin = gateway.plugin(tools)
  plugin.approve(plugin.manifest().digest)
  assert.deepEqual(await plugin.enable(), ['fixture'])
  return { gateway, plugin }
}

describe('the manifest of a plugin', () => {
  test('names all that it brings and what each may do', async (t) => {
    const gateway = await openApproved(t, { fixture: gated('--tools', 'echo,write_note') })
    const manifest = gateway.plugin().manifest()
    assert.deepEqual([manifest.name, manifest.version], ['hyperlight-mcp', '0.1.0'])
    assert.equal(manifest.tools.length, 6)
    assert.match(manifest.tools.find(({ name }) => name === 'manage_mcp').may, /it can approve none/)
    assert.equal(manifest.commands[0].name, '/mcp')
    const [module] = manifest.modules
    assert.deepEqual([module.specifier, module.functions], ['host:mcp-fixture', ['echo', 'write_note']])
    assert.match(module.may, /calls \d tools without asking, and \d only after a person has said yes/)
    assert.equal(manifest.limits.maxServers, 20)
    assert.match(manifest.digest, /^[0-9a-f]{64}$/)
  })

  test('has another digest when any of it is another, and the same otherwise', async (t) => {
    const servers = { one: fixture('--tools', 'echo,write_note'), two: fixture('--tools', 'echo') }
    const digest = async (approved, servers, options, tools) => {
      const gateway = await openGateway(t, servers, options)
      for (const name of approved) await gateway.approve(name)
      return gateway.plugin(tools).manifest().digest
    }
    const first = await digest(['one'], servers)
    assert.equal(await digest(['one'], servers), first)
    const others = [
      await digest(['one', 'two'], servers),
      await digest(['one'], { ...servers, one: fixture('--tools', 'echo') }),
      await digest(['one'], { ...servers, one: gated('--tools', 'echo,write_note') }),
      await digest(['one'], servers, { limits: { runTimeoutMs: 5 } }),
      await digest(['one'], servers, {}, { include: ['run_javascript'] }),
      await digest(['one'], servers, {}, { maxResultTokens: 500 }),
    ]
    assert.equal(new Set([first, ...others]).size, 7)
  })
})

describe('a plugin', () => {
  test('is off at first, and ends what is live', async (t) => {
    const gateway = await openApproved(t, { fixture: fixture() })
    const sandbox = await gateway.sandbox()
    const { value: pid } = await sandbox.run(PID)
    const plugin = gateway.plugin()
    assert.equal(plugin.enabled, false)
    await plugin.disable()
    assert.equal(isAlive(pid), false)
    await failure(sandbox.run(PID), 'ERR_PLUGIN_OFF')
    await failure(gateway.callTool('fixture', 'pid'), 'ERR_PLUGIN_OFF')
    await failure(gateway.test('fixture'), 'ERR_PLUGIN_OFF')
    await failure(gateway.sandbox(), 'ERR_PLUGIN_OFF')
    await failure(() => gateway.plugin(), 'ERR_INVALID_OPTION')
  })

  test('is switched on once its manifest is approved, as it is now', async (t) => {
    const gateway = await openApproved(t, { fixture: fixture('--tools', 'pid') })
    const plugin = gateway.plugin()
    const error = await failure(plugin.enable(), 'ERR_PLUGIN_NOT_APPROVED')
    assert.match(error.message, /nobody has approved it.*approve\(manifest\.digest\)/)
    await failure(() => plugin.approve('0'.repeat(64)), 'ERR_PLUGIN_NOT_APPROVED')
    await failure(() => plugin.approve(5), 'ERR_INVALID_OPTION')
    plugin.approve(plugin.manifest().digest)
    assert.equal(plugin.approved, true)
    await plugin.enable()
    assert.equal((await run(plugin).execute({ code: PID })).error, undefined)
    await plugin.disable()
    await gateway.revoke('fixture')
    assert.equal(plugin.approved, false)
    assert.match((await failure(plugin.enable(), 'ERR_PLUGIN_NOT_APPROVED')).message, /it has changed/)
  })

  test('remembers an approval that an agent has kept', async (t) => {
    const stateDir = join(folder(t), 'state')
    const servers = { fixture: fixture() }
    const first = await openApproved(t, servers, { stateDir })
    const { digest } = first.plugin().manifest()
    const second = await openGateway(t, servers, { stateDir })
    const plugin = second.plugin({ approved: digest })
    assert.equal(plugin.approved, true)
    assert.deepEqual(await plugin.enable(), [], 'approved, and not enabled')
    await second.enable('fixture')
    assert.deepEqual(
      plugin.modules().map(({ name }) => name),
      ['mcp', 'mcp-fixture'],
    )
  })

  test('has tools, commands and modules while it is on, and none while it is off', async (t) => {
    const { plugin } = await openPlugin(t)
    const tools = plugin.tools()
    assert.equal(tools.length, 6)
    assert.equal(plugin.modules().length, 2)
    assert.deepEqual(
      plugin.commands().map(({ name }) => name),
      ['/mcp'],
    )
    const [command] = plugin.commands()
    const listed = await command.execute('/mcp list')
    assert.deepEqual([listed.ok, /fixture/.test(listed.text)], [true, true])
    await plugin.disable()
    assert.deepEqual([plugin.enabled, plugin.tools(), plugin.commands(), plugin.modules()], [false, [], [], []])
    for (const tool of tools) {
      const { error } = await tool.execute({ code: PID, query: 'x', names: ['fixture'], server: 'fixture', action: 'test' })
      assert.equal(error.code, 'ERR_PLUGIN_OFF', tool.name)
    }
    const { ok, text } = await command.execute('list')
    assert.deepEqual([ok, /the plugin is off/.test(text)], [false, true])
  })

  test('ends runs and calls that are in progress, with every process', async (t) => {
    const log = join(folder(t), 'log')
    const { gateway, plugin } = await openPlugin(t, { args: ['--log', log] })
    const hanging = 'import { hang } from "host:mcp-fixture"; export const handler = () => hang()'
    const under = [run(plugin).execute({ code: hanging })]
    const called = failure(gateway.callTool('fixture', 'hang'), 'ERR_PLUGIN_OFF')
    await waitFor('both calls to arrive', () => arrived(log, 'hang').length === 2)
    under.push(run(plugin).execute({ code: 'export const handler = () => "its turn never comes"' }))
    const { pid } = logLines(log).find(({ event }) => event === 'spawn')
    await plugin.disable()
    assert.equal(isAlive(pid), false)
    for (const answer of await Promise.all(under)) assert.equal(answer.error.code, 'ERR_PLUGIN_OFF')
    await called
    assert.equal(gateway.servers()[0].state, 'idle')
  })

  test('leaves no guest the last word, whatever it waits for', async (t) => {
    for (const waits of [
      'fixture.hang()',
      'call("fixture", "hang", {})',
      'read("fixture", "silent://one")',
      'await Promise.all([fixture.hang.async({}), fixture.hang.async({})])',
      'await nested()',
    ]) {
      const file = join(folder(t), 'arrived')
      const { gateway, plugin } = await openPlugin(t, { server: silent(file) })
      const sandbox = await gateway.sandbox()
      sandbox.hostModule('own', { nested: () => gateway.callTool('fixture', 'hang') })
      // The code catches every failure, and would return the error's code as its value.
      const code = `import * as fixture from "host:mcp-fixture"; import { call, read } from "host:mcp"; import { nested } from "host:own"
        export async function handler() { try { return ["value", ${waits}] } catch (error) { return ["caught", error.code] } }`
      const running = failure(sandbox.run(code, { toolErrors: 'throw' }), 'ERR_PLUGIN_OFF')
      await waitFor(`${waits} to arrive`, () => existsSync(file))
      await plugin.disable()
      await running
    }
  })

  test('ends a connection that is being made', async (t) => {
    const log = join(folder(t), 'log')
    const { plugin } = await openPlugin(t, { args: ['--log', log, '--slow-start', '2000'] })
    const before = logLines(log).length
    await plugin.disable()
    await plugin.enable()
    const answer = run(plugin).execute({ code: PID })
    const spawned = await waitFor('the server to be started', () =>
      logLines(log)
        .slice(before)
        .find(({ event }) => event === 'spawn'),
    )
    await plugin.disable()
    assert.equal((await answer).error.code, 'ERR_PLUGIN_OFF')
    await waitFor('its process to end', () => !isAlive(spawned.pid))
  })

  test('on again, has enabled what was so before, where its approval still holds', async (t) => {
    const gateway = await openApproved(t, { one: fixture(), two: fixture(), three: fixture() })
    await gateway.disable('three')
    const plugin = gateway.plugin()
    plugin.approve(plugin.manifest().digest)
    assert.deepEqual(await plugin.enable(), ['one', 'two'])
    await plugin.disable()
    await gateway.revoke('two')
    plugin.approve(plugin.manifest().digest)
    assert.deepEqual(await plugin.enable(), ['one'])
    assert.deepEqual(
      gateway.servers().map(({ enabled }) => enabled),
      [true, false, false],
    )
  })

  test('switched many times at once, is as it was told last', async (t) => {
    const { gateway, plugin } = await openPlugin(t)
    for (const last of ['enable', 'disable', 'enable']) {
      const calls = Array.from({ length: 21 }, (_, index) => plugin[index % 2 === 0 ? last : last === 'enable' ? 'disable' : 'enable']())
      const answers = last === 'enable' ? [run(plugin)?.execute({ code: PID })] : []
      await Promise.all([...calls, ...answers])
      assert.equal(plugin.enabled, last === 'enable')
      if (last === 'disable') assert.notEqual(gateway.servers()[0].state, 'connected')
    }
    assert.equal((await run(plugin).execute({ code: PID })).error, undefined)
  })
})

describe('a server for another sandbox', () => {
  /** Runs code in a context of Node's own, with these modules as globals. */
  const evaluate = (code, functions, names) => vm.runInNewContext(`(async () => (${code}))()`, { [names]: functions })

  test('has its functions in the shape in which HyperAgent takes a plugin', async (t) => {
    const gateway = await openApproved(t, { fixture: fixture() })
    const registration = gateway.pluginRegistration('fixture')
    assert.deepEqual([registration.name, registration.declaredModules], ['mcp-fixture', ['mcp-fixture']])
    const modules = registration.createHostFunctions(registration.config)
    assert.deepEqual(Object.keys(modules), ['mcp-fixture'])
    const { value } = await (await gateway.sandbox()).run(
      'import * as all from "host:mcp-fixture"; export const handler = () => Object.keys(all)',
    )
    assert.deepEqual(Object.keys(modules['mcp-fixture']).sort(), value.filter((name) => name !== 'default').sort())
    const text = await evaluate('fixture.get_forecast({ location: "Oslo" })', modules['mcp-fixture'], 'fixture')
    assert.deepEqual(text, { temperature: 93, conditions: 'sunny' })
  })

  test('gives what a guest would get', async (t) => {
    const gateway = await openApproved(t, { fixture: fixture(), mirror })
    const { 'mcp-fixture': functions } = gateway.pluginRegistration('fixture').createHostFunctions()
    const { 'mcp-mirror': mirrored } = gateway.pluginRegistration('mirror').createHostFunctions()
    const sandbox = await gateway.sandbox()
    const cases = [
      ['fixture', 'echo', { value: [1, 'x', null] }],
      ['fixture', 'image', { bytes: 4 }],
      ['fixture', 'several', {}],
      ['fixture', 'empty', {}],
      ['fixture', 'error', { message: 'no' }],
      ['fixture', 'protocol_error', {}],
      ['fixture', 'big_text', { bytes: 2 ** 20 + 1 }],
      ['fixture', 'big_structured', { bytes: 2 ** 20 + 1 }],
      ['fixture', 'echo', 5],
      ['mirror', 'give', { structuredContent: { $bytes: 0 } }],
    ]
    for (const [server, name, args] of cases) {
      const code = `import { ${name} } from "host:mcp-${server}"; export const handler = (args) => ${name}(args)`
      const { value } = await sandbox.run(code, { input: args })
      assert.deepEqual(await (server === 'mirror' ? mirrored : functions)[name](args), value, `${name} ${JSON.stringify(args)}`)
    }
    assert.match((await functions.echo(1, 2)).error, /expected one object, got 2 values/)
    assert.equal((await functions.echo(() => {})).code, 'ERR_INVALID_ARGUMENTS')
  })

  test('throws where it is asked to', async (t) => {
    const gateway = await openApproved(t, { fixture: fixture() })
    const registration = gateway.pluginRegistration('fixture')
    const { 'mcp-fixture': functions } = registration.createHostFunctions({ toolErrors: 'throw' })
    await assert.rejects(functions.error({ message: 'no such city' }), /no such city/)
    await failure(functions.echo(5), 'ERR_INVALID_ARGUMENTS')
    await failure(() => registration.createHostFunctions({ toolError: 'throw' }), 'ERR_INVALID_OPTION')
  })

  test('goes through the gate, the filters, and the approval as it stands', async (t) => {
    const asked = []
    const onApproval = (question) => asked.push(question.tool) && 'once'
    const gateway = await openApproved(t, { fixture: { ...gated(), denyTools: ['crash'] } }, { onApproval })
    const registration = gateway.pluginRegistration('fixture')
    const { 'mcp-fixture': functions } = registration.createHostFunctions()
    assert.equal(functions.crash, undefined)
    assert.equal(await functions.write_note({ text: 'x' }), 'noted')
    assert.deepEqual(asked, ['write_note'])
    await gateway.disable('fixture')
    assert.equal((await functions.echo({ value: 1 })).code, 'ERR_NOT_ENABLED')
    await gateway.revoke('fixture')
    assert.equal((await functions.echo({ value: 1 })).code, 'ERR_NOT_APPROVED')
    await failure(() => registration.createHostFunctions(), 'ERR_NOT_APPROVED')
  })

  test('is none where there is no such server, or nobody has approved it', async (t) => {
    const gateway = await openGateway(t, { fixture: fixture() })
    await failure(() => gateway.pluginRegistration('fixtur'), 'ERR_UNKNOWN_SERVER')
    await failure(() => gateway.pluginRegistration('fixture'), 'ERR_NOT_APPROVED')
    await failure(() => gateway.pluginRegistration(5), 'ERR_INVALID_OPTION')
  })

  test('is off with the plugin that its gateway is', async (t) => {
    const { gateway, plugin } = await openPlugin(t)
    const { 'mcp-fixture': functions } = gateway.pluginRegistration('fixture').createHostFunctions()
    assert.deepEqual(await functions.echo({ value: 1 }), { value: 1 })
    await plugin.disable()
    assert.equal((await functions.echo({ value: 1 })).code, 'ERR_PLUGIN_OFF')
  })
})
