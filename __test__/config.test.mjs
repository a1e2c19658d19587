// Tests of the config: the formats that other programs write, and the sources of values. All errors are reported together, each with its
// position, and the rest of the config stays usable.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { Gateway } from '../index.mjs'
import {
  afterwards,
  deferred,
  failure,
  fixture,
  fixtureProgram,
  folder,
  guest,
  isAlive,
  openGateway,
  root,
  runSync,
  waitFor,
} from './support.mjs'

/** Returns a reference in the form in which configs write it. */
const $ = (inner) => `\${${inner}}`
const states = (gateway) => Object.fromEntries(gateway.servers().map(({ name, state }) => [name, state]))
const statusOf = (gateway, name) => gateway.servers().find((server) => server.name === name)
function names(error, ...words) {
  for (const word of words) assert.ok(error.message.includes(word), `"${word}" is missing in: ${error.message}`)
}

/** Returns a server that records its environment and folder when it starts, and a function that reads this record. */
function teller(t) {
  const report = join(folder(t), 'report')
  const script = 'env > "$1"; echo "cwd=$(pwd)" >> "$1"; exec "$0"'
  const read = () =>
    Object.fromEntries(
      readFileSync(report, 'utf8')
        .split('\n')
        .map((line) => line.split(/=(.*)/s).slice(0, 2)),
    )
  return { entry: { command: '/bin/sh', args: ['-c', script, fixtureProgram, report], confirm: 'never', box: 'off' }, read }
}

/** Opens a gateway with a config file. Returns it with its events, and with a function that writes the file. */
async function openFile(t, content, options) {
  const path = folder(t)
  const configPath = join(path, 'config.json')
  const write = (content) => writeFileSync(configPath, typeof content === 'string' ? content : JSON.stringify(content))
  write(content)
  const events = []
  const onEvent = (event) => events.push(event)
  const gateway = await Gateway.open({ configPath, stateDir: join(path, 'state'), workspaceFolder: path, guest, onEvent, ...options })
  afterwards(t, () => gateway.close())
  /** This is the file's name in errors. */
  return { gateway, path, write, events, shown: './config.json' }
}

describe('A config is read as it is written for', () => {
  test('VS Code, in its own file and in its settings: inputs, servers, a folder and a file of variables', async (t) => {
    const { entry, read } = teller(t)
    const workspaceFolder = folder(t)
    writeFileSync(join(workspaceFolder, '.env'), 'FROM_FILE="of the file" # ours\n')
    const env = { TOKEN: $('input:token'), HOME_IS: $('userHome'), HERE: $('workspaceFolder'), COUNT: 3 }
    const server = { type: 'stdio', ...entry, env, envFile: `${$('workspaceFolder')}/.env`, cwd: $('workspaceFolder') }
    const inputs = [{ type: 'promptString', id: 'token', description: 'The token', password: true }]
    for (const config of [
      { inputs, servers: { a: server } },
      { 'editor.fontSize': 12, mcp: { inputs, servers: { a: server } } },
    ]) {
      const gateway = await openGateway(t, {}, { config, workspaceFolder, onInput: (id, description) => `${id}: ${description}` })
      await gateway.approve('a')
      const { TOKEN, HOME_IS, HERE, COUNT, FROM_FILE, cwd } = read()
      assert.deepEqual([TOKEN, HOME_IS, HERE], ['token: The token', homedir(), workspaceFolder])
      assert.deepEqual([COUNT, FROM_FILE, cwd], ['3', 'of the file', workspaceFolder])
    }
  })

  test('Claude Desktop: mcpServers among settings of its own, and a key that is unknown is a warning', async (t) => {
    const { entry, read } = teller(t)
    const { gateway, events } = await openFile(t, {
      globalShortcut: 'Alt+Space',
      mcpServers: { a: { ...entry, env: { TOKEN: 'x' }, icon: 'a.png' }, b: { url: 'http://127.0.0.1:9/mcp' } },
    })
    assert.deepEqual(states(gateway), { a: 'unapproved', b: 'unapproved' })
    await gateway.approve('a')
    assert.equal(read().TOKEN, 'x')
    const [warning] = await waitFor('the warning', () => events.length > 0 && events)
    assert.match(warning.message, /mcpServers\.a\.icon: this key is unknown/)
    assert.equal((await gateway.approvalRequest('b')).url, 'http://127.0.0.1:9/mcp')
    await failure(gateway.approve('b'), 'ERR_CONNECT_FAILED')
  })

  test('a person: with comments, trailing commas and a byte order mark', async (t) => {
    const { gateway } = await openFile(
      t,
      '\uFEFF{ // ours\n "theme": 1, /* and */ "servers": { "a": { "command": "x", "args": ["y",], }, }, }',
    )
    assert.deepEqual(states(gateway), { a: 'unapproved' })
  })

  test('nobody in particular: without a path it is ~/.hyperagent/config.json, which need not be there', (t) => {
    const home = folder(t)
    const code = `import { Gateway } from ${JSON.stringify(join(root, 'index.mjs'))}
      const gateway = await Gateway.open()
      console.log(JSON.stringify(gateway.servers().map(({ name }) => name))); await gateway.close()`
    const listed = () => {
      const { stdout, stderr } = runSync(process.execPath, ['--input-type=module', '--eval', code], { env: { ...process.env, HOME: home } })
      assert.equal(stderr, '')
      return JSON.parse(stdout)
    }
    assert.deepEqual(listed(), [])
    mkdirSync(join(home, '.hyperagent'), { recursive: true })
    writeFileSync(join(home, '.hyperagent/config.json'), '{ "mcpServers": { "a": { "command": "x" } } }')
    assert.deepEqual(listed(), ['a'])
  })
})

