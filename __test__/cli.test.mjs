// The program hyperlight-mcp, as scripts and other programs run it: real processes, without a terminal.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { approved, environment, LIMIT, place, program, run, small, write } from './command-line.mjs'
import { folder, isAlive, logLines, ms, outputOf, root, start, waitFor } from './support.mjs'

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
  // The first digest again approves the first stage again, and not the second.
  const again = await run(at, ['approve', 'weather', '--digest', digest])
  assert.equal(again.code, 1)
  assert.ok(again.stdout.includes(`approve weather --digest ${second}`), again.stdout)
  assert.doesNotMatch(again.stdout, /weather: approved/)
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
    [['approve', '--digest', 'x'], /name exactly one server/],
    [['import', '--from', 'x'], /name that program/],
    [[], /Usage/],
  ]) {
    const { code, stdout, stderr } = await run(at, words)
    assert.deepEqual([code, stdout], [2, ''], words.join(' '))
    assert.match(stderr, says)
    if (words.length > 0) assert.equal(stderr.trimEnd().split('\n').length, 1, stderr)
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

test('a command that a message suggests is started as this one was', async (t) => {
  const at = place(t)
  assert.match((await run(at, ['list'])).stderr, /^ {2}hyperlight-mcp import --write {3}copies/m)
  const env = { npm_command: 'exec', npm_lifecycle_event: 'npx' }
  assert.match((await run(at, ['list'], { env })).stderr, /^ {2}npx hyperlight-mcp import --write {3}copies/m)
  write(at, 'own.json', '{ "mcpServers": {} }')
  const words = ['--config', 'own.json']
  const toolboxes = (options) => run(at, [...words, 'toolboxes'], options)
  const makes = "hyperlight-mcp toolboxes NAME 'weather/*' 'github/list_*' --config own.json\n"
  assert.ok((await toolboxes()).stdout.includes(`to make one: ${makes}`))
  assert.ok((await toolboxes({ env })).stdout.includes(`to make one: npx ${makes}`))
  const fetching = [...words, 'run', '-', '--fetch', 'api.example.org']
  const input = 'export const handler = () => 1'
  const approves = "hyperlight-mcp approve --fetch 'api.example.org' --config own.json\n"
  assert.ok((await run(at, fetching, { input })).stderr.includes(`approves them with: ${approves}`))
  assert.ok((await run(at, fetching, { input, env })).stderr.includes(`approves them with: npx ${approves}`))
})

test('code within a fence runs, and an import of another file says to bundle first', async (t) => {
  const at = place(t, {})
  for (const [begin, end] of [
    ['```js title="a.js"', '```'],
    ['~~~', '~~~'],
    ['````ts', '````'],
  ]) {
    write(at, 'fenced.ts', `${begin}\nexport const handler = (): string => \`fenced\`\n${end}\n`)
    const ran = await run(at, ['run', 'fenced.ts'])
    assert.deepEqual([ran.code, ran.stdout], [0, '"fenced"\n'], ran.stderr)
  }
  write(at, 'lib.js', 'export const one = 1\n')
  write(at, 'whole.js', 'import { one } from "./lib.js"\nexport const handler = () => one\n')
  const refused = await run(at, ['run', 'whole.js'])
  assert.equal(refused.code, 1)
  assert.match(refused.stderr, /whole\.js:1[\s\S]*\.\/lib\.js[\s\S]*bundle it first/)
})

test('--timeout is honoured beyond runTimeoutMs, --limit sets a limit, and a wrong one is wrong usage', async (t) => {
  const at = place(t)
  const input = 'import { sleep } from "host:mcp"; export const handler = async () => { await sleep(300); return "slept" }'
  const config = { mcpServers: {}, limits: { runTimeoutMs: 100 } }
  write(at, 'limited.json', JSON.stringify(config))
  const limited = (...more) => run(at, ['--config', 'limited.json', 'run', '-', ...more], { input })
  assert.match((await limited()).stderr, /100 ms/)
  assert.equal((await limited('--timeout', '60')).stdout, '"slept"\n')
  assert.equal((await limited('--limit', 'runTimeoutMs=60000')).stdout, '"slept"\n')
  assert.match((await limited('--limit', 'maxCodeBytes=256', '--limit', 'runTimeoutMs=90')).stderr, /90 ms/)
  for (const [limit, problem] of [
    ['maxQuestion=1', /unknown; there are: maxServers/],
    ['maxQuestions=x', /maxQuestions must be a whole number/],
    ['maxServers=0', /maxServers must be from 1 to 1000, not 0/],
    ['maxServers', /NAME=VALUE/],
  ]) {
    const wrong = await limited('--limit', limit)
    assert.equal(wrong.code, 2)
    assert.match(wrong.stderr, problem)
  }
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

test('only the servers that are named are there', async (t) => {
  const at = await approved(t, { weather: small(), other: small() })
  write(at, 's.js', 'import { tools } from "host:mcp"\nexport const handler = () => Object.keys(tools())\n')
  const modules = async (...words) => JSON.parse((await run(at, ['types', '--out', '-', '--json', ...words])).stdout).modules
  assert.deepEqual(await modules(), ['host:mcp', 'host:mcp-other', 'host:mcp-weather'])
  assert.deepEqual(await modules('--servers', 'other'), ['host:mcp', 'host:mcp-other'])
  assert.match((await run(at, ['run', 's.js', '--servers', 'none'])).stderr, /there is no server "none"/)
})

/** Returns the names of a process's threads. */
function threads(pid) {
  return readdirSync(`/proc/${pid}/task`).map((id) => {
    try {
      return readFileSync(`/proc/${pid}/task/${id}/comm`, 'utf8').trim()
    } catch {
      return 'it has ended meanwhile'
    }
  })
}

/**
 * Returns whether the program handles its signals. SIGHUP is the last signal for which it adds a handler, and Node itself does not handle
 * it.
 */
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
    // Which parts of a box are missing depends on the machine.
    report.checks.filter(({ what }) => !what.startsWith('boxes: ')).map(({ what, status }) => `${what} ${status}`),
    ['platform ok', 'watchdog ok', 'state folder ok', 'hypervisor ok', 'boxes ok', 'config ok', 'server weather ok'],
  )
})

