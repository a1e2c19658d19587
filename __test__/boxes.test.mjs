// Tests of published servers of other authors in boxes: three in TypeScript, and one in Python. Each needs only what its entry names, and
// has ended when its gateway has closed.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { gitServer } from '../scripts/lib/tools.mjs'
import { children, folder, isAlive, ms, openApproved, openGateway, outputOf, root, runSync, start, waitFor } from './support.mjs'

const TIMEOUT = { timeout: ms(60_000) }
const limits = { connectTimeoutMs: ms(60_000) }
const node = (name, ...args) => ({
  command: process.execPath,
  args: [join(root, `node_modules/@modelcontextprotocol/server-${name}/dist/index.js`), ...args],
  confirm: 'never',
})

/** Opens a gateway with one server, named `it`. After close(), none of its processes may be left. */
async function open(t, server, options = {}) {
  const before = children().map(({ pid }) => pid)
  const gateway = await openApproved(t, { it: server }, { limits, ...options })
  t.after(() => {
    const left = children().filter(({ pid }) => !before.includes(pid))
    assert.deepEqual(left, [], 'left after close()')
  })
  const call = async (tool, args) => {
    const { content, isError } = await gateway.callTool('it', tool, args)
    return { isError, text: content.map(({ text }) => text).join('\n') }
  }
  return { gateway, call }
}

describe('In the box standard', TIMEOUT, () => {
  test('server-everything needs no line', async (t) => {
    const { gateway, call } = await open(t, { ...node('everything'), box: 'standard' })
    assert.equal((await call('echo', { message: 'ä€😀' })).text, 'Echo: ä€😀')
    const environment = JSON.parse((await call('get-env', {})).text)
    assert.deepEqual([environment.HOME, environment.TMPDIR], ['/box/home', '/tmp'])
    assert.ok((await gateway.resources('it')).length > 0)
  })

  test('server-filesystem has the folder of its arguments', async (t) => {
    const path = realpathSync(folder(t))
    const { call } = await open(t, { ...node('filesystem', path), box: 'standard' })
    assert.equal((await call('write_file', { path: join(path, 'b.txt'), content: 'text' })).isError, false)
    assert.equal(readFileSync(join(path, 'b.txt'), 'utf8'), 'text')
    assert.equal((await call('list_directory', { path })).text, '[FILE] b.txt')
  })

  test('server-memory has the folder that its box may write', async (t) => {
    const path = realpathSync(folder(t))
    const server = { ...node('memory'), env: { MEMORY_FILE_PATH: join(path, 'memory.jsonl') } }
    const { call } = await open(t, { ...server, box: { write: [path], network: 'none' } })
    const entities = [{ name: 'Ada', entityType: 'person', observations: ['counts'] }]
    assert.equal((await call('create_entities', { entities })).isError, false)
    assert.match(readFileSync(join(path, 'memory.jsonl'), 'utf8'), /Ada/)
  })

  test('mcp-server-git has the repository of its arguments', async (t) => {
    const repo = join(realpathSync(folder(t)), 'repo')
    mkdirSync(repo)
    outputOf('git', ['-C', repo, 'init', '--quiet', '--initial-branch', 'main'])
    writeFileSync(join(repo, 'a.txt'), 'first\n')
    const { call } = await open(t, { command: gitServer(), args: ['--repository', repo], confirm: 'never', box: 'standard' })
    assert.match((await call('git_status', { repo_path: repo })).text, /Untracked files:\n.*\n\ta\.txt/s)
    assert.equal((await call('git_add', { repo_path: repo, files: ['a.txt'] })).isError, false)
  })
})

/** Starts a server over HTTP on loopback. Returns its port. */
async function listening(t, answer) {
  const server = createServer(answer).listen(0, '127.0.0.1')
  t.after(() => server.close() && server.closeAllConnections())
  await once(server, 'listening')
  return server.address().port
}

const reaching = (box, ...args) => ({
  command: process.execPath,
  args: [join(root, '__test__/fixtures/reaching.mjs'), ...args],
  confirm: 'never',
  box,
})

