// Tests that a server's secrets appear nowhere. Secrets are put into every place that a config has, and are leaked in every way that a
// server, a guest and the agent's own code have. Then all output is searched for them, in every usual form.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { inspect } from 'node:util'
import { Gateway } from '../index.mjs'
import { afterwards, evaluate, failure, fixture, folder, guest, openApproved, waitFor } from './support.mjs'

/** One secret for each source. Each contains characters that the encodings change. */
const secrets = {
  VARIABLE: 'wR4?"k+/9 vQ~7\\tzß&Lp=0x-VARIABLE',
  FILE: 'hT8>"m+/3 bN~2\\jyß&Gs=5c-FROMFILE',
  INPUT: 'dF1?"q+/6 cX~9\\vuß&Kd=8n-ANINPUT',
  API_KEY: 'pZ5>"s+/2 gM~4\\wkß&Rt=1b-ALITERAL',
}
const percent = (text, format) => [...Buffer.from(text)].map((byte) => `%${format(byte.toString(16).padStart(2, '0'))}`).join('')

/** The forms in which programs write a text. */
const forms = {
  plain: (text) => text,
  base64: (text) => Buffer.from(text).toString('base64'),
  'base64 without padding': (text) => Buffer.from(text).toString('base64').replace(/=+$/, ''),
  'base64 after one byte': (text) => Buffer.from(`:${text}`).toString('base64'),
  'base64 after two bytes': (text) => Buffer.from(`u:${text}`).toString('base64'),
  base64url: (text) => Buffer.from(text).toString('base64url'),
  'base64url after one byte': (text) => Buffer.from(`:${text}`).toString('base64url'),
  'percent-encoded': encodeURIComponent,
  'percent-encoded as a form': (text) => new URLSearchParams({ '': text }).toString().slice(1),
  'percent-encoded as a whole': (text) => percent(text, (digits) => digits.toUpperCase()),
  'percent-encoded as a whole, in lower case': (text) => percent(text, (digits) => digits),
  'JSON-escaped': (text) => JSON.stringify(text),
  'JSON-escaped to ASCII': (text) =>
    JSON.stringify(text).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  'JSON in JSON': (text) => JSON.stringify(JSON.stringify(text)),
  'JSON in JSON in JSON': (text) => JSON.stringify(JSON.stringify(JSON.stringify(text))),
}

/** A row of this many characters of a form is a leak, as a mask shows only four. The ends of base64 depend on the text beside them. */
const WINDOW = 12
const traces = new Map()
/** Each window contains a row of so many characters at every place that is a multiple of STEP, whatever the window's own place is. */
const ROW = 4
const STEP = WINDOW - ROW + 1
const rows = new Set()
for (const [name, secret] of Object.entries(secrets)) {
  for (const [form, write] of Object.entries(forms)) {
    const text = write(secret)
    for (let at = 4; at + WINDOW <= text.length - 4; at++) traces.set(text.slice(at, at + WINDOW), `${name}, ${form}`)
    for (let at = 4; at + ROW <= text.length - 4; at++) rows.add(text.slice(at, at + ROW))
  }
}

/** Returns everything that a value shows, including its hidden fields and causes. */
function faces(value) {
  const found = [
    typeof value === 'string' ? value : inspect(value, { depth: null, showHidden: true, getters: true, maxStringLength: null }),
  ]
  try {
    found.push(String(value), JSON.stringify(value) ?? '')
  } catch {
    // The value has no such form.
  }
  if (value instanceof Error) {
    for (const key of Object.getOwnPropertyNames(value)) found.push(...faces(value[key]))
  }
  return found
}

function assertClean(where, value) {
  const all = faces(value)
  for (const text of all) {
    for (let place = 0; place + ROW <= text.length; place += STEP) {
      if (!rows.has(text.slice(place, place + ROW))) continue
      for (let at = Math.max(0, place - STEP + 1); at <= place; at++) {
        const leak = traces.get(text.slice(at, at + WINDOW))
        if (leak) assert.fail(`${where}: ${leak}: …${text.slice(Math.max(0, at - 60), at + 60)}…`)
      }
    }
  }
  return all.join('\n')
}
/** Checks that something was redacted. This shows that the text was really written there. */
function assertRedacted(where, value) {
  assert.match(assertClean(where, value), /\[redacted\]/, where)
}

/**
 * Opens a gateway with these servers, each of which gets all four secrets. Records everything that the gateway reports while it is open.
 */
