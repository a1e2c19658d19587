// Starts the processes in which bench.mjs measures, for each group of rows. Every group returns, by row, `{ rounds, details }`, or `{
// unavailable }` with the reason.
import { execFile, spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { copies, instructions, perCall } from './lib/reading.mjs'

export const root = dirname(dirname(fileURLToPath(import.meta.url)))
// Figures are those of the optimised build. Tests of the benchmarks use the build that exists.
const built = join(root, 'target/x86_64-unknown-linux-gnu', process.env.HYPERLIGHT_MCP_BENCH_BUILD ?? 'release')
export const server = join(root, 'target/programs/fixture-server')
const nodeServer = join(root, 'benches/node-server.mjs')
const raw = process.env.HYPERLIGHT_MCP_RAW_RMCP ?? join(built, 'examples/raw_rmcp')
const storedServers = process.env.HYPERLIGHT_MCP_STORED_SERVERS ?? join(built, 'examples/stored_servers')
const hostPath = process.env.HYPERLIGHT_MCP_HOST_PATH ?? join(built, 'examples/host_path')
const execute = promisify(execFile)

const beside = (title, unit, rounds, of) => ({ title, unit, values: rounds.map(of) })

/** Runs `work` with an empty home, which has no stored snapshot or other cache. The caller's own cache is neither used nor filled. */
async function withHome(work) {
  const home = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-bench-'))
  mkdirSync(join(home, 'cache'))
  try {
    return await work(home, { ...process.env, HOME: home, XDG_CACHE_HOME: join(home, 'cache') })
  } finally {
    rmSync(home, { recursive: true, force: true })
  }
}

function probe(subject, { guest, rounds, calls }, more = {}) {
  const task = { subject, guest, rounds, calls, server, nodeServer, raw: existsSync(raw) ? raw : undefined, storedServers, ...more }
  return withHome(async (_, env) => {
    const program = ['--expose-gc', join(root, 'benches/probe.mjs'), JSON.stringify(task)]
    return JSON.parse((await execute(process.execPath, program, { env, maxBuffer: 2 ** 28 })).stdout)
  })
}

/** Runs `work` this number of times, for figures that need a separate process in each round. */
async function eachRound(rounds, work) {
  const found = []
  for (let round = 0; round < rounds; round += 1) found.push(await work())
  return found
}

/**
 * Names the guest that boots here. Otherwise, an attempt with the other guest would come first, and the cold start would look slower than
 * it is.
 */
const named = (options) => ({ ...options, guest: options.kind })

async function start(options) {
  const found = await eachRound(options.rounds, () => probe('start', named(options)))
  return {
    warmRun: {
      rounds: found.map(({ warm, cold }) => ({ value: warm, reference: cold })),
      details: [
        beside('one right after the other', 'ms', found, ({ hurried }) => hurried),
        beside('the first run of the process', 'ms', found, ({ first }) => first),
        beside('of the cold start: boot and snapshot', 'ms', found, ({ boot }) => boot),
      ],
    },
  }
}

/** The number of further sandboxes. Their memory is divided by this number. */
const FURTHER = 8

async function memoryRound(options) {
  const one = await probe('memory', options, { count: 1, vms: 1 })
  // First, a VM is kept ready for each sandbox. Then only VMs of runs exist, so that no VM is counted twice.
  const idle = await probe('memory', options, { count: 1 + FURTHER, vms: 1 + FURTHER })
  const ran = await probe('memory', options, { count: 1 + FURTHER, vms: 1 })
  return {
    booted: one.booted - one.before,
    idle: (idle.idle - one.idle) / FURTHER,
    ran: (ran.held - one.held) / FURTHER,
    after: (ran.after - one.after) / FURTHER,
  }
}

async function memory(options) {
  const found = await eachRound(options.rounds, () => memoryRound(named(options)))
  return {
    memoryIdle: { rounds: found.map(({ idle, booted }) => ({ value: idle, reference: booted })) },
    memoryRan: {
      rounds: found.map(({ ran, booted }) => ({ value: ran, reference: booted })),
      details: [beside('once the run has returned', 'MiB', found, ({ after }) => after)],
    },
  }
}

/** Returns the milliseconds from the start of a process to its first output, and all its output. */
function toFirstOutput(args, env) {
  return new Promise((resolve, reject) => {
    const started = performance.now()
    const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] })
    const output = { text: '', first: undefined }
    child.stdout.setEncoding('utf8').on('data', (text) => {
      output.first ??= performance.now() - started
      output.text += text
    })
    child.on('error', reject)
    child.on('close', (code) => (code === 0 ? resolve(output) : reject(new Error(`${args.join(' ')} ended with exit code ${code}`))))
  })
}

const SAY = "require('node:fs').writeSync(1, 'result')"

async function firstRound(program, env) {
  const node = await toFirstOutput(['-e', SAY], env)
  const loaded = await toFirstOutput(['-e', `require(${JSON.stringify(root)}); ${SAY}`], env)
  const whole = await toFirstOutput(program, env)
  return { node: node.first, loaded: loaded.first, whole: whole.first, ...JSON.parse(whole.text.split('\n')[1]) }
}

