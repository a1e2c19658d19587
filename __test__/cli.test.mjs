// The program hyperlight-mcp, as a person runs it: real processes, and a real pseudo-terminal (util-linux `script`) where a person is asked.
import assert from 'node:assert/strict'
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import {
  compiled,
  endOf,
  fixture,
  folder,
  gated,
  isAlive,
  listenTo,
  logLines,
  ms,
  outputOf,
  root,
  start,
  typed,
  waitFor,
} from './support.mjs'

const program = join(root, 'bin/hyperlight-mcp.mjs')
const LIMIT = ms(60_000)
const small = (...args) => gated('--tools', 'get-forecast,write_note,sleep', ...args)

/** A home and a working folder of their own; with servers, their config. */
function place(t, servers) {
  const home = folder(t)
  const work = join(home, 'work')
  mkdirSync(work)
  if (servers) {
    mkdirSync(join(home, '.hyperagent'), { mode: 0o700 })
    writeFileSync(join(home, '.hyperagent/config.json'), JSON.stringify({ mcpServers: servers }))
  }
  return { t, home, work }
}

const environment = ({ home }, more) => ({ PATH: process.env.PATH, HOME: home, ...more })

/** Runs the program to its end. */
function run(at, words, { input = '', env = {}, onStart = () => {} } = {}) {
  const child = listenTo(at.t, process.execPath, [program, ...words], { cwd: at.work, env: environment(at, env), limit: LIMIT })
  const ended = endOf(child)
  child.stdin.on('error', () => {}).end(input)
  onStart(child, child.output)
  return ended
}

/** Runs it at a terminal of 80 columns; each pair is what is waited for and what is typed then. */
function atTerminal(at, words, dialogue, { env = {} } = {}) {
  const command = [process.execPath, program, ...words].map((word) => `'${word}'`).join(' ')
  return typed(at.t, command, dialogue, { cwd: at.work, env: environment(at, env), limit: LIMIT })
}

async function approved(t, servers) {
  const at = place(t, servers)
  for (const name of Object.keys(servers)) {
    for (const stage of ['command', 'manifest']) {
      const { stdout } = await run(at, ['approve', name, '--json'])
      const { request } = JSON.parse(stdout).servers[0]
      assert.equal(request.stage, stage)
      await run(at, ['approve', name, '--digest', request.digest])
    }
  }
  return at
}

const write = ({ work }, name, text) => writeFileSync(join(work, name), text)

test('a new user: import, approve, types, check and run, from an empty folder', async (t) => {
  const at = place(t)
  assert.equal(JSON.parse((await run(at, ['list', '--json'])).stdout).error.code, 'ERR_NO_CONFIG')
  const nothing = await run(at, ['list'])
  assert.equal(nothing.code, 1)
  assert.match(nothing.stderr, /there is no config .*\n[\s\S]*import --write[\s\S]*mcpServers/)
  mkdirSync(join(at.work, '.vscode'))
  const theirs = { servers: { 'My Weather': { ...fixture('--tools', 'get-forecast'), type: 'stdio' } } }
  write(at, '.vscode/mcp.json', `// theirs\n${JSON.stringify(theirs)}`)
  const imported = await run(at, ['import', '--write'])
  assert.equal(imported.code, 0, imported.stderr)
  assert.match(imported.stdout, /my-weather from VS Code[\s\S]*The new servers are not approved yet/)
  assert.equal(statSync(join(at.home, '.hyperagent/config.json')).mode & 0o777, 0o600)
  const yes = await atTerminal(
    at,
    ['approve'],
    [
      ['Approve? [y/N]', 'y\n'],
      ['Approve? [y/N]', 'y\n'],
    ],
  )
  assert.equal(yes.code, 0, yes.text)
  assert.match(yes.text, /stage 1 of 2[\s\S]*stage 2 of 2[\s\S]*my-weather: approved/)
  assert.equal((await run(at, ['types'])).code, 0)
  write(
    at,
    'script.ts',
    'import { get_forecast } from "host:mcp-my-weather";\nexport const handler = (input: { city: string }) => get_forecast({ location: input.city });\n',
  )
  const types = readFileSync(join(at.work, 'hyperlight-mcp.d.ts'), 'utf8')
  assert.equal(compiled(t, { 'hyperlight-mcp.d.ts': types, 'script.ts': readFileSync(join(at.work, 'script.ts'), 'utf8') }), '')
  const checked = await run(at, ['check', 'script.ts'])
  assert.equal(checked.code, 0, checked.stderr)
  const ran = await run(at, ['run', 'script.ts', '--input', '{ "city": "Austin" }'])
  assert.equal(ran.code, 0, ran.stderr)
  assert.deepEqual(JSON.parse(ran.stdout), { temperature: 93, conditions: 'sunny' })
})