describe('A box with hosts', TIMEOUT, () => {
  test('lets programs that know no proxy reach them, and nothing else, and tells what was refused', async (t) => {
    const body = 'x'.repeat(1 << 20)
    const port = await listening(t, (_, response) => response.end(body))
    const other = await listening(t, (_, response) => response.end('secret'))
    const events = []
    const box = { network: [`localhost:${port}`, 'allowed.example'] }
    const { gateway, call } = await open(t, reaching(box), { onEvent: (event) => events.push(event) })
    for (const way of ['fetch', 'curl', 'python']) {
      assert.equal((await call(way, { url: `http://127.0.0.1:${port}/` })).text, body, way)
      assert.equal((await call(way, { url: `http://localhost:${port}/` })).text, body, way)
      for (const url of [`http://127.0.0.1:${other}/`, 'http://169.254.169.254/', 'https://unknown.example/']) {
        assert.equal((await call(way, { url })).isError, true, `${way} ${url}`)
      }
    }
    assert.match((await call('lookup', { url: 'allowed.example' })).text, /^198\.1[89]\./)
    const refused = events.filter(({ type }) => type === 'box-refused')
    const targets = refused.map(({ server, host, port, reason }) => `${server} ${host} ${port ?? ''} ${reason}`)
    for (const host of [`127.0.0.1 ${other}`, '169.254.169.254 80', 'unknown.example ']) {
      assert.equal(targets.filter((target) => target === `it ${host} not-allowed`).length, 1, `${host}: ${targets}`)
    }
    const logged = (await gateway.command('/mcp logs it')).data.lines.filter(({ kind }) => kind === 'box-refused')
    assert.ok(
      logged.some(({ text }) => text === 'its box does not allow unknown.example'),
      JSON.stringify(logged),
    )
  })

  test('names in the error of a failed start what it does not have', async (t) => {
    const gateway = await openGateway(t, { it: reaching('standard', '--needs', 'https://api.example.org/') })
    await assert.rejects(gateway.approve('it'), (error) => {
      assert.match(error.message, /its box does not allow api\.example\.org/)
      return error.code === 'ERR_SERVER_EXITED'
    })
  })
})

/** Lets the variable name this registry until the end of the test. */
function useRegistry(t, port) {
  const before = process.env.npm_config_registry
  process.env.npm_config_registry = `http://ada:password@127.0.0.1:${port}/`
  t.after(() => {
    if (before === undefined) delete process.env.npm_config_registry
    else process.env.npm_config_registry = before
  })
}

/** Starts a registry with one package, whose program is the server that reaches URLs. Returns its port and the paths that were asked for. */
async function registry(t) {
  const path = folder(t)
  const manifest = { name: 'reaching', version: '1.0.0', bin: 'reaching.mjs' }
  writeFileSync(join(path, 'package.json'), JSON.stringify(manifest))
  const program = readFileSync(join(root, '__test__/fixtures/reaching.mjs'), 'utf8')
  writeFileSync(join(path, 'reaching.mjs'), `#!/usr/bin/env node\n${program}`)
  outputOf('npm', ['pack', path, '--pack-destination', path, '--silent'])
  const tarball = readFileSync(join(path, 'reaching-1.0.0.tgz'))
  const asked = []
  const port = await listening(t, (request, response) => {
    asked.push(request.url)
    if (request.url.endsWith('.tgz')) return response.end(tarball)
    if (request.url !== '/reaching') return response.writeHead(404).end()
    const dist = { tarball: `http://${request.headers.host}/reaching-1.0.0.tgz` }
    const versions = { '1.0.0': { ...manifest, dist } }
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ name: 'reaching', 'dist-tags': { latest: '1.0.0' }, versions }))
  })
  return { port, asked }
}