async function first({ rounds, guest }) {
  const found = await withHome(async (home, env) => {
    const program = [join(root, 'benches/probes/first.cjs'), join(home, 'state'), guest]
    // This start saves the snapshot.
    await toFirstOutput(program, env)
    return eachRound(rounds, () => firstRound(program, env))
  })
  const beyondLoading = ({ whole, loaded, warm }) => (whole - loaded) / warm
  return {
    firstResult: {
      rounds: found.map(({ whole, node, warm }) => ({ value: whole, reference: node + 2 * warm })),
      details: [
        beside('Node alone (node -e)', 'ms', found, ({ node }) => node),
        beside('Node, and the addon loaded', 'ms', found, ({ loaded }) => loaded),
        beside('in the process: loading', 'ms', found, ({ load }) => load),
        beside('in the process: Gateway.open', 'ms', found, ({ open }) => open),
        beside('in the process: gateway.sandbox', 'ms', found, ({ start }) => start),
        beside('in the process: the first run', 'ms', found, ({ run }) => run),
        beside('a warm run', 'ms', found, ({ warm }) => warm),
        beside('what comes after loading, to a warm run', 'times', found, beyondLoading),
      ],
    },
  }
}

async function copied() {
  const found = copies(readFileSync(join(root, 'docs/PERFORMANCE.md'), 'utf8'))
  if (found === undefined) return { copies: { unavailable: 'docs/PERFORMANCE.md lists none' } }
  return {
    copies: {
      // A count, not a measurement: the ratio is the count itself.
      rounds: [{ ratio: Math.max(found.text, found.bytes) }],
      details: Object.entries(found).map(([kind, count]) => ({ title: `of ${kind}`, unit: '', values: [count] })),
    },
  }
}

/** The number of calls that are counted, for the early and for the late calls. */
const COUNTED = 1000
const TOOLS = [1, 1000]
const withTools = (count) => `with ${count} ${count === 1 ? 'tool' : 'tools'}`

/** Returns the instructions of the whole program `host_path`, as callgrind counts them. */
async function counted(tools, before, calls) {
  const program = [hostPath, '--tools', String(tools), '--before', String(before), 'small', String(calls)]
  const { stderr } = await execute('valgrind', ['--tool=callgrind', '--callgrind-out-file=/dev/null', ...program])
  return [calls, instructions(stderr)]
}

/** Returns the instructions of a call after `before` other calls: the difference between two programs, one of which makes more calls. */
async function instructionsAfter(before, tools) {
  return perCall(await counted(tools, before, 1), await counted(tools, before, 1 + COUNTED))
}

async function instructionsPerCall(tools, calls) {
  return { early: await instructionsAfter(1, tools), late: await instructionsAfter(calls - COUNTED - 1, tools) }
}

async function instructionRows(calls) {
  if (!existsSync(hostPath)) return { unavailable: 'the example host_path is not built' }
  // The counts do not depend on other work of the machine.
  const found = await Promise.all(TOOLS.map((tools) => instructionsPerCall(tools, calls)))
  const all = found.flatMap(({ early, late }) => [early, late])
  const details = found.flatMap(({ early, late }, at) => [
    { title: `${withTools(TOOLS[at])}, calls 2 to ${COUNTED + 1}`, unit: '', values: [early] },
    { title: `${withTools(TOOLS[at])}, the last ${COUNTED} of ${calls}`, unit: '', values: [late] },
  ])
  return { rounds: [{ value: Math.max(...all), reference: Math.min(...all) }], details }
}

async function growth(options) {
  const { growth: calls } = options
  const counts = await instructionRows(calls)
  const details = [...(counts.details ?? [])]
  for (const tools of TOOLS) {
    const { early, late } = await probe('growth', options, { tools, calls })
    details.push({ title: `by the clock, from the guest, ${withTools(tools)}, the first 1000`, unit: 'us', values: [early] })
    details.push({ title: `by the clock, from the guest, ${withTools(tools)}, the last 1000 of ${calls}`, unit: 'us', values: [late] })
  }
  return { growth: { ...counts, details } }
}

const inProcess = (subject) => (options) => probe(subject, options)

/** The functions that measure the rows of each group, by the group's name. */
export const GROUPS = {
  calls: inProcess('calls'),
  busy: inProcess('busy'),
  start,
  floods: inProcess('floods'),
  boot: inProcess('boot'),
  boxes: inProcess('boxes'),
  parallel: inProcess('parallel'),
  registry: inProcess('registry'),
  serve: inProcess('serve'),
  throughput: inProcess('throughput'),
  memory,
  first,
  bytes: inProcess('bytes'),
  copies: copied,
  growth,
}

/** Returns the guest that boots here. */
export async function guestHere(options) {
  return (await probe('guest', options)).guest
}