test('a person sees all of a request within 80 columns, and no is the answer of whoever says nothing', async (t) => {
  const at = place(t, { weather: { ...small(), env: { API_KEY: 'sk-live-0123456789abcdef' } } })
  for (const answer of ['n\n', '\n', 'maybe\n', '\u0004']) {
    const { code, text, unanswered } = await atTerminal(at, ['approve', 'weather'], [['Approve? [y/N]', answer]])
    assert.equal(unanswered, 0, text)
    assert.equal(code, 1, text)
    assert.match(text, /weather: not approved/)
    assert.match(text, /API_KEY=sk-l\*\*\*/)
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours take no room
    for (const line of text.replace(/\u001b\[[0-9;]*m/g, '').split('\n')) assert.ok([...line].length <= 80, line)
  }
  assert.match((await run(at, ['list'])).stdout, /unapproved/)
})

test('without a terminal, approve prints the request and the digest to pass, and a wrong one approves nothing', async (t) => {
  const at = place(t, { weather: small() })
  const shown = await run(at, ['approve', 'weather'])
  assert.equal(shown.code, 1)
  const [, digest] = /approve weather --digest ([0-9a-f]{64})/.exec(shown.stdout)
  const wrong = await run(at, ['approve', 'weather', '--digest', '0'.repeat(64)])
  assert.equal(wrong.code, 1)
  assert.match(wrong.stderr, /this digest does not match/)
  const first = await run(at, ['approve', 'weather', '--digest', digest])
  const [, second] = /approve weather --digest ([0-9a-f]{64})/.exec(first.stdout)
  assert.notEqual(second, digest)
  assert.equal((await run(at, ['approve', 'weather', '--digest', second])).code, 0)
  assert.equal(JSON.parse((await run(at, ['list', '--json'])).stdout).servers[0].approved, true)
  assert.equal((await run(at, ['revoke', 'weather'])).code, 0)
  assert.equal(JSON.parse((await run(at, ['info', 'weather', '--json'])).stdout).approved, false)
})

test('wrong usage is one message on standard error, with what was meant, and exit code 2', async (t) => {
  const at = place(t, { weather: small() })
  for (const [words, says] of [
    [['lst'], /'list'/],
    [['run'], /<FILE>/],
    [['run', 'a.js', '--inptu', '1'], /'--input'/],
    [['approve', '--digest', 'x'], /name that server/],
    [['import', '--from', 'x'], /name that program/],
    [[], /Usage/],
  ]) {
    const { code, stdout, stderr } = await run(at, words)
    assert.deepEqual([code, stdout], [2, ''], words.join(' '))
    assert.match(stderr, says)
    const json = await run(at, [...words, '--json'])
    const { error } = JSON.parse(json.stdout)
    assert.deepEqual([json.code, error.code], [2, 'ERR_USAGE'], words.join(' '))
    assert.match(error.message, words.length > 0 ? says : /subcommand/)
  }
  write(at, 'a.js', 'export const handler = () => 1')
  assert.equal((await run(at, ['run', 'a.js', '--input', 'text'])).code, 2)
})

test('a value is cut as a model would be given it, where that is asked for', async (t) => {
  const at = place(t, {})
  write(at, 'long.js', 'export const handler = () => Array.from({ length: 1000 }, (_, id) => ({ id }))')
  const { code, stdout, stderr } = await run(at, ['run', 'long.js', '--max-result-tokens', '100', '--json'])
  assert.equal(code, 0, stderr)
  const { value, omitted } = JSON.parse(stdout)
  assert.deepEqual([omitted[0].kind, omitted[0].of], ['items', 1000])
  assert.ok(value.length < 100)
  assert.match((await run(at, ['run', 'long.js', '--max-result-tokens', '100'])).stderr, /was cut to 100 tokens/)
  assert.match((await run(at, ['run', 'long.js', '--max-result-tokens', '5'])).stderr, /at least 100/)
})

test('what fails is one message on standard error and exit code 1, also as JSON', async (t) => {
  const at = place(t, { weather: small() })
  write(at, 'my config.json', JSON.stringify({ mcpServers: { weather: small() } }))
  for (const [words, says] of [
    [['run', 'none.js'], /there is no file none\.js/],
    [['info', 'wether'], /did you mean "weather"/],
    [['test', 'weather'], /not approved.*hyperlight-mcp approve weather/],
    [['list', '--config', 'none.json'], /none\.json cannot be read/],
    [['test', 'weather', '--config', 'my config.json'], /hyperlight-mcp approve weather --config 'my config\.json'/],
  ]) {
    const { code, stdout, stderr } = await run(at, words)
    assert.deepEqual([code, stdout], [1, ''], words.join(' '))
    assert.match(stderr, says)
    const json = await run(at, [...words, '--json'])
    assert.equal(json.code, 1)
    assert.match(JSON.parse(json.stdout).error.message, says)
  }
})

test('a script that fails shows its own line, and a server that is not approved is named', async (t) => {
  const at = place(t, { weather: small() })
  write(at, 'throws.js', 'export function handler(input) {\n  return input.missing()\n}\n')
  const thrown = await run(at, ['run', 'throws.js', '--input', '{}'])
  assert.equal(thrown.code, 1)
  assert.match(thrown.stderr, /throws\.js:2:\d+: TypeError: .*\n {2}2 \| {3}return input\.missing\(\)\n {4}\| +\^/)
  write(at, 'imports.js', 'import { x } from "host:mcp-weather"\nexport const handler = () => x()\n')
  const missing = await run(at, ['run', 'imports.js'])
  assert.match(missing.stderr, /imports\.js:1[\s\S]*server "weather" is not approved: hyperlight-mcp approve weather/)
  const checked = await run(at, ['check', 'imports.js'])
  assert.equal(checked.code, 1)
  assert.match(checked.stderr, /imports\.js:1:\d+: /)
})

test('a value is JSON on standard output, logs are on standard error, and nothing drives a terminal', async (t) => {
  const at = place(t)
  write(at, 's.js', 'export const handler = (n) => { console.warn("\\u001b[31mred"); return n === 1 ? "a\\u202eb" : { n } }')
  const value = await run(at, ['run', 's.js', '--input', '2'])
  assert.deepEqual([value.code, value.stdout, value.stderr], [0, '{\n  "n": 2\n}\n', 'warn: red\n'])
  assert.equal((await run(at, ['run', 's.js', '--input', '1'])).stdout, '"a\\u202eb"\n')
  assert.equal((await run(at, ['run', 's.js', '--input', '1', '--raw'])).stdout, 'a\u202eb\n')
  const json = JSON.parse((await run(at, ['run', '-', '--json'], { input: 'export const handler = () => [1]' })).stdout)
  assert.deepEqual([json.value, json.logs, json.warnings], [[1], [], []])
  const endless = await run(at, ['run', '-', '--timeout', '1ms'], { input: 'export const handler = () => { for (;;); }' })
  assert.equal(endless.code, 1)
  assert.match(endless.stderr, /1 ms/)
})

test('no line of a script looks like one of the program', async (t) => {
  const at = place(t)
  write(
    at,
    's.js',
    'export const handler = () => { console.log("a\\nhyperlight-mcp: b\\r\\nwarning: c"); throw new Error("d\\nwarning: e") }',
  )
  const { code, stderr } = await run(at, ['run', 's.js'])
  assert.equal(code, 1)
  assert.match(stderr, /^log: a\n {2}\| hyperlight-mcp: b\n {2}\| warning: c\nhyperlight-mcp: s\.js(:\d+)*: Error: d\n {2}\| warning: e\n/)
  const { error } = JSON.parse((await run(at, ['run', 's.js', '--json'])).stdout)
  assert.match(error.message, /d\nwarning: e/)
})

test('writes are refused without a terminal unless they are named, and asked for at one', async (t) => {
  const at = await approved(t, { weather: small() })
  write(at, 'note.js', 'import { write_note } from "host:mcp-weather"\nexport const handler = () => write_note({ text: "x" })\n')
  const refused = await run(at, ['run', 'note.js'])
  assert.match(refused.stderr, /weather\.write_note was not called: .* --allow-writes weather\.write_note/)
  assert.equal(JSON.parse(refused.stdout).code, 'ERR_CALL_DENIED')
  for (const allowed of ['weather', 'weather.write_note']) {
    assert.equal((await run(at, ['run', 'note.js', '--allow-writes', allowed])).stdout, '"noted"\n')
  }
  assert.equal(JSON.parse((await run(at, ['run', 'note.js', '--allow-writes', 'weather.other'])).stdout).code, 'ERR_CALL_DENIED')
  const mistyped = await run(at, ['run', 'note.js', '--allow-writes', 'weather.write_notes'])
  assert.match(mistyped.stderr, /--allow-writes: server "weather" has no approved tool "write_notes": did you mean "write_note"/)
  assert.match((await run(at, ['run', 'note.js', '--allow-writes', 'wether'])).stderr, /did you mean "weather"/)
  const question = 'Call it? [o]nce, for this [r]un, for this [s]ession, [N]o: '
  assert.match((await atTerminal(at, ['run', 'note.js'], [[question, 'o\n']])).text, /"text": "x"[\s\S]*"noted"/)
  for (const no of ['\n', 'y\n', 'yes\n']) {
    assert.match((await atTerminal(at, ['run', 'note.js'], [[question, no]])).text, /ERR_CALL_DENIED/, no)
  }
})

test('what is too long for a question is said to be cut, and shown whole to whoever wants to see it', async (t) => {
  const at = await approved(t, { weather: small() })
  const text = '"x".repeat(9000) + " hidden in the middle " + "y".repeat(9000)'
  write(at, 'note.js', `import { write_note } from "host:mcp-weather"\nexport const handler = () => write_note({ text: ${text} })\n`)
  const question = 'Call it? [o]nce, for this [r]un, for this [s]ession, show [a]ll of it, [N]o: '
  const all = [
    [question, 'a\n'],
    ['hidden in the middle', ''],
    [question, 'o\n'],
  ]
  const shown = await atTerminal(at, ['run', 'note.js'], all)
  assert.match(shown.text, /1 of its values are cut[\s\S]*hidden in the middle[\s\S]*"noted"/)
  assert.equal(shown.text.split('hidden in the middle').length, 2)
  assert.match((await atTerminal(at, ['run', 'note.js'], [[question, 'n\n']])).text, /ERR_CALL_DENIED/)
})

test('a form shows what is sent where nothing is typed, and all that is sent before it is', async (t) => {
  const log = join(folder(t), 'log')
  const at = await approved(t, { asker: { ...fixture('--log', log), confirm: 'never' } })
  const schema = {
    type: 'object',
    required: ['wipe'],
    properties: {
      remarks: { type: 'string' },
      wipe: { type: 'boolean', title: 'also delete all backups', default: true },
      mode: { type: 'string', enum: ['safe', 'danger'], default: 'danger' },
    },
  }
  write(
    at,
    'ask.js',
    `import { elicit } from "host:mcp-asker"; export const handler = () => elicit(${JSON.stringify({ message: 'Any remarks?', schema })})`,
  )
  const ask = (answer) =>
    atTerminal(
      at,
      ['run', 'ask.js'],
      [
        ['remarks (string): ', '\n'],
        ['also delete all backups (yes or no, required) [yes]: ', '\n'],
        ['mode (safe | danger) [danger]: ', '\n'],
        ['Send this?', answer],
      ],
    )
  const { text, unanswered, code } = await ask('y\n')
  assert.deepEqual([unanswered, code], [0, 0], text)
  assert.match(text, /would be sent to "asker":\n\{\n {2}"wipe": true,\n {2}"mode": "danger"\n\}\nSend this\?/)
  assert.match(text.slice(text.indexOf('Send this?')), /"accept"[\s\S]*"wipe": true/)
  assert.match((await ask('n\n')).text, /"decline"/)
})

test('what was typed before a question stood there is no answer to it', async (t) => {
  const at = await approved(t, { weather: small() })
  write(at, 'note.js', 'import { write_note } from "host:mcp-weather"\nexport const handler = () => write_note({ text: "x" })\n')
  const typedAhead = "printf 'ready\\n'; read first; printf 'typed %s\\n' \"$first\";"
  const words = [process.execPath, program, 'run', 'note.js'].map((word) => `'${word}'`).join(' ')
  const question = 'Call it? [o]nce, for this [r]un, for this [s]ession, [N]o: '
  // The shell takes the first line; the second one is in the terminal's queue before the program starts.
  const { text, unanswered } = await typed(
    t,
    `${typedAhead} ${words}`,
    [
      ['ready', 'first\ns\n'],
      [question, 'n\n'],
    ],
    { cwd: at.work, env: environment(at), limit: LIMIT },
  )
  assert.equal(unanswered, 0, text)
  assert.match(text, /typed first[\s\S]*ERR_CALL_DENIED/)
})

test('a secret is not shown while it is typed, and what is typed afterwards is', async (t) => {
  const input = 'what-nobody-sees'
  const at = place(t, { weather: small() })
  writeFileSync(
    join(at.home, '.hyperagent/config.json'),
    JSON.stringify({
      inputs: [{ type: 'promptString', id: 'key', description: 'The key', password: true }],
      mcpServers: { weather: { ...small(), env: { TEST_KEY: `\${${'input:key'}}` } } },
    }),
  )
  const { code, text, unanswered } = await typed(
    t,
    `'${process.execPath}' '${program}' approve weather; stty -a`,
    [
      ['Approve? [y/N]', 'y\n'],
      ['The key (not shown): ', `${input}\n`],
      ['Approve? [y/N]', 'y\n'],
    ],
    { cwd: at.work, env: environment(at), limit: LIMIT },
  )
  assert.deepEqual([code, unanswered], [0, 0], text)
  assert.ok(!text.includes(input), text)
  assert.match(text, /weather: approved[\s\S]*\secho\s/)
})

test('only the servers that are named are there', async (t) => {
  const at = await approved(t, { weather: small(), other: small() })
  write(at, 's.js', 'import { tools } from "host:mcp"\nexport const handler = () => Object.keys(tools())\n')
  const modules = async (...words) => JSON.parse((await run(at, ['types', '--out', '-', '--json', ...words])).stdout).modules
  assert.deepEqual(await modules(), ['host:mcp', 'host:mcp-other', 'host:mcp-weather'])
  assert.deepEqual(await modules('--servers', 'other'), ['host:mcp', 'host:mcp-other'])
  assert.match((await run(at, ['run', 's.js', '--servers', 'none'])).stderr, /there is no server "none"/)
})

/** The names of a process's threads. */
function threads(pid) {
  return readdirSync(`/proc/${pid}/task`).map((id) => {
    try {
      return readFileSync(`/proc/${pid}/task/${id}/comm`, 'utf8').trim()
    } catch {
      return 'it has ended meanwhile'
    }
  })
}

/** Whether the program has its signals in hand: SIGHUP is the last one that it takes, and the one that Node itself leaves alone. */
function catchesHangup(pid) {
  const [, mask] = /^SigCgt:\s*([0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
  return (BigInt(`0x${mask}`) & 1n) === 1n
}

test('Ctrl-C ends what waits for standard input with exit code 130', async (t) => {
  const at = place(t, {})
  for (const words of [
    ['run', '-'],
    ['check', '-'],
  ]) {
    const child = start(t, process.execPath, [program, ...words], { cwd: at.work, env: environment(at), limit: LIMIT })
    const ended = new Promise((resolve) => child.on('close', resolve))
    await waitFor('the thread that reads', () => threads(child.pid).includes('mcp-read') && catchesHangup(child.pid), ms(20_000))
    child.kill('SIGINT')
    assert.equal(await ended, 130, words.join(' '))
  }
})

test('Ctrl-C ends a run and its servers with exit code 130', async (t) => {
  const log = join(folder(t), 'log')
  const at = await approved(t, { weather: small('--log', log) })
  write(at, 's.js', 'import { sleep } from "host:mcp-weather"\nexport const handler = () => sleep({ ms: 50000 })\n')
  const started = performance.now()
  const { code } = await run(at, ['run', 's.js'], {
    onStart: async (child) => {
      await waitFor('the call', () => logLines(log).some(({ name }) => name === 'sleep'), ms(20_000))
      child.kill('SIGINT')
    },
  })
  assert.equal(code, 130)
  assert.ok(performance.now() - started < ms(30_000))
  const { pid } = logLines(log).findLast(({ event }) => event === 'spawn')
  await waitFor('the server to be gone', () => !isAlive(pid))
})

test('logs tells in another process why a server failed', async (t) => {
  const at = place(t, { bad: small('--stderr', 'no such database', '--exit-at-start', '3') })
  const { digest } = JSON.parse((await run(at, ['approve', 'bad', '--json'])).stdout).servers[0].request
  const failed = await run(at, ['approve', 'bad', '--digest', digest])
  assert.match(failed.stderr, /hyperlight-mcp logs bad/)
  const { stdout } = await run(at, ['logs', 'bad'])
  assert.match(stdout, /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d stderr no such database$/m)
  assert.match(stdout, / failed /)
})

test('doctor names what is wrong and how to fix it, and finds no problem on a sound machine', async (t) => {
  const broken = place(t, { gone: { command: 'no-such-program-here' }, wrong: { command: 5 } })
  const { code, stdout } = await run(broken, ['doctor'])
  assert.equal(code, 1)
  assert.match(stdout, /PROBLEM server gone: its program "no-such-program-here" was not found in PATH\n +→ install/)
  assert.match(stdout, /PROBLEM server wrong: /)
  const sound = await approved(t, { weather: small() })
  const report = JSON.parse((await run(sound, ['doctor', '--json'])).stdout)
  assert.deepEqual(
    report.checks.map(({ what, status }) => `${what} ${status}`),
    ['platform ok', 'watchdog ok', 'state folder ok', 'hypervisor ok', 'config ok', 'server weather ok'],
  )
})

test('import shows first, writes only when told, keeps comments, and points at secrets', async (t) => {
  const at = place(t, {})
  const path = join(at.home, '.hyperagent/config.json')
  writeFileSync(path, '// mine\n{ "mcpServers": {} }\n')
  mkdirSync(join(at.home, '.codex'))
  writeFileSync(
    join(at.home, '.codex/config.toml'),
    '[mcp_servers.docs]\ncommand = "docs"\nenv = { API_KEY = "correct-horse-battery-staple" }\n',
  )
  const shown = await run(at, ['import'])
  assert.match(shown.stdout, /docs from Codex[\s\S]*env\.API_KEY looks like a secret[\s\S]*\$\{API_KEY\}[\s\S]*nothing was written/)
  assert.equal(readFileSync(path, 'utf8'), '// mine\n{ "mcpServers": {} }\n')
  const asked = await atTerminal(at, ['import'], [['[y/N]', 'y\n']])
  assert.match(asked.text, /written into/)
  assert.match(readFileSync(path, 'utf8'), /^\/\/ mine[\s\S]*"docs"/)
  assert.match((await run(at, ['import'])).stdout, /nothing new/)
})

test('import tells of each source that cannot be read, waits for none, and goes on with the others', async (t) => {
  const at = place(t, {})
  for (const name of ['.vscode', '.cursor']) mkdirSync(join(at.work, name))
  outputOf('mkfifo', [join(at.work, '.vscode/mcp.json')])
  symlinkSync('/dev/zero', join(at.work, '.mcp.json'))
  mkdirSync(join(at.home, '.cursor/mcp.json'), { recursive: true })
  write(at, '.cursor/mcp.json', '{ "mcpServers": { "docs": { "command": "docs" } } }')
  const shown = await run(at, ['import'])
  assert.equal(shown.code, 0, shown.stderr)
  assert.match(shown.stdout, /docs from Cursor/)
  for (const source of ['VS Code', 'Claude Code', 'Cursor'])
    assert.match(shown.stderr.replaceAll(/\s+/g, ' '), new RegExp(`${source} \\([^)]*\\) cannot be read: it is not a regular file`))
  const { additions, unreadable } = JSON.parse((await run(at, ['import', '--json'])).stdout)
  assert.deepEqual([additions.map(({ name }) => name), unreadable.length], [['docs'], 3])
  // The one that was named is all that there is to read.
  const named = await run(at, ['import', 'vscode', '--from', '.vscode/mcp.json'])
  assert.notEqual(named.code, 0)
  assert.match(named.stderr, /not a regular file/)
})

test('what cannot be written to standard output is a failure, and whoever reads no more ends --follow', async (t) => {
  const at = place(t, { weather: small() })
  const shell = (command) =>
    typed(t, `'${process.execPath}' '${program}' ${command}`, [], { cwd: at.work, env: environment(at), limit: LIMIT })
  const full = await shell('list > /dev/full')
  assert.equal(full.code, 1, full.text)
  assert.match(full.text, /standard output cannot be written: /)
  const { code, text } = await shell('logs weather --follow | true')
  assert.deepEqual([code, text], [0, ''])
})

test('types --out writes into a pipe, and through a link that leads to nothing yet', async (t) => {
  const at = place(t, { weather: small() })
  symlinkSync('target.d.ts', join(at.work, 'link.d.ts'))
  assert.equal((await run(at, ['types', '--out', 'link.d.ts'])).code, 0)
  assert.match(readFileSync(join(at.work, 'target.d.ts'), 'utf8'), /Written by/)
  assert.ok(lstatSync(join(at.work, 'link.d.ts')).isSymbolicLink())
  // A shell's pipe: Node's own are sockets, which nobody can open.
  const piped = await typed(t, `'${process.execPath}' '${program}' types --out /dev/stdout | cat`, [], {
    cwd: at.work,
    env: environment(at),
  })
  assert.match(piped.text, /Written by/)
})

test('colours are for terminals, and NO_COLOR is respected', async (t) => {
  const at = place(t, { weather: small() })
  assert.ok((await atTerminal(at, ['list'], [])).text.includes('\u001b[1mSERVER'))
  assert.ok(!(await atTerminal(at, ['list'], [], { env: { NO_COLOR: '1' } })).text.includes('\u001b'))
  assert.ok(!(await run(at, ['list'])).stdout.includes('\u001b'))
  assert.ok((await run(at, ['list', '--color', 'always'])).stdout.includes('\u001b'))
})

test('help, version and completion are on standard output', async (t) => {
  const at = place(t)
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  assert.equal((await run(at, ['--version'])).stdout, `hyperlight-mcp ${version}\n`)
  assert.match((await run(at, ['--help'])).stdout, /First steps/)
  for (const shell of ['bash', 'zsh', 'fish']) assert.match((await run(at, ['completion', shell])).stdout, /hyperlight-mcp/)
  assert.ok(!existsSync(join(at.home, '.hyperagent')))
})
