// Tests that nothing in the agent's process releases the locks of the store. SQLite has POSIX locks, which end when the process closes any
// descriptor of the file. Then another process would believe that nobody uses the store.
import assert from 'node:assert/strict'
import { cpSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { Gateway } from '../index.mjs'
import { afterwards, failure, fixture, folder, root } from './support.mjs'

const FILES = ['store.sqlite3', 'store.sqlite3-shm']

/** Counts the locks on each of the two files that SQLite locks. */
function locksOf(stateDir) {
  const all = readFileSync('/proc/locks', 'utf8').split('\n')
  return FILES.map((file) => {
    const { ino } = statSync(join(stateDir, file))
    return all.filter((line) => line.includes(`:${ino} `)).length
  })
}

async function open(t, path, config, options) {
  const stateDir = join(path, 'state')
  const gateway = await Gateway.open({ config, stateDir, workspaceFolder: path, ...options })
  afterwards(t, () => gateway.close())
  await gateway.approve('own')
  // A change that is being written has further locks for a moment.
  const keepsLocks = (step) => {
    const counts = locksOf(stateDir)
    assert.ok(Math.min(...counts) > 0, `${step} released locks: ${counts}`)
  }
  keepsLocks('opening')
  return { gateway, stateDir, keepsLocks }
}

describe('The locks of the store are kept', () => {
  for (const [kind, entries] of Object.entries({
    command: (files) => files.map((file) => ({ command: file })),
    argument: (files) => [{ command: 'node', args: files }],
    envFile: (files) => files.map((file) => ({ command: 'node', envFile: file })),
    pinned: (files) => files.map((file) => ({ command: file, pinExecutable: true })),
  }))
    test(`by an entry that names its files as ${kind}`, async (t) => {
      const path = folder(t)
      const files = FILES.map((file) => join(path, 'state', file))
      const entered = Object.fromEntries(entries(files).map((entry, place) => [`evil${place}`, entry]))
      const { gateway, keepsLocks } = await open(t, path, { mcpServers: { own: fixture(), ...entered } })
      for (const name of Object.keys(entered)) {
        await gateway.approvalRequest(name).catch(() => {})
        keepsLocks('approvalRequest')
        await gateway.approve(name).catch(() => {})
        keepsLocks('approve')
      }
      await gateway.revoke('own')
      await gateway.approve('own')
      keepsLocks('the approval of another server')
    })

  test('by a server that a model adds', async (t) => {
    const path = folder(t)
    const { gateway, stateDir, keepsLocks } = await open(t, path, { mcpServers: { own: fixture() } })
    const tools = await gateway.agent('m').agentTools({ manage: true })
    const add = tools.find(({ name }) => name === 'add_mcp_server')
    const args = FILES.map((file) => join(stateDir, file))
    await add.execute({ name: 'evil', command: 'node', args, env: null, url: null })
    keepsLocks('add_mcp_server')
  })

  test('by a config of the workspace that is a link to one of its files', async (t) => {
    const path = folder(t)
    mkdirSync(join(path, '.vscode'))
    mkdirSync(join(path, '.cursor'))
    const base = ['vscode', 'cursor']
    symlinkSync(join(path, 'state', FILES[0]), join(path, '.vscode', 'mcp.json'))
    symlinkSync(join(path, 'state', FILES[1]), join(path, '.cursor', 'mcp.json'))
    const configPath = join(path, 'config.json')
    writeFileSync(configPath, JSON.stringify({ base, mcpServers: { own: fixture() } }))
    const { gateway, keepsLocks } = await open(t, path, undefined, { configPath })
    await gateway.reload().catch(() => {})
    keepsLocks('reload')
  })
})

test('a second copy of the package in one process is refused while the first one uses the state folder', async (t) => {
  const path = folder(t)
  const copy = join(path, 'copy')
  for (const part of ['npm/linux-x64-gnu', 'index.js', 'package.json']) cpSync(join(root, part), join(copy, part), { recursive: true })
  const second = createRequire(import.meta.url)(join(copy, 'index.js')).Gateway
  assert.notEqual(second, Gateway)
  const options = { config: { mcpServers: { own: fixture() } }, stateDir: join(path, 'state') }
  const first = await Gateway.open(options)
  afterwards(t, () => first.close())
  const error = await failure(second.open(options), 'ERR_STORE')
  assert.match(error.message, /another copy of hyperlight-mcp in this process uses it.*npm ls hyperlight-mcp/)
  const elsewhere = await second.open({ ...options, stateDir: join(path, 'other') })
  await elsewhere.close()
  await first.close()
  const later = await second.open(options)
  await later.close()
})
