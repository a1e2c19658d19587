// Tests of package runners whose user has another registry than npm's and PyPI's: the settings of npm and uv give the box its registry until the
// handshake, and not after. The registries are on loopback, and serve packages that are made here.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { uvx } from '../scripts/lib/tools.mjs'
import { folder, ms, openGateway, outputOf, root } from './support.mjs'

const TIMEOUT = { timeout: ms(240_000) }
const limits = { connectTimeoutMs: ms(120_000) }
/** Variables that decide about a registry, or about the folder of the settings. */
const DECIDING = /^(npm_config_|uv_|pip_|xdg_config_home$)/i

/** Gives this process a home with these files, and these variables, until the end of the test. */
function settings(t, files, variables = {}) {
  const home = folder(t)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(join(home, path, '..'), { recursive: true })
    writeFileSync(join(home, path), text)
  }
  const before = { ...process.env }
  t.after(() => {
    for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name]
    Object.assign(process.env, before)
  })
  for (const name of Object.keys(process.env)) if (DECIDING.test(name)) delete process.env[name]
  Object.assign(process.env, { HOME: home }, variables)
}

/** Starts a host. Returns its address and the paths that were asked for. */
async function listening(t, answer) {
  const asked = []
  const server = createServer((request, response) => {
    asked.push(request.url)
    return answer(request, response)
  }).listen(0, '127.0.0.1')
  t.after(() => server.close() && server.closeAllConnections())
  await once(server, 'listening')
  const host = `127.0.0.1:${server.address().port}`
  return { host, url: `http://${host}`, asked }
}

const nothing = (_, response) => response.writeHead(404).end()

/** A registry of npm with one package, whose program is a server that reaches URLs. */
async function npmRegistry(t, name) {
  const path = folder(t)
  const manifest = { name, version: '1.0.0', bin: 'reaching.mjs' }
  writeFileSync(join(path, 'package.json'), JSON.stringify(manifest))
  const program = readFileSync(join(root, '__test__/fixtures/reaching.mjs'), 'utf8')
  writeFileSync(join(path, 'reaching.mjs'), `#!/usr/bin/env node\n${program}`)
  const file = outputOf('npm', ['pack', path, '--pack-destination', path, '--silent']).trim()
  const tarball = readFileSync(join(path, file))
  return listening(t, (request, response) => {
    if (request.url.endsWith('.tgz')) return response.end(tarball)
    if (decodeURIComponent(request.url) !== `/${name}`) return nothing(request, response)
    const dist = { tarball: `http://${request.headers.host}/${file}` }
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ name, 'dist-tags': { latest: '1.0.0' }, versions: { '1.0.0': { ...manifest, dist } } }))
  })
}

/** An index of PyPI's kind with the package `acme-reaching`, a server that reaches URLs. */
async function pythonIndex(t) {
  const path = folder(t)
  outputOf('python3', [fileURLToPath(new URL('./fixtures/index_wheel.py', import.meta.url)), path, 'acme-reaching'])
  const file = 'acme_reaching-1.0.0-py3-none-any.whl'
  const wheel = readFileSync(join(path, file))
  return listening(t, (request, response) => {
    if (request.url === `/files/${file}`) return response.end(wheel)
    if (request.url !== '/simple/acme-reaching/') return nothing(request, response)
    response.setHeader('content-type', 'text/html').end(`<a href="/files/${file}">${file}</a>`)
  })
}

/** Approves the server, and checks that its registries are shown, reached for the start, and not after. */
async function startsBy(t, entry, registries) {
  const gateway = await openGateway(t, { it: { ...entry, confirm: 'never' } }, { limits })
  const { box } = await gateway.approvalRequest('it')
  const hosts = registries.map(({ host }) => host).sort()
  assert.ok(box.allows.includes(`may reach ${hosts.join(', ')} until it has started, to fetch its package`), `${box.allows}`)
  await gateway.approve('it')
  await gateway.approve('it')
  await gateway.enable('it')
  const counts = registries.map(({ asked }) => asked.length)
  assert.ok(counts.at(-1) > 0, 'the package came from the last registry')
  // The first call starts the server again, which may fetch the package once more.
  await gateway.callTool('it', 'fetch', { url: 'http://127.0.0.1:9/' })
  const before = registries.map(({ asked }) => asked.length)
  for (const { url } of registries) {
    const { isError, content } = await gateway.callTool('it', 'fetch', { url: `${url}/late` })
    assert.equal(isError, true, JSON.stringify(content))
  }
  assert.deepEqual(
    registries.map(({ asked }) => asked.length),
    before,
  )
}

test('the registry of a scope in .npmrc has the packages of the scope', TIMEOUT, async (t) => {
  const [usual, acme] = [await listening(t, nothing), await npmRegistry(t, '@acme/reaching')]
  settings(t, { '.npmrc': `registry=${usual.url}/\n@acme:registry=${acme.url}/\n` })
  await startsBy(t, { command: 'npx', args: ['-y', '@acme/reaching'] }, [usual, acme])
  assert.ok(acme.asked.some((path) => path.endsWith('.tgz')))
  assert.ok(!usual.asked.some((path) => path.includes('reaching')), `${usual.asked}`)
})

for (const [source, files, variables] of [
  ['UV_DEFAULT_INDEX', () => ({}), (url) => ({ UV_DEFAULT_INDEX: url })],
  ['UV_INDEX_URL', () => ({}), (url) => ({ UV_INDEX_URL: url })],
  ['uv.toml', (url) => ({ '.config/uv/uv.toml': `[[index]]\nurl = "${url}"\ndefault = true\n` }), () => ({})],
]) {
  test(`uvx fetches a package from the index that ${source} names`, TIMEOUT, async (t) => {
    const index = await pythonIndex(t)
    const url = `${index.url}/simple`
    settings(t, files(url), variables(url))
    await startsBy(t, { command: uvx(), args: ['acme-reaching'] }, [index])
    assert.ok(index.asked.some((path) => path.endsWith('.whl')))
  })
}

test('an index that only the entry names is not reached unless its box has it', TIMEOUT, async (t) => {
  const [usual, index] = [await listening(t, nothing), await pythonIndex(t)]
  const url = `${index.url}/simple`
  settings(t, {}, { UV_DEFAULT_INDEX: `${usual.url}/simple` })
  const entry = { command: uvx(), args: ['acme-reaching'], env: { UV_DEFAULT_INDEX: url, UV_HTTP_RETRIES: '0' }, confirm: 'never' }
  const without = await openGateway(t, { it: entry }, { limits })
  await assert.rejects(without.approve('it'), ({ message }) => message.includes(`its box does not allow ${index.host}`))
  assert.deepEqual(index.asked, [])
  const gateway = await openGateway(t, { it: { ...entry, box: { network: [index.host] } } }, { limits })
  await gateway.approve('it')
  assert.ok(index.asked.some((path) => path.endsWith('.whl')))
})
