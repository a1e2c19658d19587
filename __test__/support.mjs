// Code that the tests share: fixture servers, gateways that clean up after themselves, and waits for conditions. processes.mjs starts
// programs.
import assert from 'node:assert/strict'
import { appendFileSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Gateway } from '../index.mjs'
// node_modules/.bin/tsc is a script of Node that only starts this program, and takes as long as the program takes for a small file.
import typescriptProgram from '../node_modules/typescript/lib/getExePath.js'
import { afterwards, ms, outputOf } from './processes.mjs'

export * from './processes.mjs'

export const root = dirname(dirname(fileURLToPath(import.meta.url)))

/** The guest on which the whole suite runs: the one that boots here, unless the environment names one. */
export const guest = process.env.HYPERLIGHT_MCP_GUEST ?? 'auto'

export const fixtureProgram = join(root, 'target/programs/fixture-server')
/**
 * The box of the tests' own servers. It is off, as many tests look at the server's process from outside. With HYPERLIGHT_MCP_TEST_BOXES=1 these
 * servers have boxes: `scripts/test` does this with files whose tests do not look.
 */
export const testBox = process.env.HYPERLIGHT_MCP_TEST_BOXES === '1' ? 'standard' : 'off'
/**
 * Returns the config entry of a fixture server with the default of `confirm`: a person is asked before calls that may write.
 * tests/fixtures/server/README.md lists the flags.
 */
export function gated(...args) {
  // A box has the files in the arguments that exist.
  const log = args.indexOf('--log')
  if (log >= 0 && testBox !== 'off') appendFileSync(args[log + 1], '')
  return { command: fixtureProgram, args, box: testBox }
}
/** Returns the same entry, with calls that ask nobody. */
export const fixture = (...args) => ({ ...gated(...args), confirm: 'never' })

/** Returns the same server as agents and providers may bring it: without settings for calls and boxes. */
export const added = (...args) => ({ command: fixtureProgram, args })

/**
 * Returns the arguments with which Node is a server that answers as the program text `setup` says. The text declares `answers`: a function for each method, from
 * its parameters to its result. Without `answers.initialize`, the server has the capabilities whose lists it can answer. Other methods are errors.
 */
export const answering = (setup, ...args) => [
  '-e',
  `${setup}
  const lists = { tools: 'tools/list', resources: 'resources/list', prompts: 'prompts/list', completions: 'completion/complete' }
  const known = Object.entries(lists).filter(([, method]) => answers[method])
  const capabilities = Object.fromEntries(known.map(([capability]) => [capability, {}]))
  answers.initialize ??= ({ protocolVersion }) => ({ protocolVersion, capabilities, serverInfo: { name: 'answering', version: '1' } })
  require('node:readline').createInterface(process.stdin).on('line', (line) => {
    const { id, method, params } = JSON.parse(line)
    if (id === undefined) return
    const outcome = answers[method] ? { result: answers[method](params) } : { error: { code: -32601, message: 'unknown method' } }
    console.log(JSON.stringify({ jsonrpc: '2.0', id, ...outcome }))
  })`,
  ...args,
]

/** A server with one tool, `give`, which returns exactly its arguments as the result. It gives results that no correct server gives. */
export const mirror = {
  command: process.execPath,
  box: testBox,
  confirm: 'never',
  args: answering(`const answers = {
      'tools/list': () => ({ tools: [{ name: 'give', inputSchema: { type: 'object' } }] }),
      'tools/call': (params) => params.arguments,
    }`),
}

/** Makes a folder that is removed after the test. */
export function folder(t) {
  const path = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-test-'))
  afterwards(t, () => rmSync(path, { recursive: true, force: true }))
  return path
}

/** Makes a file of tokens, by the names of their callers, that only its owner may read. */
export function tokenFileOf(t, tokens) {
  const path = join(folder(t), 'tokens')
  const lines = Object.entries(tokens).map(([name, token]) => `${name}:${token}`)
  writeFileSync(path, lines.join('\n'), { mode: 0o600 })
  return path
}

/** Opens a gateway with these servers, none of them approved. The gateway is closed after the test. */
export async function openGateway(t, servers = {}, options = {}) {
  const gateway = await Gateway.open({ config: { mcpServers: servers }, stateDir: join(folder(t), 'state'), guest, ...options })
  afterwards(t, () => gateway.close())
  return gateway
}

/** Does the same, and approves and enables every server. */
export async function openApproved(t, servers, options) {
  const gateway = await openGateway(t, servers, options)
  for (const name of Object.keys(servers)) {
    await gateway.approve(name)
    await gateway.enable(name)
  }
  return gateway
}

/** Opens a sandbox with one fixture server named `fixture`. */
export async function openSandbox(t, { args = [], options = {}, sandbox = {} } = {}) {
  const gateway = await openApproved(t, { fixture: fixture(...args) }, options)
  return { gateway, sandbox: await gateway.sandbox(sandbox) }
}

/** Returns the value of an expression in the guest, where `fixture` is the fixture server's module. */
export async function evaluate(sandbox, expression, options) {
  const code = `import * as fixture from "host:mcp-fixture"; import { call, tools } from "host:mcp"; export const handler = (input) => (${expression});`
  return sandbox.run(code, options)
}