async function setUp(t, servers, options) {
  const path = folder(t)
  const stateDir = join(path, 'state')
  process.env.HYPERLIGHT_MCP_TEST_SECRET = secrets.VARIABLE
  writeFileSync(join(path, 'secrets.env'), `# ours\nFILE='${secrets.FILE}'\n`)
  const env = { VARIABLE: `\${HYPERLIGHT_MCP_TEST_SECRET}`, INPUT: `\${input:token}`, API_KEY: secrets.API_KEY }
  const given = Object.entries(servers).map(([name, server]) => [name, { ...server, env, envFile: join(path, 'secrets.env') }])
  const [events, warnings] = [[], []]
  const onWarning = (warning) => warnings.push(warning)
  process.on('warning', onWarning)
  const gateway = await Gateway.open({
    config: { inputs: [{ type: 'promptString', id: 'token', password: true }], mcpServers: Object.fromEntries(given) },
    stateDir,
    guest,
    trace: true,
    onEvent: (event) => events.push(event),
    onInput: () => secrets.INPUT,
    ...options,
  })
  afterwards(t, async () => {
    await gateway.close()
    process.off('warning', onWarning)
    delete process.env.HYPERLIGHT_MCP_TEST_SECRET
  })
  /** Checks everything that can be read at any time. */
  const assertAllClean = () => {
    assertClean('events', events)
    assertClean('process warnings', warnings)
    assertClean('servers()', gateway.servers())
    assertClean('the gateway', gateway)
    for (const name of readdirSync(stateDir, { recursive: true }).filter((name) => statSync(join(stateDir, name)).isFile())) {
      const content = readFileSync(join(stateDir, name))
      for (const encoding of ['utf8', 'latin1', 'hex']) assertClean(`${name} as ${encoding}`, content.toString(encoding))
    }
  }
  return { gateway, events, assertAllClean }
}

async function setUpApproved(t) {
  const made = await setUp(t, { fixture: fixture() })
  await made.gateway.approve('fixture')
  await made.gateway.enable('fixture')
  return { ...made, sandbox: await made.gateway.sandbox() }
}

test('what is looked for would be found', () => {
  for (const secret of Object.values(secrets)) {
    for (const [form, write] of Object.entries(forms)) {
      const error = new Error('fine', { cause: { deep: [new Map([['x', `before ${write(secret)} after`]])] } })
      assert.throws(() => assertClean(form, error), { name: 'AssertionError' }, form)
    }
  }
  assertClean('nothing', new Error('fine'))
})

