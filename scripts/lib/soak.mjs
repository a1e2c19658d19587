// Implementation of scripts/soak: checks these rules while servers are killed during calls.
//
// - Each call ends soon, with its own result or with an error code that names the cause.
// - Each call is executed at most once, and exactly once if it returned a result. The servers' tool `counted` records each execution.
// - Memory, threads, descriptors and processes are the same at the end as after the warm-up. At the end, all child processes are gone.
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { Gateway } from '../../index.mjs'

const { values: options } = parseArgs({
  options: {
    calls: { type: 'string', default: '10000' },
    seconds: { type: 'string', default: '60' },
    'kill-every': { type: 'string', default: '1000' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    json: { type: 'boolean', default: false },
  },
})
const [calls, seconds, killEvery, seed] = [options.calls, options.seconds, options['kill-every'], options.seed].map(Number)
const FIXTURE = resolve('target/programs/fixture-server')
const SERVERS = 5
const SANDBOXES = 8
/** Number of calls in one run, and number of callers without a sandbox. */
const [BATCH, DIRECT] = [8, 2]
/** Error codes of a call whose server was killed: during the call, at its start, or at several starts in a row. */
const EXPECTED = new Set(['ERR_SERVER_EXITED', 'ERR_CONNECT_FAILED', 'ERR_SERVER_UNAVAILABLE'])
/** A call takes the time that its server was told to take, and perhaps the time of a reconnection. Emulation is slower. */
const [LIMIT_MS, GROWTH_MIB] = [process.env.HYPERLIGHT_MCP_EMULATED === '1' ? 60_000 : 10_000, 12]

/** The resources whose number must not grow. */
const COUNTED = ['threads', 'descriptors', 'processes']
/** More than the time for which tokio keeps an idle thread of its blocking pool. */
const IDLE_THREAD_MS = 15_000

const GUEST = `
  import { call } from "host:mcp";
  export const handler = (calls) => calls.map(({ server, key, ms }) => {
    const started = performance.now();
    const ended = (outcome) => ({ server, key, ms, took: performance.now() - started, ...outcome });
    try { return ended({ result: call(server, "counted", { key, ms }).structuredContent }) }
    catch ({ code, message }) { return ended({ code, message }) }
  });`

/** Returns a generator of numbers from 0 to 1. The same seed gives the same numbers (mulberry32). */
function random(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

/** Returns the child processes of a process. Those of this process include the watchdog. */
function children(of = process.pid) {
  const found = []
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const [, name, parent] = /^\d+ \((.*)\) \S (\d+)/s.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))
      if (Number(parent) === of) found.push({ pid: Number(pid), name })
    } catch {
      // It has ended meanwhile.
    }
  }
  return found
}

/** Returns the processes of one server in its box: the outer process, the first one of its namespace, and the server, as far as they exist. */
function boxed(pid) {
  return [pid, ...children(pid).flatMap((child) => boxed(child.pid))]
}

