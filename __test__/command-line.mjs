// Runs the program hyperlight-mcp for tests, in a home of its own: to its end, or at a pseudo-terminal (util-linux `script`).
import { mkdirSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { Gateway } from '../index.mjs'
import { endOf, folder, gated, guest, listenTo, ms, root, typed } from './support.mjs'

export const program = join(root, 'bin/hyperlight-mcp.mjs')
export const LIMIT = ms(60_000)
export const small = (...args) => gated('--tools', 'get-forecast,write_note,sleep', ...args)

/** Makes a home and a working folder. If servers are given, also writes their config. */
export function place(t, servers) {
  const home = folder(t)
  const work = join(home, 'work')
  mkdirSync(work)
  if (servers) {
    mkdirSync(join(home, '.hyperagent'), { mode: 0o700 })
    writeFileSync(join(home, '.hyperagent/config.json'), JSON.stringify({ mcpServers: servers }))
  }
  return { t, home, work }
}

/** The user's cache: with its snapshot of the guest, a program with a home of its own need not boot one. */
const cache = process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache')

export const environment = ({ home }, more) => ({ PATH: process.env.PATH, HOME: home, XDG_CACHE_HOME: cache, ...more })

/** Runs the program to its end. */
export function run(at, words, { input = '', env = {}, limit = LIMIT, onStart = () => {} } = {}) {
  const child = listenTo(at.t, process.execPath, [program, ...words], { cwd: at.work, env: environment(at, env), limit })
  const ended = endOf(child)
  child.stdin.on('error', () => {}).end(input)
  onStart(child, child.output)
  return ended
}

/** Runs the program at a terminal of 80 columns. Each pair is a text to wait for, and the answer that is typed then. */
export function atTerminal(at, words, dialogue, { env = {}, limit = LIMIT } = {}) {
  const command = [process.execPath, program, ...words].map((word) => `'${word}'`).join(' ')
  return typed(at.t, command, dialogue, { cwd: at.work, env: environment(at, env), limit })
}

/**
 * Makes a place whose servers are approved. This process approves them: with the program, each server would take four starts of it.
 * cli.test.mjs tests how a person approves with the program.
 */
export async function approved(t, servers) {
  const at = place(t, servers)
  const ours = join(at.home, '.hyperagent')
  const gateway = await Gateway.open({
    configPath: join(ours, 'config.json'),
    stateDir: join(ours, 'hyperlight-mcp'),
    workspaceFolder: at.work,
    guest,
  })
  try {
    for (const name of Object.keys(servers)) await gateway.approve(name)
  } finally {
    await gateway.close()
  }
  return at
}

export const write = ({ work }, name, text) => writeFileSync(join(work, name), text)
