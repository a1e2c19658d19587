// Tests that a changed config is read again automatically: Gateway.open({ watch }), and `serve`, which watches unless it is told not to.
import assert from 'node:assert/strict'
import { appendFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { Gateway } from '../index.mjs'
import { approved, environment, LIMIT, program, run, small } from './command-line.mjs'
import { afterwards, deferred, endOf, fixture, folder, guest, listenTo, waitFor } from './support.mjs'

const config = (servers) => JSON.stringify({ mcpServers: servers })

/** Opens a gateway with a config file, with or without a watch. `events` are those so far. */
async function watching(t, servers, options = { watch: true }) {
  const path = join(folder(t), 'config.json')
  writeFileSync(path, config(servers))
  const events = []
  const gateway = await Gateway.open({
    configPath: options.configPath?.(path) ?? path,
    stateDir: join(folder(t), 'state'),
    guest,
    onEvent: (event) => events.push(event),
    watch: options.watch,
  })
  afterwards(t, () => gateway.close())
  const of = (type) => events.filter((event) => event.type === type)
  const names = () => gateway.servers().map(({ name }) => name)
  return { gateway, path, of, names, until: (what) => waitFor(what, () => names().join() === what) }
}

/** Replaces a file as most editors do. */
function replace(path, text) {
  writeFileSync(`${path}.new`, text)
  renameSync(`${path}.new`, path)
}

test('A changed config is read again in whichever way it was written, and nobody is approved by that', async (t) => {
  const { gateway, path, of, names, until } = await watching(t, { a: fixture() })
  await gateway.approve('a')
  await gateway.enable('a')
  replace(path, config({ a: fixture(), b: fixture() }))
  await until('a,b')
  writeFileSync(path, config({ a: fixture(), c: fixture() }))
  await until('a,c')
  rmSync(path)
  writeFileSync(path, config({ a: fixture('--tools', 'sleep'), d: fixture() }))
  await until('a,d')
  await waitFor('the last event', () => of('config-reloaded').length === 3)
  const lists = of('config-reloaded').map(({ added, changed, removed }) => [added, changed, removed])
  assert.deepEqual(lists, [
    [['b'], [], []],
    [['c'], [], ['b']],
    [['d'], ['a'], ['c']],
  ])
  assert.deepEqual(names(), ['a', 'd'])
  assert.ok(gateway.servers().every(({ approved, enabled }) => !(approved && enabled)))
  assert.deepEqual(of('warning'), [])
})

test('A config that is half written, invalid or gone changes nothing, is one warning, and is read once it is sound', async (t) => {
  const { path, of, names, until } = await watching(t, { a: fixture() })
  const text = config({ a: fixture(), b: fixture() })
  replace(path, text.slice(0, 30))
  await waitFor('the warning', () => of('warning').length > 0)
  assert.match(of('warning')[0].message, /the config has changed, and cannot be used as it is now.*config\.json:1:/s)
  assert.deepEqual(names(), ['a'])
  appendFileSync(path, text.slice(30))
  await until('a,b')
  rmSync(path)
  await waitFor('the second warning', () => of('warning').length > 1)
  assert.deepEqual(names(), ['a', 'b'])
  replace(path, config({ c: fixture() }))
  await until('c')
  assert.equal(of('warning').length, 2)
})

test('Of a burst of changes, not each is read, and the last is', async (t) => {
  const { path, of, until } = await watching(t, { a: fixture() })
  for (let count = 0; count < 50; count++) replace(path, config({ a: fixture(), [`b${count}`]: fixture() }))
  await until('a,b49')
  await waitFor('the event', () => of('config-reloaded').at(-1)?.added.join() === 'b49')
  assert.ok(of('config-reloaded').length < 10)
})

test('Behind a link, the file and the link itself may change', async (t) => {
  const links = folder(t)
  const link = join(links, 'link.json')
  const configPath = (path) => symlinkSync(path, link) ?? link
  const { path, until } = await watching(t, { a: fixture() }, { watch: true, configPath })
  replace(path, config({ b: fixture() }))
  await until('b')
  const other = join(links, 'other.json')
  writeFileSync(other, config({ c: fixture() }))
  symlinkSync(other, `${link}.new`)
  renameSync(`${link}.new`, link)
  await until('c')
})

test('A gateway that does not watch, and one whose config is an object, read nothing by themselves', async (t) => {
  const still = await watching(t, { a: fixture() }, { watch: false })
  const other = await watching(t, { a: fixture() })
  for (const { path } of [still, other]) replace(path, config({ b: fixture() }))
  await other.until('b')
  assert.deepEqual(still.names(), ['a'])
  const gateway = await Gateway.open({ config: { mcpServers: { a: fixture() } }, stateDir: join(folder(t), 'state'), watch: true })
  afterwards(t, () => gateway.close())
  assert.deepEqual(
    gateway.servers().map(({ name }) => name),
    ['a'],
  )
})

/** Starts `serve` over HTTP. */
async function serving(t, at, words) {
  const child = listenTo(t, process.execPath, [program, 'serve', '--http', '0', ...words], {
    cwd: at.work,
    env: environment(at),
    limit: LIMIT,
  })
  const ended = endOf(child)
  await waitFor('the address', () => child.output.stderr.includes('serving http') || child.exitCode !== null, LIMIT)
  const url = /serving (http\S+)/.exec(child.output.stderr)?.[1] ?? assert.fail(child.output.stderr)
  const client = new Client({ name: 'Test Host', version: '1.0.0' })
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  t.after(() => client.close())
  const changed = deferred()
  client.setNotificationHandler('notifications/tools/list_changed', () => changed.resolve())
  const states = async () => {
    const { structuredContent } = await client.callTool({ name: 'list_mcp_servers', arguments: {} })
    return Object.fromEntries(structuredContent.servers.map(({ name, usable }) => [name, usable]))
  }
  return { child, client, states, ended, changed: changed.promise }
}

test('serve reads a changed config again, and --servers holds for what comes later', async (t) => {
  const entries = { fixture: small(), other: small(), late: small() }
  const at = await approved(t, entries)
  const path = join(at.home, '.hyperagent/config.json')
  const { late, ...first } = entries
  writeFileSync(path, config(first))
  const [all, one, deaf] = await Promise.all([
    serving(t, at, []),
    serving(t, at, ['--servers', 'fixture', '--watch', 'true']),
    serving(t, at, ['--no-watch']),
  ])
  assert.deepEqual(await one.states(), { fixture: true, other: false })
  replace(path, config(entries))
  await waitFor('the server in the changed config', async () => (await all.states()).late, LIMIT)
  await all.changed
  await waitFor('the same elsewhere', async () => 'late' in (await one.states()), LIMIT)
  assert.match(all.child.output.stderr, /config: read again: added: late\. To approve new servers: .*approve/)
  const { structuredContent } = await one.client.callTool({ name: 'manage_mcp', arguments: { action: 'enable', server: 'late' } })
  assert.equal(structuredContent.error.code, 'ERR_DISABLED_BY_PERSON')
  assert.deepEqual(await one.states(), { fixture: true, other: false, late: false })
  assert.deepEqual(await deaf.states(), { fixture: true, other: true })
})

test('serve goes on with the last config where a changed one cannot be used', async (t) => {
  const at = await approved(t, { fixture: small() })
  const { child, states } = await serving(t, at, [])
  writeFileSync(join(at.home, '.hyperagent/config.json'), '{ "mcpServers": {')
  await waitFor('the warning', () => child.output.stderr.includes('warning: the config has changed'), LIMIT)
  assert.deepEqual(await states(), { fixture: true })
  assert.equal((await run(at, ['serve', '--watch', 'maybe'])).code, 2)
})