describe('Values come', () => {
  test('from variables, with a default for those that are not set', async (t) => {
    process.env.HYPERLIGHT_MCP_TEST_SET = 'is set'
    t.after(() => delete process.env.HYPERLIGHT_MCP_TEST_SET)
    const { entry, read } = teller(t)
    const env = {
      PLAIN: $('HYPERLIGHT_MCP_TEST_SET'),
      EDITOR_LIKE: $('env:HYPERLIGHT_MCP_TEST_SET'),
      UNNEEDED: $('HYPERLIGHT_MCP_TEST_SET:-other'),
      DEFAULT: `<${$('HYPERLIGHT_MCP_NEVER_SET:-a default')}>`,
      EMPTY: $('HYPERLIGHT_MCP_NEVER_SET:-'),
      TERM: null,
    }
    const gateway = await openGateway(t, { a: { ...entry, env } })
    await gateway.approve('a')
    const given = read()
    assert.deepEqual([given.PLAIN, given.EDITOR_LIKE, given.UNNEEDED], ['is set', 'is set', 'is set'])
    assert.deepEqual([given.DEFAULT, given.EMPTY], ['<a default>', ''])
    assert.ok(!('TERM' in given))
  })

  test('or not: all variables that are not set are named when the server would start, and nothing starts', async (t) => {
    const { entry, read } = teller(t)
    const env = { A: $('HYPERLIGHT_MCP_NEVER_SET'), B: $('env:HYPERLIGHT_MCP_NOR_THIS') }
    const gateway = await openGateway(t, { a: { ...entry, env } })
    const error = await failure(gateway.approve('a'), 'ERR_CONFIG_INVALID')
    names(error, 'has 2 problems', 'mcpServers.a.env.A', 'HYPERLIGHT_MCP_NEVER_SET', 'mcpServers.a.env.B', 'HYPERLIGHT_MCP_NOR_THIS')
    assert.throws(read, { code: 'ENOENT' })
  })

  test('from a person, who is asked when a server that needs it starts, once a gateway', async (t) => {
    const [one, two] = [teller(t), teller(t)]
    const asked = []
    const answer = deferred()
    const inputs = [
      { type: 'promptString', id: 'token', description: 'The token' },
      { type: 'pickString', id: 'place', description: 'Where', options: ['here', 'there'], default: 'here' },
    ]
    const env = { TOKEN: $('input:token'), PLACE: `in ${$('input:place')}` }
    const config = { inputs, mcpServers: { one: { ...one.entry, env }, two: { ...two.entry, env } } }
    const onInput = (...question) => {
      asked.push(question)
      return question[0] === 'token' ? answer.promise : 'there'
    }
    const gateway = await openGateway(t, {}, { config, onInput })
    await gateway.approvalRequest('one')
    assert.deepEqual(asked, [])
    const both = Promise.all([gateway.approve('one'), gateway.approve('two')])
    await waitFor('the question', () => asked.length > 0)
    answer.resolve('typed')
    await both
    await gateway.test('one')
    assert.deepEqual(asked.map(([id, description]) => [id, description]).sort(), [
      ['place', 'Where'],
      ['token', 'The token'],
    ])
    assert.ok(
      asked.every(([, , server]) => ['one', 'two'].includes(server)),
      JSON.stringify(asked),
    )
    for (const { read } of [one, two]) assert.deepEqual([read().TOKEN, read().PLACE], ['typed', 'in there'])
  })

  test('the question for an input names the server and is part of its approval', async (t) => {
    const { entry, read } = teller(t)
    const config = (description) => ({
      inputs: [{ type: 'promptString', id: 'token', description }],
      mcpServers: { one: { ...entry, env: { TOKEN: $('input:token') } } },
    })
    const asked = []
    const onInput = (...question) => {
      asked.push(question)
      return 'typed'
    }
    const stateDir = join(folder(t), 'state')
    const gateway = await openGateway(t, {}, { stateDir, config: config('The token of good.example'), onInput })
    const request = await gateway.approvalRequest('one')
    assert.deepEqual(request.inputDescriptions, ['token=The token of good.example'])
    await gateway.approve('one')
    assert.deepEqual(asked, [['token', 'The token of good.example', 'one']])
    assert.equal(read().TOKEN, 'typed')
    await gateway.close()
    const other = await openGateway(t, {}, { stateDir, config: config('The password of your bank'), onInput })
    assert.equal(other.servers()[0].state, 'unapproved')
    assert.notEqual((await other.approvalRequest('one')).digest, request.digest)
  })

  test('or not: without onInput an input is its default, and without that an error that says what is missing', async (t) => {
    const [one, two] = [teller(t), teller(t)]
    const config = {
      inputs: [
        { type: 'promptString', id: 'with', default: 'a default' },
        { type: 'promptString', id: 'without' },
      ],
      mcpServers: { one: { ...one.entry, env: { A: $('input:with') } }, two: { ...two.entry, env: { A: $('input:without') } } },
    }
    const gateway = await openGateway(t, {}, { config })
    await gateway.approve('one')
    assert.equal(one.read().A, 'a default')
    names(await failure(gateway.approve('two'), 'ERR_CONFIG_INVALID'), 'mcpServers.two.env.A', '"without"', 'onInput')
    const throwing = await openGateway(t, {}, { config, onInput: () => Promise.reject(new Error('nobody at home')) })
    names(await failure(throwing.approve('two'), 'ERR_HOST_FUNCTION'), 'onInput', 'nobody at home')
    assert.throws(two.read, { code: 'ENOENT' })
  })

  test('from a file of variables, under which those of env stand', async (t) => {
    const { entry, read } = teller(t)
    const path = folder(t)
    const lines = ['# ours', '', 'export A=1 # one', "B='two $A'", 'C="three\\nlines"', 'D=file', 'D=last', 'A.b-c=dotted']
    writeFileSync(join(path, '.env'), `\uFEFF${lines.join('\r\n')}`)
    const gateway = await openGateway(t, { a: { ...entry, env: { D: 'config' }, envFile: '.env' } }, { workspaceFolder: path })
    assert.equal((await gateway.approvalRequest('a')).envFile, '.env')
    await gateway.approve('a')
    const { A, B, C, D } = read()
    assert.deepEqual([A, B, C, D], ['1', 'two $A', 'three', 'config'])
  })

  test('or not: a file that is not there, or has wrong lines, is an error that names each line and no value', async (t) => {
    const path = folder(t)
    writeFileSync(join(path, 'bad.env'), 'FINE=1\nno equals sign hunter2\n=hunter2\nA="open hunter2')
    const servers = { gone: { ...fixture(), envFile: 'gone.env' }, bad: { ...fixture(), envFile: 'bad.env' } }
    const gateway = await openGateway(t, servers, { workspaceFolder: path })
    names(await failure(gateway.approve('gone'), 'ERR_CONFIG_INVALID'), 'mcpServers.gone.envFile', 'gone.env')
    const error = await failure(gateway.approve('bad'), 'ERR_CONFIG_INVALID')
    names(error, 'bad.env:2:1: ', 'bad.env:3:1: ', 'bad.env:4:')
    assert.ok(!error.message.includes('hunter2'), error.message)
  })
})

