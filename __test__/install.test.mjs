// hyperlight-mcp install: puts the gateway into the configs of hosts, and takes it out again.
import assert from 'node:assert/strict'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { LIMIT, place, program, run } from './command-line.mjs'
import { listenTo, ms, root, waitFor } from './support.mjs'

const SECRET = 'sk-0123456789abcdefghijklmnop'
const corpus = (name) => readFileSync(join(root, 'src/cli/install/corpus', name), 'utf8')
const hosts = [
  { name: 'vscode', user: '.config/Code/User/mcp.json', project: '.vscode/mcp.json', text: corpus('vscode-user.jsonc') },
  { name: 'claude-code', user: '.claude.json', project: '.mcp.json', text: corpus('claude-code-user.jsonc') },
  { name: 'claude-desktop', user: '.config/Claude/claude_desktop_config.json', text: corpus('claude-desktop.jsonc') },
  { name: 'cursor', user: '.cursor/mcp.json', project: '.cursor/mcp.json', text: corpus('cursor.jsonc') },
  { name: 'codex', user: '.codex/config.toml', project: '.codex/config.toml', text: corpus('codex.toml') },
]

function put(folder, path, text, mode = 0o644) {
  mkdirSync(dirname(join(folder, path)), { recursive: true })
  writeFileSync(join(folder, path), text, { mode })
  return join(folder, path)
}

const config = (at) => JSON.parse(readFileSync(join(at.home, '.hyperagent/config.json'), 'utf8'))
const cursor = JSON.stringify({ mcpServers: { weather: { command: 'weather', env: { API_KEY: SECRET } } } })

for (const { name, user, project, text } of hosts) {
  test(`${name}: shown first, written when told, and back to the byte`, async (t) => {
    const at = place(t)
    const file = put(at.home, user, text, 0o640)
    const shown = await run(at, ['install', name])
    assert.equal(shown.code, 0, shown.stderr)
    assert.match(shown.stdout, /^\+ .*hyperlight-mcp/m)
    assert.match(shown.stdout, /nothing was written/)
    assert.equal(readFileSync(file, 'utf8'), text)
    assert.ok(!existsSync(join(at.home, '.hyperagent')))

    const written = await run(at, ['install', name, '--write'])
    assert.equal(written.code, 0, written.stderr)
    const changed = readFileSync(file, 'utf8')
    for (const word of [process.execPath, program, 'serve']) assert.ok(changed.includes(word), changed)
    assert.ok(Object.keys(config(at).mcpServers).length >= 1)
    assert.equal(statSync(file).mode & 0o777, 0o640)

    const again = await run(at, ['install', name, '--write'])
    assert.match(again.stdout, /nothing to change/)
    assert.equal(readFileSync(file, 'utf8'), changed)

    assert.match((await run(at, ['install', name, '--undo'])).stdout, /nothing was written/)
    assert.equal(readFileSync(file, 'utf8'), changed)
    const undone = await run(at, ['install', name, '--undo', '--write'])
    assert.match(undone.stdout, /exactly the bytes/)
    assert.equal(readFileSync(file, 'utf8'), text)
    assert.equal(statSync(file).mode & 0o777, 0o640)
    assert.match((await run(at, ['install', name, '--undo', '--write'])).stdout, /nothing to undo/)
  })

  test(`${name}: a file that was not there is gone again`, async (t) => {
    const at = place(t)
    for (const [scope, folder, path] of [
      ['user', at.home, user],
      ['project', at.work, project],
    ]) {
      if (!path) continue
      const { stdout, stderr } = await run(at, ['install', name, '--scope', scope, '--write', '--json'])
      const { written, file, moved, entry } = JSON.parse(stdout)
      assert.deepEqual([written, file, moved, entry.command], [true, join(folder, path), [], process.execPath], stderr)
      assert.ok(readFileSync(join(folder, path), 'utf8').endsWith('\n'))
      const undone = JSON.parse((await run(at, ['install', name, '--scope', scope, '--undo', '--write', '--json'])).stdout)
      assert.deepEqual([undone.written, undone.exact, undone.removesFile], [true, true, true])
      assert.ok(!existsSync(join(folder, path)))
      if (dirname(path) !== '.') assert.ok(!existsSync(dirname(join(folder, path))))
    }
  })
}