describe('A server that tells its secrets', () => {
  for (const how of ['error', 'protocol', 'crash']) {
    test(`by ${{ error: "a tool's error", protocol: 'a protocol error', crash: 'its last words' }[how]} tells nobody`, async (t) => {
      const { gateway, sandbox, events, assertAllClean } = await setUpApproved(t)
      for (const name of Object.keys(secrets)) {
        const where = `${name} by ${how}`
        const args = { name, how }
        const leak = `fixture.leak(${JSON.stringify(args)})`
        // The leak as a direct result, as a value in the guest, as an exception there, and as an exception that ends the run.
        assertRedacted(where, await gateway.callTool('fixture', 'leak', args).catch((error) => error))
        assertRedacted(where, await evaluate(sandbox, leak))
        assertRedacted(
          where,
          await evaluate(sandbox, `(() => { try { ${leak} } catch (e) { return [e.message, e.stack, e] } })()`, { toolErrors: 'throw' }),
        )
        assertRedacted(where, await failure(evaluate(sandbox, leak, { toolErrors: 'throw' }), 'ERR_GUEST_THREW'))
        assertRedacted(where, await evaluate(sandbox, `console.error(${leak})`))
        assertAllClean()
      }
      assert.ok(events.some(({ type }) => type === 'call') && events.some(({ type }) => type === 'log'))
    })
  }

  test('in any usual form tells nobody, whoever reports it', async (t) => {
    const { gateway, sandbox, assertAllClean } = await setUpApproved(t)
    const raise = (text) => {
      throw Object.assign(new Error(text), { name: text, stack: text })
    }
    sandbox.hostModule('agent', { raise, later: async (text) => raise(text) })
    for (const [name, secret] of Object.entries(secrets)) {
      for (const [form, write] of Object.entries(forms)) {
        const where = `${name}, ${form}`
        const message = `401 for ${write(secret)}; try again`
        const input = { message }
        for (const tool of ['error', 'protocol_error'])
          assertRedacted(where, await gateway.callTool('fixture', tool, input).catch((error) => error))
        const { value, logs } = await sandbox.run(
          `import * as fixture from "host:mcp-fixture"
          export const handler = (input) => {
            for (const level of ["log", "info", "warn", "error", "debug"]) console[level](input.message)
            return [fixture.error(input), fixture.protocol_error(input)] }`,
          { input },
        )
        for (const answer of value) assertRedacted(where, answer)
        for (const log of logs) assertRedacted(where, log)
        const thrown = 'export const handler = ({ message }) => { const e = new TypeError(message); e.name = message; throw e }'
        assertRedacted(where, await failure(sandbox.run(thrown, { input }), 'ERR_GUEST_THREW'))
      }
      const input = { message: secret }
      assertRedacted(name, (await evaluate(sandbox, 'console.log({ deep: [input] })', { input })).logs)
      for (const f of ['raise', 'later']) {
        const code = `import { ${f} } from "host:agent"; export const handler = ({ message }) => ${f}(message)`
        assertRedacted(name, await failure(sandbox.run(code, { input }), 'ERR_GUEST_THREW'))
      }
      assertRedacted(
        name,
        await failure(sandbox.run(`import ${JSON.stringify(`host:${secret}`)}; export const handler = 1`), 'ERR_CODE_SYNTAX'),
      )
    }
    assertAllClean()
  })

  for (const form of Object.keys(forms)) {
    test(`${form}, in a tool's error, tells nobody`, async (t) => {
      const { gateway } = await setUpApproved(t)
      const written = forms[form](secrets.API_KEY)
      const result = await gateway.callTool('fixture', 'error', { message: written })
      assert.ok(!result.content[0].text.includes(written.slice(8, 8 + 2 * WINDOW)), result.content[0].text)
    })
  }

  test('in a line of standard error that is too long tells nobody, wherever it is cut', async (t) => {
    const servers = [4096, 65_536].flatMap((cut) =>
      [4, 20, 30].map((before) => {
        const line = `'x'.repeat(${cut - before}) + process.env.API_KEY + 'y'.repeat(70_000)`
        return [`cut${cut}-${before}`, { command: process.execPath, args: ['-e', `console.error(${line}); process.exitCode = 3`] }]
      }),
    )
    const { gateway, assertAllClean } = await setUp(t, Object.fromEntries(servers))
    for (const [name] of servers) {
      const error = await failure(gateway.approve(name), 'ERR_SERVER_EXITED')
      assert.match(assertClean(name, error), /xxx.*… \[cut\]/)
      for (let length = 5; length < WINDOW; length++) assert.ok(!error.message.includes(secrets.API_KEY.slice(0, length)), name)
    }
    assertAllClean()
  })

  test('while it is being connected tells nobody', async (t) => {
    const tell = `const all = ['VARIABLE', 'FILE', 'INPUT', 'API_KEY'].map((name) => process.env[name]).join(' and ')`
    const node = (code) => ({ command: process.execPath, args: ['-e', `${tell}; ${code}`] })
    const answer = `require('node:readline').createInterface(process.stdin).on('line', (line) =>
      console.log(JSON.stringify({ jsonrpc: '2.0', id: JSON.parse(line).id, error: { code: -32000, message: all, data: { all } } })))`
    const { gateway, assertAllClean } = await setUp(t, {
      dies: node('console.error(all); process.exitCode = 3'),
      refuses: node(answer),
    })
    for (const [name, code] of [
      ['dies', 'ERR_SERVER_EXITED'],
      ['refuses', 'ERR_CONNECT_FAILED'],
    ]) {
      assertRedacted(name, await failure(gateway.approve(name), code))
      assertRedacted(name, await failure(gateway.test(name), code))
      assertRedacted(name, await failure(gateway.approvalRequest(name), code))
      const { lastError } = gateway.servers().find((server) => server.name === name)
      assert.equal(lastError.code, code)
      assertRedacted(`lastError of ${name}`, lastError)
    }
    assertAllClean()
  })
})