test('npx fetches its package from the registry of its user, and once it has started reaches that no more', TIMEOUT, async (t) => {
  const { port, asked } = await registry(t)
  useRegistry(t, port)
  const entry = { command: 'npx', args: ['-y', 'reaching'], confirm: 'never' }
  const shown = await openGateway(t, { it: entry })
  const { box } = await shown.approvalRequest('it')
  assert.ok(box.allows.includes(`may reach 127.0.0.1:${port} until it has started, to fetch its package`), `${box.allows}`)
  const { call } = await open(t, entry)
  assert.ok(asked.includes('/reaching-1.0.0.tgz'), `${asked}`)
  const count = asked.length
  const late = await call('fetch', { url: `http://127.0.0.1:${port}/reaching` })
  assert.equal(late.isError, true, late.text)
  assert.equal(asked.length, count)
})

test('The registry is out of reach as soon as the handshake is done, before any list is read', TIMEOUT, async (t) => {
  const { port, asked } = await registry(t)
  useRegistry(t, port)
  const late = `http://127.0.0.1:${port}/late`
  const { gateway } = await open(t, { command: 'npx', args: ['-y', 'reaching', '--lists', late], confirm: 'never' })
  const { tools } = await gateway.approvalRequest('it')
  assert.equal(tools[0].description, 'Reads a URL: refused.')
  assert.ok(!asked.includes('/late'), `${asked}`)
})

test('variables of a box come before those of the entry', TIMEOUT, async (t) => {
  const server = {
    ...node('everything'),
    env: { GREETING: 'entry', OTHER: 'entry' },
    box: { env: { GREETING: 'box', TMPDIR: '/dev/shm' } },
  }
  const { call } = await open(t, server)
  const { GREETING, OTHER, HOME, TMPDIR } = JSON.parse((await call('get-env', {})).text)
  assert.deepEqual({ GREETING, OTHER, HOME, TMPDIR }, { GREETING: 'box', OTHER: 'entry', HOME: '/box/home', TMPDIR: '/dev/shm' })
})

test('boxes() says which parts the machine has, with a remedy for each that is missing', TIMEOUT, async (t) => {
  const gateway = await openGateway(t, {})
  const report = await gateway.boxes()
  assert.equal(report.available, true, JSON.stringify(report))
  assert.deepEqual(
    report.parts.map(({ name }) => name),
    ['userNamespaces', 'networkNamespaces', 'mounts', 'landlock', 'scopes', 'systemCallFilter', 'cgroup'],
  )
  for (const part of report.parts) assert.equal(part.available, part.problem === undefined, JSON.stringify(part))
  assert.deepEqual(await gateway.boxes(), report)
})

test('private homes of servers that are gone are listed and removed, at the command line too', TIMEOUT, async (t) => {
  const state = folder(t)
  const command = (...words) => {
    const args = [join(root, 'bin/hyperlight-mcp.mjs'), ...words, '--state', state, '--config', join(state, 'none.json')]
    return runSync(process.execPath, args, { limit: ms(60_000) })
  }
  const program = (...words) => command('boxes', ...words)
  writeFileSync(join(state, 'none.json'), '{}')
  const { gateway } = await open(t, { ...node('everything'), box: 'standard' }, { stateDir: state })
  const [home] = await gateway.privateHomes()
  assert.deepEqual([home.server, home.used, home.isComplete], ['it', 'running', true])
  assert.ok(Math.abs(home.lastUsedMs - Date.now()) < ms(60_000))
  assert.match(program().stdout, /^it +[0-9a-f]{12} +0\.0 MiB +20\S+ \S+ +a running server$/m)
  const refused = program('remove', 'it')
  assert.deepEqual([refused.status, /kept it .*a server runs in it/.test(refused.stdout)], [1, true])
  assert.deepEqual((await gateway.removePrivateHomes('unused')).removed, [])
  await assert.rejects(gateway.removePrivateHomes('all'), { code: 'ERR_INVALID_OPTION' })
  await gateway.close()

  assert.deepEqual(
    JSON.parse(program('--json').stdout).map(({ server, used }) => [server, used]),
    [['it', 'approved']],
  )
  const wrong = program('remove', '../..')
  assert.deepEqual([wrong.status, /no server has a private home with the name or id \.\.\/\.\./.test(wrong.stderr)], [1, true])
  assert.match(program('remove', '--unused').stdout, /nothing to remove/)
  assert.match(program('remove', 'it').stdout, /^removed it /)
  assert.match(program().stdout, /no server has a private home/)

  // A home of an earlier version, whose server is not approved.
  const old = join(state, 'boxes', `${'a'.repeat(32)}-${'b'.repeat(64)}`)
  mkdirSync(old)
  const finding = () => JSON.parse(command('doctor', '--json').stdout).checks.find(({ what }) => what === 'boxes: private homes')
  assert.match(finding().remedy, /boxes remove --unused/)
  assert.match(program('remove', '--unused').stdout, /^removed \(unknown\) b{12}: /)
  assert.deepEqual([existsSync(old), finding()], [false, undefined])
})