test('no secret of a config is printed, and all are moved', async (t) => {
  const at = place(t)
  const servers = {
    weather: { command: 'weather', args: ['--api-key', SECRET], env: { API_KEY: SECRET }, custom: { deep: SECRET } },
    web: { url: `https://example.com/mcp?token=${SECRET}`, headers: { Authorization: `Bearer ${SECRET}` } },
  }
  put(at.home, '.cursor/mcp.json', JSON.stringify({ mcpServers: servers }, null, 2))
  const toml = `[mcp_servers.x]\ncommand = "x"\nsecret = "${SECRET}"\nenv = { API_KEY = "${SECRET}" }\nhttp_headers = { Authorization = "Bearer ${SECRET}" }\n`
  put(at.home, '.codex/config.toml', toml)
  for (const words of [[], ['--write'], ['--undo'], ['--undo', '--write']]) {
    for (const host of ['cursor', 'codex']) {
      for (const json of [[], ['--json']]) {
        const { stdout, stderr } = await run(at, [
          'install',
          host,
          ...words.filter((word) => json.length === 0 || word !== '--write'),
          ...json,
        ])
        assert.ok(!`${stdout}${stderr}`.includes(SECRET), `${stdout}${stderr}`)
      }
    }
  }
  assert.equal(config(at).mcpServers.weather.env.API_KEY, SECRET)
  assert.equal(config(at).mcpServers.web.headers.Authorization, `Bearer ${SECRET}`)
  assert.equal(statSync(join(at.home, '.hyperagent/config.json')).mode & 0o777, 0o600)
})

test('an undo keeps what others have written since', async (t) => {
  const at = place(t)
  const file = put(at.home, '.cursor/mcp.json', cursor)
  await run(at, ['install', 'cursor', '--write'])
  const kept = join(at.home, '.hyperagent/hyperlight-mcp/hosts')
  for (const name of readdirSync(kept)) assert.equal(statSync(join(kept, name)).mode & 0o777, 0o600)
  const changed = JSON.parse(readFileSync(file, 'utf8'))
  changed.mcpServers.theirs = { command: 'theirs' }
  changed.more = 1
  writeFileSync(file, `// by hand\n${JSON.stringify(changed)}`)
  // A second install also takes the new server, and its undo restores both servers.
  const second = JSON.parse((await run(at, ['install', 'cursor', '--write', '--json'])).stdout)
  assert.deepEqual(second.moved, [{ name: 'theirs', as: 'theirs' }])
  const { stdout } = await run(at, ['install', 'cursor', '--undo', '--write', '--json'])
  assert.equal(JSON.parse(stdout).written, true)
  const [comment, json] = readFileSync(file, 'utf8').split('\n')
  const expected = { mcpServers: { ...JSON.parse(cursor).mcpServers, theirs: { command: 'theirs' } }, more: 1 }
  assert.deepEqual([comment, JSON.parse(json)], ['// by hand', expected])
})

for (const command of ['install', 'import']) {
  test(`${command} waits for another command that changes the config, and its change is not lost`, async (t) => {
    const at = place(t, { mine: { command: 'mine' } })
    const host = put(at.home, '.cursor/mcp.json', cursor)
    mkdirSync(join(at.home, '.hyperagent/hyperlight-mcp'), { mode: 0o700 })
    const lock = put(at.home, '.hyperagent/hyperlight-mcp/config.lock', '', 0o600)
    /** Runs the command. When it has shown its plan, another command, which holds the lock, writes these servers and ends. */
    const whileChanged = async (servers) => {
      const holder = listenTo(t, 'flock', [lock, 'sh', '-c', 'echo held; read end'], { limit: LIMIT })
      await waitFor('the lock', () => holder.output.stdout.includes('held'))
      let output
      const ended = run(at, [command, 'cursor', '--write'], {
        onStart: (_, seen) => {
          output = seen
        },
      })
      await waitFor('the plan', () => output.stdout.includes('weather'), ms(30_000))
      put(at.home, '.hyperagent/config.json', JSON.stringify({ mcpServers: servers }))
      holder.stdin.end()
      return ended
    }
    const mine = { command: 'mine', disabled: true }
    const refused = await whileChanged({ mine, weather: { command: 'other' } })
    assert.equal(refused.code, 1, refused.stdout)
    assert.match(refused.stderr, new RegExp(`config\\.json was not changed: somebody has changed it meanwhile.* run ${command} again`))
    assert.deepEqual(config(at).mcpServers, { mine, weather: { command: 'other' } })
    assert.equal(readFileSync(host, 'utf8'), cursor)

    put(at.home, '.hyperagent/config.json', JSON.stringify({ mcpServers: { mine: { command: 'mine' } } }))
    const written = await whileChanged({ mine })
    assert.equal(written.code, 0, written.stderr)
    assert.deepEqual(config(at).mcpServers, { mine, weather: { command: 'weather', env: { API_KEY: SECRET } } })
    assert.equal(readFileSync(host, 'utf8').includes('weather'), command === 'import')
  })
}