test('doctor blames what is wrong: a folder, a variable, a home, an entry', async (t) => {
  const gone = join(folder(t), 'gone')
  const early = place(t, { lost: { ...small(), cwd: gone } })
  assert.match(
    (await run(early, ['doctor'])).stdout,
    /PROBLEM server lost: its start folder does not exist \(cwd\):\s+\S+gone\n +→ make the folder/,
  )
  mkdirSync(gone)
  const at = await approved(t, { lost: { ...small(), cwd: gone }, needy: { ...small(), env: { KEY: `\${${'NOT_SET:-'}}` } } })
  rmdirSync(gone)
  write(at, '../.hyperagent/config.json', readFileSync(join(at.home, '.hyperagent/config.json'), 'utf8').replace(':-}', '}'))
  const { code, stdout } = await run(at, ['doctor'])
  assert.equal(code, 1)
  const text = stdout.replace(/\s+/g, ' ')
  assert.match(text, /PROBLEM server lost: .*its start folder does not exist \(cwd\).*→ make the folder, or fix cwd/)
  assert.doesNotMatch(text, /install its program/)
  assert.match(text, /server needy: it is not ready: not set: NOT_SET → set the variable/)
  const homeless = JSON.parse((await run({ ...at, home: '/proc' }, ['doctor', '--json'])).stdout)
  const problems = homeless.checks.filter(({ status }) => status === 'problem')
  assert.deepEqual(
    problems.map(({ what }) => what),
    ['state folder'],
  )
  assert.match(problems[0].text, /nothing can be written into \/proc/)
})

test('a start that failed shows the line that tells most, and where the others are', async (t) => {
  const script = 'console.error("Traceback:\\n  File x\\n    import y\\nModuleNotFoundError: No module named y"); process.exit(3)'
  const at = place(t, { bad: { command: process.execPath, args: ['-e', script] } })
  const { digest } = JSON.parse((await run(at, ['approve', 'bad', '--json'])).stdout).servers[0].request
  const failed = await run(at, ['approve', 'bad', '--digest', digest])
  assert.match(
    failed.stderr,
    /ended before it was ready: it exited with code 3\. It said: ModuleNotFoundError: No module named y\n.*logs bad/,
  )
  assert.doesNotMatch(failed.stderr, /Traceback/)
  assert.match((await run(at, ['logs', 'bad'])).stdout, /Traceback/)
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
  // Only the named file may be read.
  const named = await run(at, ['import', 'vscode', '--from', '.vscode/mcp.json'])
  assert.notEqual(named.code, 0)
  assert.match(named.stderr, /not a regular file/)
})

test('help, version and completion are on standard output', async (t) => {
  const at = place(t)
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  assert.equal((await run(at, ['--version'])).stdout, `hyperlight-mcp ${version}\n`)
  assert.match((await run(at, ['--help'])).stdout, /First steps/)
  for (const shell of ['bash', 'zsh', 'fish']) assert.match((await run(at, ['completion', shell])).stdout, /hyperlight-mcp/)
  assert.ok(!existsSync(join(at.home, '.hyperagent')))
})