describe('Somebody who chooses a text and sees what is left of it', () => {
  /** Returns right and wrong guesses at the beginning and at the end of a secret, in each form. */
  const guesses = (secret) =>
    Object.values(forms).flatMap((write) => {
      const form = write(secret)
      return [8, 16, Math.floor(form.length / 2)].flatMap((known) => [
        [form.slice(0, known), `${form.slice(0, known - 1)}#`],
        [form.slice(-known), `#${form.slice(1 - known)}`],
      ])
    })
  /** Returns the text without the guess. */
  const beside = (text, guess) => text.replaceAll(guess, '')

  test("learns nothing by an agent's log", async (t) => {
    const { sandbox } = await setUpApproved(t)
    const code = 'export const handler = (all) => { for (const guess of all) { console.log("%s", guess); console.log("%s!", guess) } }'
    for (const secret of Object.values(secrets)) {
      const all = guesses(secret)
      const { logs } = await sandbox.run(code, { input: all.flat() })
      for (const [index, pair] of all.entries()) {
        const [right, wrong] = pair.map((guess, which) =>
          logs.slice(4 * index + 2 * which, 4 * index + 2 * which + 2).map(({ text }) => beside(text, guess)),
        )
        assert.deepEqual(right, wrong, pair[0])
      }
    }
  })

  test('learns nothing by a log that is filled so that its cut follows a guess', async (t) => {
    const limits = { maxLogBytes: 8192 }
    const { gateway } = await setUp(t, { fixture: fixture() }, { limits })
    await gateway.approve('fixture')
    await gateway.enable('fixture')
    const sandbox = await gateway.sandbox()
    const code = 'export const handler = ([fill, guess]) => { console.log("x".repeat(fill) + guess + "y".repeat(9000)) }'
    for (const secret of Object.values(secrets)) {
      for (const known of [8, 16, 20]) {
        const shown = async (guess) => (await sandbox.run(code, { input: [limits.maxLogBytes - known, guess] })).logs
        const [right, wrong] = [secret.slice(0, known), `${secret.slice(0, known - 1)}#`]
        assert.deepEqual(await shown(right), await shown(wrong), right)
      }
    }
  })

  test("learns nothing by a tool's error that ends with its input", async (t) => {
    const { gateway } = await setUpApproved(t)
    for (const secret of Object.values(secrets)) {
      for (const [right, wrong] of guesses(secret)) {
        for (const tool of ['error', 'protocol_error']) {
          const told = async (message) => {
            const answer = await gateway.callTool('fixture', tool, { message }).catch((error) => error)
            return beside(answer.content?.[0].text ?? answer.message, message)
          }
          assert.equal(await told(right), await told(wrong), right)
        }
      }
    }
  })

  test('learns nothing by what only hides, and what hides makes no secret whole', async (t) => {
    const { gateway, sandbox, events } = await setUpApproved(t)
    const divided = [...secrets.API_KEY].join('\u200b')
    const coloured = [...secrets.API_KEY].join('\u001b[0m')
    for (const message of [divided, coloured]) {
      const code = 'export const handler = (message) => { console.log(message); throw new TypeError(message) }'
      const error = await failure(sandbox.run(code, { input: message }), 'ERR_GUEST_THREW')
      assertRedacted('the error', error)
      assertRedacted('the log', error.logs)
      assertRedacted('a protocol error', await failure(gateway.callTool('fixture', 'protocol_error', { message }), 'ERR_PROTOCOL'))
    }
    assertClean('events', events)
  })

  test('a thrown error has nothing in it that drives a terminal', async (t) => {
    const { sandbox } = await setUpApproved(t)
    const thrown = '\u001b[2J\u001b]0;title\u0007\u202egone `code`'
    const code = 'export const handler = (text) => { const e = new Error(text); e.name = text; e.stack = text; throw e }'
    const error = await failure(sandbox.run(code, { input: thrown }), 'ERR_GUEST_THREW')
    assert.equal(error.guest.name, 'gone `code`')
    assert.equal(error.guest.stack, 'gone `code`')
    assert.equal(error.message, 'gone `code`: gone `code`')
  })
})