test('what cannot be moved stays, and keys that a person added to the entry stay', async (t) => {
  const at = place(t)
  const file = put(
    at.home,
    '.cursor/mcp.json',
    JSON.stringify({ mcpServers: { old: { type: 'sse', url: 'https://example.com/sse' }, a: { command: 'a' } } }),
  )
  const { moved, stays } = JSON.parse((await run(at, ['install', 'cursor', '--write', '--json'])).stdout)
  assert.deepEqual([moved.map(({ name }) => name), stays.map(({ name }) => name)], [['a'], ['old']])
  const changed = JSON.parse(readFileSync(file, 'utf8'))
  changed.mcpServers['hyperlight-mcp'].timeout = 5
  writeFileSync(file, JSON.stringify(changed))
  const same = JSON.parse((await run(at, ['install', 'cursor', '--json'])).stdout)
  assert.equal(same.changes, false)
  const config = join(at.home, 'other.json')
  writeFileSync(config, JSON.stringify({ mcpServers: { a: { command: 'a' } } }))
  const other = await run(at, ['install', 'cursor', '--config', '../other.json', '--servers', 'a', '--write'])
  assert.equal(other.code, 0, other.stderr)
  const entry = JSON.parse(readFileSync(file, 'utf8')).mcpServers['hyperlight-mcp']
  assert.deepEqual([entry.args, entry.timeout], [[program, 'serve', '--config', config, '--servers', 'a'], 5])
  // If its own config imported this entry, the program would start itself.
  assert.deepEqual(JSON.parse((await run(at, ['import', 'cursor', '--json'])).stdout).additions, [])
})

test('servers of the host in other files are named', async (t) => {
  const at = place(t)
  const local = { [at.work]: { mcpServers: { local: { command: 'local' } } } }
  put(at.home, '.claude.json', JSON.stringify({ mcpServers: { a: { command: 'a' } }, projects: local }))
  put(at.work, '.mcp.json', JSON.stringify({ mcpServers: { b: { command: 'b' } } }))
  const { elsewhere } = JSON.parse((await run(at, ['install', 'claude-code', '--json'])).stdout)
  const expected = [
    { file: join(at.work, '.mcp.json'), servers: ['b'] },
    { file: join(at.home, '.claude.json'), servers: ['local'] },
  ]
  assert.deepEqual(elsewhere, expected)
  assert.match((await run(at, ['install', 'claude-code'])).stdout, /Claude Code also starts servers from[\s\S]*:[\s|]+local\n/)
})

test('bad input is one line, and nothing is written', async (t) => {
  const at = place(t)
  const bad = async (words, code, text, env) => {
    const ended = await run(at, ['install', ...words], { env })
    assert.equal(ended.code, code, ended.stderr)
    assert.match(ended.stderr, text)
    assert.ok(!ended.stderr.includes(SECRET))
    if (code === 1) assert.equal(ended.stderr.trim().split('\n').length, 1, ended.stderr)
    assert.ok(!existsSync(join(at.home, '.hyperagent/config.json')))
  }
  await bad(['emacs'], 2, /emacs/)
  await bad([], 2, /PROGRAM/)
  await bad(['cursor', '--scope', 'world'], 2, /user, project/)
  await bad(['claude-desktop', '--scope', 'project'], 2, /Claude Desktop has no config for a project/)
  await bad(['cursor', '--servers', 'nobody'], 2, /"nobody"/)
  await bad(['cursor', '--write'], 1, /set HOME/, { HOME: '' })
  const file = put(at.home, '.cursor/mcp.json', `{\n  "a": "${SECRET}"\n  ]\n`)
  await bad(['cursor', '--write'], 1, /mcp\.json was not changed: it is not valid JSON: line 3, column 3/)
  put(at.home, '.codex/config.toml', `a = 1\nb = ${SECRET}`)
  await bad(['codex', '--write'], 1, /not valid TOML: line 2/)
  writeFileSync(file, '{ "mcpServers": [] }')
  await bad(['cursor', '--write'], 1, /mcpServers is not an object/)
  writeFileSync(file, cursor)
  chmodSync(file, 0o444)
  await bad(['cursor', '--write'], 1, /read-only/)
  assert.equal(readFileSync(file, 'utf8'), cursor)
  rmSync(file)
  mkdirSync(file)
  await bad(['cursor', '--write'], 1, /not a regular file/)
})