/** Returns the errors of `tsc --strict` for these files. There are none if the files compile. */
export function compiled(t, files, lib = ['es2022']) {
  const path = folder(t)
  for (const [name, text] of Object.entries(files)) writeFileSync(join(path, name), text)
  const options = {
    strict: true,
    noEmit: true,
    target: 'es2022',
    lib,
    types: [],
    module: 'esnext',
    moduleResolution: 'bundler',
  }
  writeFileSync(join(path, 'tsconfig.json'), JSON.stringify({ compilerOptions: options, include: ['*.ts'] }))
  try {
    outputOf(typescriptProgram(), ['-p', path, '--pretty', 'false'])
    return ''
  } catch (error) {
    return error.stdout
  }
}

/** Returns the error that a promise rejects with, or that a function throws. It must be an `Error` with this stable code. */
export async function failure(attempt, code) {
  let outcome
  try {
    outcome = await (typeof attempt === 'function' ? attempt() : attempt)
  } catch (error) {
    assert.ok(error instanceof Error, `not an Error: ${error}`)
    assert.match(String(error.code), /^ERR_[A-Z_]+$/, `without a stable code: ${error.stack}`)
    assert.equal(error.code, code, error.message)
    return error
  }
  assert.fail(`${code} was expected, and this came: ${JSON.stringify(outcome)?.slice(0, 300)}`)
}

export function isAlive(pid) {
  try {
    process.kill(pid, 0)
  } catch (error) {
    return error.code === 'EPERM'
  }
  // A zombie has ended, and its parent has not reaped it yet.
  try {
    return !/^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

/** Waits until a condition holds. If the time is over, fails with `what`: a text, or a function that returns one. */
export async function waitFor(what, condition, timeout = ms(5000)) {
  const deadline = performance.now() + timeout
  for (;;) {
    const value = await condition()
    if (value) return value
    if (performance.now() > deadline) throw new Error(`waited ${timeout} ms in vain for: ${typeof what === 'function' ? what() : what}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

/**
 * Returns what this process holds, by name. VMs are counted separately: the pool decides how many wait at a moment, and each has
 * descriptors of its own and a thread that the kernel adds to the process.
 */
export function held() {
  const named = (folder, name) =>
    readdirSync(`/proc/self/${folder}`).flatMap((entry) => {
      try {
        return [name(`/proc/self/${folder}/${entry}`)]
      } catch {
        return [] // It ended meanwhile.
      }
    })
  const threads = named('task', (path) => readFileSync(`${path}/comm`, 'utf8').trim())
  const descriptors = named('fd', (path) => readlinkSync(path))
  const ofVm = (name) => name.startsWith('anon_inode:kvm-v')
  return {
    threads: threads.filter((name) => !name.startsWith('kvm-')),
    descriptors: descriptors.filter((name) => !ofVm(name)),
    vms: descriptors.filter((name) => name === 'anon_inode:kvm-vm').length,
  }
}

/** The lines that a fixture server wrote by --log. */
export function logLines(path) {
  try {
    return readFileSync(path, 'utf8')
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line))
  } catch {
    return []
  }
}

/** Passes if one of three attempts is fast enough. Other work on this machine can only make an attempt slower. */
export async function promptly(limit, attempt) {
  const times = []
  while (times.length < 3) {
    times.push(await attempt())
    if (times.at(-1) <= limit) return
  }
  throw new Error(`expected at most ${limit} ms, but it took ${times.map((time) => Math.round(time)).join(', ')} ms`)
}

/** Returns the calls of a tool that have reached a fixture server with --log. */
export const arrived = (log, tool) => logLines(log).filter((line) => line.event === 'request' && line.name === tool)

/** Returns a promise, with the functions that settle it. */
export function deferred() {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}

/**
 * Opens a server that connects normally while it is approved, and that behaves in another way after its mode file is written. In between,
 * the server is disabled, so that its process is replaced.
 */
export async function openTurning(t, ...args) {
  const path = folder(t)
  const [mode, log] = [join(path, 'mode'), join(path, 'log')]
  const script = `if [ -e "$0" ]; then exec "$1" --log "$2" ${args.join(' ')}; else exec "$1" --log "$2"; fi`
  const gateway = await openApproved(t, {
    fixture: { command: '/bin/sh', args: ['-c', script, mode, fixtureProgram, log], confirm: 'never', box: testBox },
  })
  await gateway.disable('fixture')
  writeFileSync(mode, '')
  await gateway.enable('fixture')
  rmSync(log)
  const spawned = () => logLines(log).filter((line) => line.event === 'spawn')
  return {
    gateway,
    heal: () => rmSync(mode),
    connecting: (count = 1) => waitFor('the server to be started', () => spawned().length >= count && spawned()),
  }
}

/** Returns the processes that a process has started and not yet reaped, including zombies (state Z). */
export function children(parent = process.pid) {
  const found = []
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const [, name, state, ppid] = /^\d+ \((.*)\) (\S) (\d+)/s.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))
      if (Number(ppid) === parent) found.push({ pid: Number(pid), name, state })
    } catch {
      // It has ended meanwhile.
    }
  }
  return found
}