describe('What a person approves', () => {
  test('shows no secret, neither before the yes nor after it, and the state folder holds none', async (t) => {
    const { gateway, assertAllClean } = await setUp(t, { fixture: fixture() })
    const command = await gateway.approvalRequest('fixture')
    const text = assertClean('the command', command)
    assert.ok(text.includes(`VARIABLE=\${HYPERLIGHT_MCP_TEST_SECRET}`) && text.includes(`INPUT=\${input:token}`), text)
    const shown = command.environment.find((entry) => entry.startsWith('API_KEY=')).slice('API_KEY='.length)
    assert.match(shown, /^.{0,4}\*+$/)
    assertAllClean()
    await gateway.approve('fixture', command.digest)
    assertAllClean()
    const manifest = await gateway.approvalRequest('fixture')
    assertClean('the tools', manifest)
    await gateway.approve('fixture', manifest.digest)
    assertClean('the report', await gateway.test('fixture'))
    assertAllClean()
    await gateway.revoke('fixture')
    assertAllClean()
  })

  test('says what is wrong with an entry without its values', async (t) => {
    const events = []
    const server = {
      ...fixture(),
      env: { API_KEY: `${secrets.API_KEY}\0`, B: [secrets.FILE] },
      args: [{ x: secrets.INPUT }],
      confirm: secrets.VARIABLE,
    }
    const gateway = await Gateway.open({
      config: { mcpServers: { bad: { ...server, cwd: { [secrets.FILE]: 1 } } } },
      stateDir: join(folder(t), 'state'),
      onEvent: (event) => events.push(event),
    })
    afterwards(t, () => gateway.close())
    assertClean('servers()', gateway.servers())
    assertClean('the error', await failure(gateway.approve('bad'), 'ERR_CONFIG_INVALID'))
    assertClean('events', await waitFor('the warning', () => events.length > 0 && events))
  })

  test('an input that fails says so without what was typed', async (t) => {
    const { gateway, assertAllClean } = await setUp(t, { fixture: fixture() }, { onInput: () => ({ typed: secrets.INPUT }) })
    assertClean('the error', await failure(gateway.approve('fixture'), 'ERR_INVALID_OPTION'))
    assertAllClean()
  })
})

describe('Where things are on this computer', () => {
  test('is said in short: ~ for the home folder, . for the workspace, the last two names of other paths', async (t) => {
    const workspaceFolder = folder(t)
    const { gateway } = await setUp(t, { fixture: fixture() }, { workspaceFolder })
    await gateway.approve('fixture')
    await gateway.enable('fixture')
    const said = async (message) =>
      (await failure(gateway.callTool('fixture', 'protocol_error', { message }), 'ERR_PROTOCOL')).message.replace(
        /^.*?: (?=at|see)| \(JSON-RPC.*$/g,
        '',
      )
    assert.equal(await said(`at ${join(workspaceFolder, 'src/a.js')}:1:2`), 'at ./src/a.js:1:2')
    assert.equal(await said(`at ${join(homedir(), 'notes/b.txt')}`), 'at ~/notes/b.txt')
    assert.equal(await said('at /usr/lib/node_modules/x/index.js'), 'at …/x/index.js')
    assert.equal(await said('see https://example.com/a/b/c'), 'see https://example.com/a/b/c')
  })
})

describe('A value that a model reads', () => {
  test('has no secret of the config, and its paths can be used', async (t) => {
    const { gateway } = await setUpApproved(t)
    const [tool] = gateway.agentTools({ include: ['run_javascript'] })
    await gateway.callTool('fixture', 'echo', { value: 1 })
    const given = { path: '/srv/data/prod/db', command: 'run `x` */ now', told: `is ${secrets.VARIABLE}` }
    const code = 'export const handler = (input) => input'
    const answer = await tool.execute({ code, input: given })
    assertRedacted('the answer', answer)
    assert.deepEqual(answer.value, { ...given, told: 'is [redacted]' })
  })
})

test('a result is data and passes as it is: what a tool returns is not touched', async (t) => {
  const { gateway, sandbox } = await setUpApproved(t)
  for (const secret of Object.values(secrets)) {
    assert.equal((await gateway.callTool('fixture', 'echo_text', { text: secret })).content[0].text, secret)
    assert.equal((await evaluate(sandbox, 'fixture.echo_text({ text: input })', { input: secret })).value, secret)
  }
})

test('problems of code do not repeat a secret that is in the code', async (t) => {
  const secret = 'correct-horse-battery-7391'
  const gateway = await openApproved(t, { fixture: { ...fixture(), env: { API_KEY: secret } } })
  await gateway.test('fixture')
  const code = `export const handler = () => fetchAll('${secret}' +* 2)`
  const { problems } = await gateway.check(code)
  assert.equal(problems.length, 1)
  assert.ok(!JSON.stringify(problems).includes(secret.slice(0, 12)), JSON.stringify(problems))
  assert.match(problems[0].excerpt, /\[redacted\]/)
  const run = gateway.agentTools().find(({ name }) => name === 'run_javascript')
  const answer = JSON.stringify(await run.execute({ code, input: null, timeoutMs: null }))
  assert.ok(answer.includes('ERR_CODE_SYNTAX') && !answer.includes(secret.slice(0, 12)), answer)
})