describe('What is wrong', () => {
  test('as a whole fails open, with file, line and column', async (t) => {
    for (const [text, code, ...words] of [
      ['{\n  "mcpServers": {,}\n}', 'ERR_CONFIG_SYNTAX', ':2:18: '],
      ['{ "mcpServers": {}\n', 'ERR_CONFIG_SYNTAX', ':1:1: ', 'Unterminated object'],
      ['not json', 'ERR_CONFIG_SYNTAX', ':1:1: '],
      ["{ 'mcpServers': {} }", 'ERR_CONFIG_SYNTAX', ':1:3: '],
      ['[]', 'ERR_CONFIG_INVALID', ':1:1: ', 'must be an object'],
      ['{ "mcpServers": [] }', 'ERR_CONFIG_INVALID', ':1:17: mcpServers: must be an object'],
      ['{ "servers": null }', 'ERR_CONFIG_INVALID', ':1:14: servers: must be an object'],
      [
        '{ "mcpServers": { "a": { "command": "x" },\n "a": { "command": "y" } } }',
        'ERR_CONFIG_INVALID',
        ':2:2: mcpServers.a: this key is used twice',
      ],
      [
        '{ "mcpServers": { "a": { "command": "x", "command": "y" } } }',
        'ERR_CONFIG_INVALID',
        'mcpServers.a.command: this key is used twice',
      ],
      [
        '{ "mcpServers": { "a": { "command": "x" } }, "servers": { "a": { "command": "y" } } }',
        'ERR_CONFIG_INVALID',
        'servers.a: this name is used twice: mcpServers has it too',
      ],
    ]) {
      names(await failure(openFile(t, text), code), './config.json', ...words)
    }
  })

  test('as a whole is told together with all that is wrong besides', async (t) => {
    const error = await failure(openFile(t, '{ "servers": 5,\n "mcpServers": { "a": { "command": 7 },\n "B": {} } }'), 'ERR_CONFIG_INVALID')
    names(error, 'has 4 problems', './config.json:1:14: servers', ':2:36: mcpServers.a.command', 'mcpServers.B: ')
  })

  test('of one server is listed with all its problems and their places; the others go on', async (t) => {
    const { gateway, events } = await openFile(
      t,
      `{
  // ours
  "mcpServers": {
    "bad": { "command": 5,
      "args": ["y", 2],
      "env": { "A": {} }, },
    "good": ${JSON.stringify(fixture())},
  },
}`,
    )
    assert.deepEqual(states(gateway), { bad: 'invalid', good: 'unapproved' })
    const { lastError, ...status } = statusOf(gateway, 'bad')
    assert.deepEqual(status, {
      name: 'bad',
      state: 'invalid',
      approved: false,
      enabled: false,
      source: { kind: 'config' },
      tools: [],
      quarantined: [],
    })
    assert.equal(lastError.code, 'ERR_CONFIG_INVALID')
    const problems = [
      'has 3 problems',
      ':4:25: mcpServers.bad.command: ',
      ':5:21: mcpServers.bad.args[1]: ',
      ':6:21: mcpServers.bad.env.A: ',
    ]
    names(lastError, ...problems)
    for (const attempt of ['approvalRequest', 'approve', 'enable', 'test']) {
      names(await failure(gateway[attempt]('bad'), 'ERR_CONFIG_INVALID'), ...problems)
    }
    await failure(gateway.callTool('bad', 'echo', {}), 'ERR_CONFIG_INVALID')
    const [event] = await waitFor('the warning', () => events.length > 0 && events)
    assert.equal(event.type, 'warning')
    names(event, '"bad"', ...problems)
    await gateway.approve('good')
    await gateway.enable('good')
    assert.equal((await gateway.callTool('good', 'echo', { value: 1 })).isError, false)
    assert.equal((await (await gateway.sandbox()).run('export const handler = () => 1')).value, 1)
  })

  test('of one field names that field', async (t) => {
    const a = (server) => [{ mcpServers: { a: server } }, 'a']
    const x = (more) => a({ command: 'x', ...more })
    const cases = [
      [...a('x'), 'mcpServers.a: '],
      [...a({}), 'mcpServers.a: needs a command or a url'],
      [...a({ command: 1 }), 'mcpServers.a.command'],
      [...a({ command: '' }), 'mcpServers.a.command'],
      [...x({ args: 'y' }), 'mcpServers.a.args'],
      [...x({ args: ['y', 2] }), 'mcpServers.a.args[1]'],
      [...x({ env: ['A=1'] }), 'mcpServers.a.env'],
      [...x({ env: { A: {} } }), 'mcpServers.a.env.A'],
      [...x({ env: { 'A=B': 'x' } }), 'mcpServers.a.env.A=B'],
      [...x({ envFile: 1 }), 'mcpServers.a.envFile'],
      [...x({ cwd: 5 }), 'mcpServers.a.cwd'],
      [...x({ disabled: 'yes' }), 'mcpServers.a.disabled'],
      [...x({ timeoutMs: 0 }), 'mcpServers.a.timeoutMs'],
      [...x({ connectTimeoutMs: 1.5 }), 'mcpServers.a.connectTimeoutMs'],
      [...x({ confirm: 'maybe' }), 'mcpServers.a.confirm'],
      [...x({ allowTools: 'echo' }), 'mcpServers.a.allowTools'],
      [...x({ denyTools: [1] }), 'mcpServers.a.denyTools[0]'],
      [...x({ pinExecutable: 1 }), 'mcpServers.a.pinExecutable'],
      [...x({ type: 'pipe' }), 'mcpServers.a.type'],
      [...a({ url: 'https://example.com', type: 'sse' }), 'mcpServers.a.type', 'http'],
      [...a({ type: 'http', command: 'x' }), 'mcpServers.a.url'],
      [...x({ env: { A: $('input:nobody') } }), 'mcpServers.a.env.A', '"nobody"'],
      [{ ...x({ env: { A: $('input:b') } })[0], inputs: [{ type: 'command', id: 'b' }] }, 'a', 'inputs[0].type', 'mcpServers.a.env.A'],
      ...['A', '1a', 'a_b', '', 'mcp', 'gateway', 'fetch', 'fs-read', 'fs-write', 'ha:x', 'host:x', 'ä'].map((name) => [
        { mcpServers: { [name]: { command: 'x' } } },
        name,
        `mcpServers.${name}`,
      ]),
    ]
    for (const [config, name, ...words] of cases) {
      const gateway = await openGateway(t, {}, { config })
      const status = statusOf(gateway, name)
      assert.deepEqual([status?.state, status?.lastError?.code], ['invalid', 'ERR_CONFIG_INVALID'], JSON.stringify(config))
      names(status.lastError, ...words)
    }
  })

  test('of a name that is far too long is listed, cut', async (t) => {
    const gateway = await openGateway(t, { ['a'.repeat(100_000)]: { command: 'x' } })
    const [{ name, state, lastError }] = gateway.servers()
    assert.equal(state, 'invalid')
    assert.ok(name.length < 200 && lastError.message.length < 1000, `${name.length}, ${lastError.message.length}`)
  })

  test('of the file itself: it must be there, and be one', async (t) => {
    const path = folder(t)
    const open = (configPath) => Gateway.open({ configPath, stateDir: join(path, 'state'), workspaceFolder: path })
    names(await failure(open(join(path, 'gone.json')), 'ERR_CONFIG_UNREADABLE'), './gone.json')
    await failure(open(path), 'ERR_CONFIG_UNREADABLE')
  })
})