/** An agent that prints what boxes the machine has, and what a server in one answers. */
const ASKING = `
const { Gateway } = await import(process.argv[1])
const { servers, stateDir } = JSON.parse(process.argv[2])
const gateway = await Gateway.open({ config: { mcpServers: servers }, stateDir })
const { available, landlockAlone, parts } = await gateway.boxes()
await gateway.approve('it')
await gateway.enable('it')
const answer = await gateway.callTool('it', 'echo', { message: 'x' }).then(({ content }) => content[0].text, ({ code, message }) => code + message)
console.log(JSON.stringify({ available, landlockAlone, remedy: parts[0].remedy, answer }))
await gateway.close()
`

test('without namespaces, Landlock holds the box alone, or nothing is started', TIMEOUT, (t) => {
  const options = JSON.stringify({ servers: { it: { ...node('everything'), box: { network: 'none' } } }, stateDir: folder(t) })
  const script = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$0" --input-type=module --eval "$1" "$2" "$3"'
  const args = ['--user', '--map-current-user', 'sh', '-c', script, process.execPath, ASKING, join(root, 'index.mjs'), options]
  const { stdout, stderr } = runSync('unshare', args, { limit: ms(60_000) })
  assert.notEqual(stdout, '', stderr)
  const { available, landlockAlone, remedy, answer } = JSON.parse(stdout)
  assert.equal(available, false)
  assert.match(remedy, /user\.max_user_namespaces/)
  if (landlockAlone) assert.equal(answer, 'Echo: x')
  else assert.match(answer, /^ERR_BOX_FAILED.*user\.max_user_namespaces/s)
})

/** An agent with one server in a box, which goes on until it is killed. */
const AGENT = `
const { Gateway } = await import(process.argv[1])
const { servers, stateDir } = JSON.parse(process.argv[2])
const gateway = await Gateway.open({ config: { mcpServers: servers }, stateDir, onEvent: () => {} })
await gateway.approve('it')
await gateway.enable('it')
await gateway.callTool('it', 'echo', { message: 'x' })
console.log('ready')
setInterval(() => {}, 1000)
`

test('When Node is killed, no process of a box is left', TIMEOUT, async (t) => {
  const options = JSON.stringify({ servers: { it: { ...node('everything'), box: 'standard' } }, stateDir: folder(t) })
  const args = ['--input-type=module', '-e', AGENT, join(root, 'index.mjs'), options]
  const agent = start(t, process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(agent.stdout, 'data')
  const below = (pid) => children(pid).flatMap((child) => [child, ...below(child.pid)])
  const all = below(agent.pid)
  // The outer process, init and the server, one below the other.
  const depth = (pid) => Math.max(0, ...children(pid).map((child) => 1 + depth(child.pid)))
  assert.ok(
    children(agent.pid).some(({ pid }) => depth(pid) >= 2),
    JSON.stringify(all),
  )
  agent.kill('SIGKILL')
  await waitFor('all processes to end', () => !all.some(({ pid }) => isAlive(pid)), ms(2000))
})