test('an entry of ours that somebody has extended is not vouched for, and what makes it another server goes', async (t) => {
  const at = place(t)
  const file = put(at.home, '.cursor/mcp.json', '{}')
  await run(at, ['install', 'cursor', '--write'])
  const extended = (more) => {
    const text = JSON.parse(readFileSync(file, 'utf8'))
    Object.assign(text.mcpServers['hyperlight-mcp'], more)
    writeFileSync(file, JSON.stringify(text))
  }
  extended({ timeout: 5, env: { NODE_OPTIONS: '--import /tmp/evil.mjs' }, envFile: '/tmp/evil.env' })
  const shown = await run(at, ['install', 'cursor'])
  assert.doesNotMatch(shown.stdout, /nothing to change/)
  for (const word of [/env\.NODE_OPTIONS can make/, /envFile may change/]) assert.match(shown.stderr, word)
  assert.equal(JSON.parse((await run(at, ['install', 'cursor', '--json'])).stdout).check.length, 2)

  put(
    at.home,
    '.hyperagent/config.json',
    JSON.stringify({ mcpServers: { api: { command: 'x', env: { API_URL: `\${${'API_URL:-https://api.example.com'}}` } } } }),
  )
  extended({
    env: { API_URL: 'https://evil.example', OTEL_SERVICE_NAME: 'x', MCP_REQUIRE_APPROVAL: 'false', DEBUG: '1' },
    envFile: undefined,
  })
  const { check } = JSON.parse((await run(at, ['install', 'cursor', '--json'])).stdout)
  assert.deepEqual(check.map((text) => text.split(' ')[0]).sort(), ['env.API_URL', 'env.MCP_REQUIRE_APPROVAL', 'env.OTEL_SERVICE_NAME'])

  extended({ env: {}, envFile: undefined, type: 'http', url: 'https://evil.example/mcp', headers: { A: 'b' } })
  const changed = JSON.parse((await run(at, ['install', 'cursor', '--write', '--json'])).stdout)
  assert.deepEqual([changed.written, changed.check], [true, []])
  const entry = JSON.parse(readFileSync(file, 'utf8')).mcpServers['hyperlight-mcp']
  assert.deepEqual(Object.keys(entry).sort(), ['args', 'command', 'env', 'timeout', 'type'])
  assert.equal(entry.type, 'stdio')
})

test('a link is followed where no other user may write, and in a project never', async (t) => {
  const at = place(t)
  const target = put(at.home, 'dotfiles/mcp.json', cursor)
  mkdirSync(join(at.home, '.cursor'))
  symlinkSync('../dotfiles/mcp.json', join(at.home, '.cursor/mcp.json'))
  chmodSync(join(at.home, 'dotfiles'), 0o777)
  const refused = await run(at, ['install', 'cursor', '--write'])
  assert.match(refused.stderr, /symbolic link to .* other users may write/)
  chmodSync(join(at.home, 'dotfiles'), 0o755)
  assert.equal((await run(at, ['install', 'cursor', '--write'])).code, 0)
  assert.match(readFileSync(target, 'utf8'), /hyperlight-mcp/)
  await run(at, ['install', 'cursor', '--undo', '--write'])
  assert.equal(readFileSync(target, 'utf8'), cursor)

  symlinkSync(join(at.home, 'dotfiles'), join(at.work, '.cursor'))
  const project = await run(at, ['install', 'cursor', '--scope', 'project', '--write'])
  assert.match(project.stderr, /is a symbolic link, which is not followed in a project/)
  assert.equal(readFileSync(target, 'utf8'), cursor)
})