test('twenty servers are read, and one more is an error, whether they are valid or not', async (t) => {
  const entry = { command: 'x' }
  const many = (count, last = entry) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`s${i}`, i + 1 < count ? entry : last]))
  assert.equal((await openGateway(t, many(20))).servers().length, 20)
  for (const last of [entry, { command: 5 }]) {
    names(await failure(openGateway(t, many(21, last)), 'ERR_TOO_MANY_SERVERS'), '21', '20', 'maxServers')
  }
  assert.equal((await openGateway(t, many(21), { limits: { maxServers: 21 } })).servers().length, 21)
})

describe('reload', () => {
  const nothing = { added: [], removed: [], changed: [], invalid: [], warnings: [] }

  test('tells what is new, gone, changed and invalid, and touches nothing else', async (t) => {
    const { gateway, write } = await openFile(t, { mcpServers: { same: fixture(), other: fixture(), gone: fixture() } })
    const pids = {}
    const pid = async (name) => (await gateway.callTool(name, 'pid')).structuredContent.pid
    for (const name of ['same', 'other', 'gone']) {
      await gateway.approve(name)
      await gateway.enable(name)
      pids[name] = await pid(name)
    }
    assert.deepEqual(await gateway.reload(), nothing)
    assert.equal(await pid('other'), pids.other)
    write({ mcpServers: { same: fixture(), other: fixture('--noise'), fresh: fixture(), bad: { command: 5 } } })
    const report = await gateway.reload()
    const sorted = { ...report, added: [...report.added].sort() }
    assert.deepEqual(sorted, { ...nothing, added: ['bad', 'fresh'], removed: ['gone'], changed: ['other'], invalid: ['bad'] })
    assert.deepEqual(states(gateway), { same: 'connected', other: 'unapproved', fresh: 'unapproved', bad: 'invalid' })
    assert.equal(await pid('same'), pids.same)
    assert.deepEqual([isAlive(pids.other), isAlive(pids.gone)], [false, false])
    names(await failure(gateway.callTool('other', 'pid'), 'ERR_NOT_APPROVED'), 'changed')
    await failure(gateway.callTool('gone', 'pid'), 'ERR_UNKNOWN_SERVER')
    assert.match((await gateway.approvalRequest('other')).lapsed, /changed/)
  })

  test('changes nothing where the file cannot be read or is wrong as a whole', async (t) => {
    const { gateway, write } = await openFile(t, { mcpServers: { a: fixture() } })
    await gateway.approve('a')
    await gateway.enable('a')
    const before = gateway.servers()
    for (const [text, code] of [
      ['{ "mcpServers": {', 'ERR_CONFIG_SYNTAX'],
      ['{ "mcpServers": 5 }', 'ERR_CONFIG_INVALID'],
      ['{ "mcpServers": {}, "mcpServers": {} }', 'ERR_CONFIG_INVALID'],
    ]) {
      write(text)
      names(await failure(gateway.reload(), code), './config.json')
      assert.deepEqual(gateway.servers(), before)
    }
    assert.equal((await gateway.callTool('a', 'echo', { value: 1 })).isError, false)
  })

  test('needs no approval for what decides nothing of what would run', async (t) => {
    const { gateway, write } = await openFile(t, { mcpServers: { a: fixture() } })
    await gateway.approve('a')
    await gateway.enable('a')
    write({ mcpServers: { a: { ...fixture(), timeoutMs: 5000 } } })
    assert.deepEqual(await gateway.reload(), { ...nothing, changed: ['a'] })
    assert.equal((await gateway.callTool('a', 'echo', { value: 1 })).isError, false)
  })

  test('ends a call that is pending at a server that changed', async (t) => {
    const log = join(folder(t), 'log')
    const { gateway, write } = await openFile(t, { mcpServers: { a: fixture('--log', log) } })
    await gateway.approve('a')
    await gateway.enable('a')
    const pending = failure(gateway.callTool('a', 'hang'), 'ERR_NOT_APPROVED')
    await waitFor('the call to arrive', () => readFileSync(log, 'utf8').includes('"hang"'))
    write({ mcpServers: { a: fixture('--noise') } })
    await gateway.reload()
    await pending
  })
})
