// Measures what a connection costs (part of `npm run bench:all`): our callTool, the TypeScript SDK's client and rmcp alone, all with the
// fixture server's `echo_text` over stdio. Also measures what a server that floods costs the others. Prints a table, and writes the same as
// JSON.
//
//   node benches/connections.mjs [--repetitions 5] [--calls 3000] [--json bench-results/connections.json]
//
// Each repetition runs each client in a separate process, one after the other, so that a ratio compares figures of the same minute. The
// results are medians over the repetitions, for figures and for ratios.
import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs, promisify } from 'node:util'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const server = join(root, 'target/programs/fixture-server')
const raw = process.env.HYPERLIGHT_MCP_RAW_RMCP ?? join(root, 'target/x86_64-unknown-linux-gnu/release/examples/raw_rmcp')
const FLOODS = ['notifications', 'progress', 'log', 'list-changed', 'requests', 'answers', 'stderr']

const { values: options } = parseArgs({
  options: {
    repetitions: { type: 'string', default: '5' },
    calls: { type: 'string', default: '3000' },
    json: { type: 'string', default: join(root, 'bench-results/connections.json') },
  },
})

async function run(program, ...args) {
  return JSON.parse((await promisify(execFile)(program, args)).stdout)
}

const probe = (subject) =>
  run(
    process.execPath,
    '--expose-gc',
    join(root, 'benches/connections-probe.mjs'),
    JSON.stringify({ subject, server, calls: Number(options.calls), floods: FLOODS }),
  )

async function repetition() {
  const rmcp = {
    sequential: await run(raw, options.calls, server),
    many: await run(raw, '--at-once', '64', options.calls, server),
  }
  return { rmcp, sdk: await probe('sdk'), gateway: await probe('gateway') }
}

function median(values) {
  const sorted = values.filter((value) => value !== undefined).toSorted((a, b) => a - b)
  return sorted.length === 0 ? undefined : (sorted[Math.ceil(sorted.length / 2) - 1] + sorted[Math.floor(sorted.length / 2)]) / 2
}

const CLIENTS = ['gateway', 'sdk', 'rmcp']
const ROWS = [
  ['calls a second, one after the other', '1/s', (client) => client.sequential.perSecond],
  ['a call, one after the other: median', 'us', (client) => client.sequential.median],
  ['a call, one after the other: p99', 'us', (client) => client.sequential.p99],
  ['calls a second, 64 at once', '1/s', (client) => client.many.perSecond],
  ['a call, 64 at once: median', 'us', (client) => client.many.median],
  ['a call, 64 at once: p99', 'us', (client) => client.many.p99],
  ['from the start of a server to its first result', 'ms', (client) => client.connect],
  ['memory of a connection (private)', 'KiB', (client) => client.memory],
]

/** Returns the rows of medians. A ratio is our figure divided by that of the other client. */
function rows(measured) {
  return ROWS.map(([title, unit, figure]) => {
    const of = (name) => median(measured.map((one) => figure(one[name])))
    const ratio = (name) => median(measured.map((one) => figure(one.gateway) / figure(one[name])).filter(Number.isFinite))
    return { title, unit, ...Object.fromEntries(CLIENTS.map((name) => [name, of(name)])), toSdk: ratio('sdk'), toRmcp: ratio('rmcp') }
  })
}

function floodRows(measured) {
  return FLOODS.map((kind) => {
    const of = (figure) => median(measured.map(({ gateway }) => figure(gateway.floods[kind])))
    return {
      kind,
      still: of(({ still }) => still),
      flooded: of(({ flooded }) => flooded),
      ratio: of(({ still, flooded }) => flooded / still),
    }
  })
}

const number = (value) => (value === undefined ? '-' : value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2))

function table(lines) {
  const widths = lines[0].map((_, column) => Math.max(...lines.map((line) => line[column].length)))
  for (const line of lines) console.log(line.map((cell, at) => (at === 0 ? cell.padEnd(widths[at]) : cell.padStart(widths[at]))).join('  '))
}

async function main() {
  for (const program of [server, raw]) if (!existsSync(program)) throw new Error(`${program} is missing; npm run bench:all builds it`)
  const measured = []
  for (let index = 0; index < Number(options.repetitions); index += 1) measured.push(await repetition())
  const results = { clients: rows(measured), floods: floodRows(measured) }
  console.log(
    `medians of ${options.repetitions} repetitions of ${options.calls} calls each, Node ${process.version}, ${cpus().length} CPUs\n`,
  )
  const ours = ({ title, unit, gateway, sdk, rmcp, toSdk, toRmcp }) => [title, unit, ...[gateway, sdk, rmcp, toSdk, toRmcp].map(number)]
  table([['', 'unit', 'ours', 'SDK', 'rmcp', 'ours/SDK', 'ours/rmcp'], ...results.clients.map(ours)])
  console.log("\nanother server's calls, one after the other, p99 in us, while a server floods with")
  table([
    ['', 'undisturbed', 'flooded', 'ratio'],
    ...results.floods.map(({ kind, ...figures }) => [kind, ...Object.values(figures).map(number)]),
  ])
  const file = resolve(options.json)
  mkdirSync(dirname(file), { recursive: true })
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const machine = { cpu: cpus()[0].model, cpus: cpus().length, node: process.version }
  writeFileSync(
    file,
    `${JSON.stringify({ version, date: new Date().toISOString(), machine, repetitions: options.repetitions, calls: options.calls, results, measured }, null, 2)}\n`,
  )
  console.log(`\nwritten to ${file}`)
}

main().catch((error) => {
  console.error(`bench: ${error.stderr || error.message}`)
  process.exit(1)
})