function isBox({ pid }) {
  try {
    return readlinkSync(`/proc/${pid}/exe`).endsWith('/hyperlight-mcp-box')
  } catch {
    return false // It has ended meanwhile.
  }
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

/**
 * Measures the resources of this process. A run's thread and a server's pipes end a moment after the run, so it measures until the result
 * is stable.
 */
async function resources() {
  const now = () => {
    globalThis.gc()
    const status = readFileSync('/proc/self/status', 'utf8')
    const kib = [...status.matchAll(/Rss(?:Anon|Shmem):\s+(\d+)/g)].reduce((sum, [, size]) => sum + Number(size), 0)
    const count = (path) => readdirSync(path).length
    return { mib: kib / 1024, threads: count('/proc/self/task'), descriptors: count('/proc/self/fd'), processes: children().length }
  }
  let last = now()
  for (let same = 0; same < 5; ) {
    await sleep(50)
    const next = now()
    same = COUNTED.every((what) => next[what] === last[what]) ? same + 1 : 0
    last = next
  }
  return last
}

/**
 * Measures the resources after the calls. The runtime's threads for blocking work, of which a busy machine needs more, end when they have had
 * nothing to do for 10 s. So an increased number is measured again until then; a thread that stays has leaked.
 */
async function resourcesAfter(before) {
  const deadline = performance.now() + IDLE_THREAD_MS
  for (;;) {
    const after = await resources()
    if (COUNTED.every((what) => after[what] <= before[what]) || performance.now() > deadline) return after
  }
}

/** Kills servers at intervals: the server itself, or another process of its box. The returned function stops this and returns the number of killed servers. */
function startKilling(chance) {
  let kills = 0
  const timer = setInterval(() => {
    const servers = children().filter(isBox)
    if (servers.length === 0) return
    const one = boxed(servers[Math.floor(chance() * servers.length)].pid)
    try {
      process.kill(one[Math.floor(chance() * one.length)], 'SIGKILL')
      kills += 1
    } catch {
      // It has ended by itself meanwhile.
    }
  }, killEvery)
  return () => {
    clearInterval(timer)
    return kills
  }
}

/** Yields the calls of one lane: either several calls in each run of a sandbox, or direct calls. */
async function* batches(lane, count) {
  const chance = random(seed * 1000 + lane)
  const mean = (seconds * 1000 * (SANDBOXES + DIRECT)) / calls
  const one = (index) => ({ server: `s${Math.floor(chance() * SERVERS)}`, key: `${lane}-${index}`, ms: Math.round(chance() * 2 * mean) })
  for (let index = 0; index < count; index += BATCH) {
    yield Array.from({ length: Math.min(BATCH, count - index) }, (_, offset) => one(`${count}-${index + offset}`))
  }
}

async function direct(gateway, { server, key, ms }) {
  const started = performance.now()
  const outcome = await gateway.callTool(server, 'counted', { key, ms }).then(
    ({ structuredContent }) => ({ result: structuredContent }),
    ({ code, message }) => ({ code, message }),
  )
  return { server, key, ms, took: performance.now() - started, ...outcome }
}

/** Makes `count` calls on all lanes at once while servers are killed. Returns the outcomes and the number of killed servers. */
async function phase(gateway, sandboxes, count) {
  const stop = startKilling(random(seed + count))
  const each = Math.ceil(count / (SANDBOXES + DIRECT))
  const outcomes = []
  const lane = async (number) => {
    for await (const batch of batches(number, each)) {
      if (number < SANDBOXES) outcomes.push(...(await sandboxes[number].run(GUEST, { input: batch })).value)
      else for (const call of batch) outcomes.push(await direct(gateway, call))
    }
  }
  await Promise.all(Array.from({ length: SANDBOXES + DIRECT }, (_, number) => lane(number)))
  return { outcomes, kills: stop() }
}

/** Calls each server until a call succeeds, so that all servers are connected. */
async function wake(gateway, names) {
  const deadline = performance.now() + 120_000
  for (const name of names) {
    for (let attempt = 0; ; attempt += 1) {
      const { code, message } = await direct(gateway, { server: name, key: `wake-${name}-${attempt}-${deadline}`, ms: 0 })
      if (!code) break
      if (performance.now() > deadline) throw new Error(`${name} does not come back: ${message}`)
      await sleep(500)
    }
  }
}

/** Compares the outcomes with the executions that the servers recorded. Returns the violations. */
function judge(outcomes, ledgers) {
  const executed = new Map()
  for (const key of ledgers.flatMap((path) => readFileSync(path, 'utf8').split('\n').filter(Boolean))) {
    executed.set(key, (executed.get(key) ?? 0) + 1)
  }
  const problems = [...executed].filter(([, times]) => times > 1).map(([key, times]) => `call ${key} was executed ${times} times`)
  for (const { key, ms, took, result, code, message } of outcomes) {
    if (code ? !EXPECTED.has(code) : result?.key !== key)
      problems.push(`call ${key} ended in an unexpected way: ${code} ${message} ${JSON.stringify(result)}`)
    if (!code && executed.get(key) !== 1) problems.push(`call ${key} gave a result and was executed ${executed.get(key) ?? 0} times`)
    if (took > ms + LIMIT_MS) problems.push(`call ${key} took ${Math.round(took)} ms instead of ${ms}`)
  }
  return problems
}

function growth(before, after) {
  const problems = COUNTED.filter((what) => after[what] > before[what]).map((what) => `${before[what]} ${what} became ${after[what]}`)
  if (after.mib - before.mib > GROWTH_MIB) problems.push(`${Math.round(before.mib)} MiB became ${Math.round(after.mib)}`)
  return problems
}

async function soak(folder) {
  const names = Array.from({ length: SERVERS }, (_, index) => `s${index}`)
  const ledgers = names.map((name) => join(folder, `${name}.ledger`))
  // A box has the files in the arguments, if they exist.
  for (const ledger of ledgers) writeFileSync(ledger, '')
  const config = {
    mcpServers: Object.fromEntries(
      names.map((name, at) => [name, { command: FIXTURE, args: ['--ledger', ledgers[at]], confirm: 'never' }]),
    ),
  }
  const gateway = await Gateway.open({
    config,
    stateDir: join(folder, 'state'),
    limits: { maxConnections: SERVERS },
    guest: process.env.HYPERLIGHT_MCP_GUEST ?? 'auto',
  })
  for (const name of names) await gateway.approve(name)
  for (const name of names) await gateway.enable(name)
  const sandboxes = []
  for (let index = 0; index < SANDBOXES; index += 1) sandboxes.push(await gateway.sandbox())
  const warm = await phase(gateway, sandboxes, Math.ceil(calls / 5))
  await wake(gateway, names)
  const before = await resources()
  const main = await phase(gateway, sandboxes, calls - warm.outcomes.length)
  await wake(gateway, names)
  const after = await resourcesAfter(before)
  await gateway.close()
  const outcomes = [...warm.outcomes, ...main.outcomes]
  const problems = [...judge(outcomes, ledgers), ...growth(before, after)]
  if (children().length > 0) problems.push(`left after close(): ${children().map(({ name }) => name)}`)
  return { seed, ...figures(outcomes), kills: warm.kills + main.kills, before, after, problems }
}

function figures(outcomes) {
  const codes = {}
  for (const { code } of outcomes) if (code) codes[code] = (codes[code] ?? 0) + 1
  const succeeded = outcomes.filter(({ code }) => !code).length
  const latestMs = Math.round(Math.max(...outcomes.map(({ ms, took }) => took - ms)))
  return { calls: outcomes.length, succeeded, codes, latestMs }
}

const folder = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-soak-'))
try {
  const report = await soak(folder)
  if (options.json) console.log(JSON.stringify(report))
  else {
    const { problems, ...rest } = report
    console.log(rest)
    for (const problem of problems.slice(0, 20)) console.log(`FAILED: ${problem}`)
    if (problems.length > 20) console.log(`and ${problems.length - 20} more`)
  }
  process.exitCode = report.problems.length > 0 ? 1 : 0
} finally {
  rmSync(folder, { recursive: true, force: true })
}
