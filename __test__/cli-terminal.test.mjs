// The program hyperlight-mcp, as a person runs it: at a real pseudo-terminal, where a person is asked.
import assert from 'node:assert/strict'
import { lstatSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { approved, atTerminal, environment, LIMIT, place, program, run, small, write } from './command-line.mjs'
import { answering, compiled, fixture, folder, root, typed } from './support.mjs'

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

test('approve names the tools that sound like reads, writes those that a person chooses, and asks again', async (t) => {
  const extra = ['get_a', 'list_b', 'read_c', 'get_and_delete'].flatMap((name) => ['--extra-tool', name])
  const at = place(t, { weather: small(...extra) })
  const config = join(at.home, '.hyperagent/config.json')
  writeFileSync(config, `// mine\n${readFileSync(config, 'utf8')}`)
  const which = 'Which of them are reads, to be called without a question? [a]ll, [N]one, or numbers (1,3-5): '
  const yes = ['Approve? [y/N]', 'y\n']
  const {
    code,
    text: painted,
    unanswered,
  } = await atTerminal(at, ['approve', 'weather'], [yes, [which, '9\n'], [which, '1-2\n'], yes, yes])
  // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are not part of the words
  const text = painted.replace(/\u001b\[[0-9;]*m/g, '')
  assert.deepEqual([code, unanswered], [0, 0], text)
  assert.match(
    text,
    /1 get_a, 2 list_b, 3 read_c\s[\s\S]*please answer[\s\S]*setting "reads" of weather was written[\s\S]*stage 1 of 2[\s\S]*reads {2,}get_a, list_b/,
  )
  assert.match(text, /WRITES read_c[\s\S]*weather: approved/)
  assert.match(readFileSync(config, 'utf8'), /^\/\/ mine\n[\s\S]*"reads": \["get_a","list_b"\]|^\/\/ mine\n[\s\S]*"get_a",\s*"list_b"/)
  write(at, 'reads.js', 'import { get_a, read_c } from "host:mcp-weather"\nexport const handler = () => [get_a({}), read_c({})]\n')
  const ran = await run(at, ['run', 'reads.js'])
  assert.match(ran.stderr, /weather\.read_c was not called/)
  assert.doesNotMatch(ran.stderr, /weather\.get_a/)
  const none = place(t, { weather: small(...extra) })
  const before = readFileSync(join(none.home, '.hyperagent/config.json'), 'utf8')
  const refused = await atTerminal(none, ['approve', 'weather'], [yes, [which, '\n'], yes])
  assert.deepEqual([refused.code, refused.unanswered], [0, 0], refused.text)
  assert.equal(readFileSync(join(none.home, '.hyperagent/config.json'), 'utf8'), before)
})

test('approve does not ask which tools are reads where it cannot write them, and says where they would have to be', async (t) => {
  const server = small('--extra-tool', 'get_a', '--extra-tool', 'task_list')
  const yes = ['Approve? [y/N]', 'y\n']
  const at = place(t, {})
  write(at, 'mcp.yaml', `mcpServers:\n  weather: ${JSON.stringify(server)}\n`)
  mkdirSync(join(at.work, '.cursor'))
  write(at, '.cursor/mcp.json', JSON.stringify({ mcpServers: { weather: server } }))
  write(at, 'based.json', '{ "base": ["cursor"] }')
  for (const [config, where] of [
    ['mcp.yaml', /write this line into its entry in mcp\.yaml, which is not changed as it is YAML:/],
    [
      'based.json',
      /Its entry is in the config of "cursor", which this command does not change\. Copy the entry into based\.json, with this line:/,
    ],
  ]) {
    const before = readFileSync(join(at.work, config), 'utf8')
    const words = ['--config', config, '--state', join(at.home, config), 'approve', 'weather']
    const { code, text: painted, unanswered } = await atTerminal(at, words, [yes, yes])
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are not part of the words
    const text = painted.replace(/\u001b\[[0-9;]*m/g, '').replace(/\s+/g, ' ')
    assert.deepEqual([code, unanswered], [0, 0], text)
    assert.match(text, /These tools sound like reads[^:]*: get_a, task_list/)
    assert.match(text, where)
    assert.ok(text.includes('"reads": ["get_a","task_list"]'), text)
    assert.doesNotMatch(text, /Which of them are reads/)
    assert.equal(readFileSync(join(at.work, config), 'utf8'), before)
  }
})

test('test asks about a host that the box of a server does not have, and writes it into the config', async (t) => {
  const server = {
    command: process.execPath,
    args: [join(root, '__test__/fixtures/reaching.mjs'), 'https://api.example.org/'],
    box: { memoryMb: 1024 },
  }
  const at = await approved(t, { web: server })
  const config = join(at.home, '.hyperagent/config.json')
  writeFileSync(config, `// mine\n${readFileSync(config, 'utf8')}`)
  const question = 'It tried to reach api.example.org, which its box does not allow. Allow it? [y/N] '
  const no = await atTerminal(at, ['test', 'web'], [[question, '\n']])
  assert.deepEqual([no.code, no.unanswered], [0, 0], no.text)
  assert.deepEqual(JSON.parse(readFileSync(config, 'utf8').slice(8)).mcpServers.web.box, { memoryMb: 1024 })
  const yes = ['Approve? [y/N]', 'y\n']
  const { code, text, unanswered } = await atTerminal(at, ['test', 'web'], [[question, 'y\n'], yes, yes])
  assert.deepEqual([code, unanswered], [0, 0], text)
  assert.match(text, /may reach\s+api\.example\.org:443[\s\S]*web: approved/)
  assert.match(readFileSync(config, 'utf8'), /^\/\/ mine\n/)
  const { box } = JSON.parse(readFileSync(config, 'utf8').slice(8)).mcpServers.web
  assert.deepEqual(box, { memoryMb: 1024, network: ['api.example.org'] })
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
  const question = 'Call weather.write_note? [o]nce, for this [r]un, for this [s]ession, [N]o: '
  assert.match((await atTerminal(at, ['run', 'note.js'], [[question, 'o\n']])).text, /"text": "x"[\s\S]*"noted"/)
  for (const yes of ['y\n', 'yes\n']) {
    assert.match((await atTerminal(at, ['run', 'note.js'], [[question, yes]])).text, /"text": "x"[\s\S]*"noted"/, yes)
  }
  for (const no of ['\n', 'n\n', 'yep\n']) {
    assert.match((await atTerminal(at, ['run', 'note.js'], [[question, no]])).text, /ERR_CALL_DENIED/, no)
  }
})

test('nothing that others print stands between a question and its answer', async (t) => {
  const at = await approved(t, { weather: small() })
  write(
    at,
    'note.js',
    `import { write_note } from "host:mcp-weather"
    export const handler = async () => {
      const asked = write_note.async({ text: 'x' })
      // The question is on its way to the person.
      await new Promise((resolve) => setTimeout(resolve, 300))
      for (let line = 0; line < 30; line++) console.log('Show the summary [s]hort or in [f]ull? ' + line)
      return asked
    }`,
  )
  const question = 'Call weather.write_note? [o]nce, for this [r]un, for this [s]ession, [N]o: '
  const { text, unanswered } = await atTerminal(at, ['run', 'note.js'], [[question, 'o\n']])
  assert.equal(unanswered, 0, text)
  const [before, after] = text.split(question)
  assert.ok(text.includes('Show the summary [s]hort or in [f]ull? 29'), text)
  assert.match(after, /^o\r?\n/, text)
  assert.match(after, /"noted"/)
  assert.ok(!before.includes('"noted"'))
})

test('what is too long for a question is said to be cut, and shown whole to whoever wants to see it', async (t) => {
  const at = await approved(t, { weather: small() })
  const text = '"x".repeat(9000) + " hidden in the middle " + "y".repeat(9000)'
  write(at, 'note.js', `import { write_note } from "host:mcp-weather"\nexport const handler = () => write_note({ text: ${text} })\n`)
  const question = 'Call weather.write_note? [o]nce, for this [r]un, for this [s]ession, show [a]ll arguments, [N]o: '
  const all = [
    [question, 'a\n'],
    ['hidden in the middle', ''],
    [question, 'o\n'],
  ]
  const shown = await atTerminal(at, ['run', 'note.js'], all)
  assert.match(shown.text, /1 of the values are cut[\s\S]*hidden in the middle[\s\S]*"noted"/)
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
        ['Send this to server "asker"?', answer],
      ],
    )
  const { text, unanswered, code } = await ask('y\n')
  assert.deepEqual([unanswered, code], [0, 0], text)
  assert.match(text, /would be sent to "asker":\n\{\n {2}"wipe": true,\n {2}"mode": "danger"\n\}\nSend this to server "asker"\?/)
  assert.match(text.slice(text.indexOf('Send this to server "asker"?')), /"accept"[\s\S]*"wipe": true/)
  assert.match((await ask('n\n')).text, /"decline"/)
})

test('a long question of a server does not begin a row like one of another server', async (t) => {
  const at = await approved(t, { evil: fixture('--tools', 'elicit') })
  const message = `${'one moment '.padEnd(80 - 'server "evil" asks: '.length, '.')}server "bank" asks: the code of your transfer`
  const title = `${'a'.repeat(78)}server "bank" asks: your code`
  const schema = { type: 'object', properties: { code: { type: 'string', title } } }
  const code = `import { elicit } from "host:mcp-evil"; export const handler = () => elicit(${JSON.stringify({ message, schema })})`
  write(at, 'ask.js', code)
  const dialogue = [
    ['(string):', 'x\n'],
    ['Send this to server "evil"?', 'n\n'],
  ]
  const { text, unanswered } = await atTerminal(at, ['run', 'ask.js'], dialogue)
  assert.equal(unanswered, 0, text)
  const rows = text.split('\n').filter((row) => row.includes('"bank"'))
  assert.ok(rows.length > 1, text)
  for (const row of rows) assert.match(row, /^ {2}\| /, text)
})

test('at a terminal of few columns nobody is asked', async (t) => {
  const at = place(t, { weather: small() })
  const words = [process.execPath, program, 'approve', 'weather'].map((word) => `'${word}'`).join(' ')
  const { text, code } = await typed(t, `stty cols 19; ${words}`, [], { cwd: at.work, env: environment(at), limit: LIMIT })
  assert.equal(code, 1, text)
  assert.match(text.replace(/[\s|]+/g, ' '), /this terminal has 19 columns, and a question needs at least 20/)
  assert.doesNotMatch(text, /stage 1|Approve/)
})

test('what was typed before a question stood there is no answer to it', async (t) => {
  const at = await approved(t, { weather: small() })
  write(at, 'note.js', 'import { write_note } from "host:mcp-weather"\nexport const handler = () => write_note({ text: "x" })\n')
  const typedAhead = "printf 'ready\\n'; read first; printf 'typed %s\\n' \"$first\";"
  const words = [process.execPath, program, 'run', 'note.js'].map((word) => `'${word}'`).join(' ')
  const question = 'Call weather.write_note? [o]nce, for this [r]un, for this [s]ession, [N]o: '
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
      ['The key (for server "weather"; what you type is not shown): ', `${input}\n`],
      ['Approve? [y/N]', 'y\n'],
    ],
    { cwd: at.work, env: environment(at), limit: LIMIT },
  )
  assert.deepEqual([code, unanswered], [0, 0], text)
  assert.ok(!text.includes(input), text)
  assert.match(text, /weather: approved[\s\S]*\secho\s/)
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

test('import keeps what was changed while its question was open, and writes only what it has shown', async (t) => {
  const at = place(t, { mine: { command: 'mine' } })
  const path = join(at.home, '.hyperagent/config.json')
  mkdirSync(join(at.home, '.codex'))
  writeFileSync(join(at.home, '.codex/config.toml'), '[mcp_servers.docs]\ncommand = "docs"\n')
  const whileAsked = (servers) => () => {
    writeFileSync(path, JSON.stringify({ mcpServers: servers }))
    return 'y\n'
  }
  const mine = { command: 'mine', disabled: true }
  const refused = await atTerminal(at, ['import'], [['[y/N]', whileAsked({ mine, docs: { command: 'other' } })]])
  assert.equal(refused.code, 1, refused.text)
  assert.match(refused.text.replaceAll(/\s+\|?\s*/g, ' '), /was not changed: somebody has changed it meanwhile.* run import again/)
  assert.deepEqual(JSON.parse(readFileSync(path, 'utf8')).mcpServers, { mine, docs: { command: 'other' } })

  writeFileSync(path, JSON.stringify({ mcpServers: { mine: { command: 'mine' } } }))
  const written = await atTerminal(at, ['import'], [['[y/N]', whileAsked({ mine })]])
  assert.match(written.text, /written into/)
  assert.deepEqual(JSON.parse(readFileSync(path, 'utf8')).mcpServers, { mine, docs: { command: 'docs' } })
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
  // A shell makes this pipe. Pipes that Node makes are sockets, and nobody can open a socket by its path.
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

test('no text of a server begins a row of doctor or the audit', async (t) => {
  const evil = 'it failed\n  → to repair it: run this\nok      server other: connected'
  const broken = join(folder(t), 'broken')
  const program = `const answers = { 'tools/list': () => ({ tools: [{ name: 'a', inputSchema: { type: 'object' } }] }) }
    if (require('node:fs').existsSync(${JSON.stringify(broken)})) Object.defineProperty(answers, 'initialize', { get() {
      console.log(JSON.stringify({ jsonrpc: '2.0', id: 0, error: { code: -32000, message: ${JSON.stringify(evil)} } }))
      return () => ({})
    } })`
  const at = await approved(t, { [`s${'x'.repeat(60)}`]: { command: process.execPath, box: 'off', args: answering(program) } })
  writeFileSync(broken, '')
  const rows = (text) => text.replaceAll('\r', '').split('\n')
  const found = await atTerminal(at, ['--color', 'never', 'doctor'], [])
  assert.match(found.text, /PROBLEM server sx+:[\s\S]*it failed \| →/)
  assert.deepEqual(
    rows(found.text).filter((row) => /^ *→ to repair|^ok +server other/.test(row)),
    [],
  )
  assert.match((await run(at, ['doctor'])).stdout, /^PROBLEM server sx+: .*it failed \| → to repair it: run this \| ok +server other/m)
  const audited = rows((await atTerminal(at, ['--color', 'never', 'audit'], [])).text).filter((row) => row !== '')
  assert.ok(
    audited.some((row) => row.startsWith('  | ')),
    audited.join('\n'),
  )
  for (const row of audited) assert.ok(/^(\{| {2}\| )/.test(row) && row.length <= 80, row)
  for (const line of (await run(at, ['audit'])).stdout.trimEnd().split('\n')) JSON.parse(line)
})
