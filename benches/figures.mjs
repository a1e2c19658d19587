// Measures what the micro-VM and the bridge cost (part of `npm run bench:all`). Prints a table, and writes the same as JSON.
//
//   node benches/figures.mjs [--repetitions 7] [--calls 1000] [--json bench-results/figures.json] [--guest auto|standard|ring3]
//
// Each repetition is a separate process (figures-probe.mjs), because a first start happens once in a process. In each, a tool call is timed
// without and with the guest, one right after the other. The difference is the cost of the bridge. The results are medians over the
// repetitions, with the smallest and the largest value.
import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs, promisify } from 'node:util'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const server = join(root, 'target/programs/fixture-server')
const raw = process.env.HYPERLIGHT_MCP_RAW_RMCP ?? join(root, 'target/x86_64-unknown-linux-gnu/release/examples/raw_rmcp')

const ROWS = {
  sandboxFirst: ['sandbox start, first (boots the guest)', 'ms'],
  sandboxNext: ['sandbox start, next', 'ms'],
  runFirst: ['first run', 'ms'],
  runNext: ['next run (a new VM from the snapshot)', 'ms'],
  emptyCall: ['empty host call: tools() with no server enabled, which Rust answers with []', 'us'],
  hostModuleSync: ["hostModule call, a function on Node's main thread", 'us'],
  hostModuleAsync: ['hostModule call, an async function', 'us'],
  toolRaw: ['tool call, rmcp alone', 'us'],
  toolGuest: ['tool call, from the guest', 'us'],
  bridge: ["the bridge's own cost: the last two's difference", 'us'],
  toolNode: ['tool call, gateway.callTool', 'us'],
  memoryProcess: ['memory of the process before the first sandbox (private)', 'MiB'],
  memoryIdle: ['memory of a sandbox that has run and waits (private)', 'MiB'],
  memoryRunning: ['memory of a sandbox that is running (private)', 'MiB'],
  memoryPeakOne: ['peak memory of the process, one sandbox (VmHWM)', 'MiB'],
  memoryPeakMany: ['peak memory of the process, 8 sandboxes running at once (VmHWM)', 'MiB'],
}

function fail(message) {
  console.error(`bench: ${message}`)
  process.exit(1)
}

function count(text, name) {
  const value = Number(text)
  if (!Number.isInteger(value) || value < 1) fail(`--${name} is a number above 0, not "${text}"`)
  return value
}

function options() {
  const { values } = parseArgs({
    options: {
      repetitions: { type: 'string', default: '7' },
      calls: { type: 'string', default: '1000' },
      json: { type: 'string', default: join(root, 'bench-results/figures.json') },
      guest: { type: 'string', default: process.env.HYPERLIGHT_MCP_GUEST ?? 'auto' },
    },
  })
  const { json, guest } = values
  return { repetitions: count(values.repetitions, 'repetitions'), calls: count(values.calls, 'calls'), json: resolve(json), guest }
}

async function repetition({ calls, guest }, hasRaw) {
  const task = { calls, guest, server, raw: hasRaw ? raw : undefined }
  const { stdout } = await promisify(execFile)(process.execPath, [
    '--expose-gc',
    join(root, 'benches/figures-probe.mjs'),
    JSON.stringify(task),
  ])
  return JSON.parse(stdout)
}

function summary(values) {
  const sorted = values.filter((value) => value !== undefined).sort((a, b) => a - b)
  if (sorted.length === 0) return undefined
  const middle = sorted.length / 2
  const median = (sorted[Math.ceil(middle) - 1] + sorted[Math.floor(middle)]) / 2
  return { median, min: sorted[0], max: sorted.at(-1) }
}

const number = (value) => value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2)

function print(results) {
  const lines = Object.entries(ROWS).map(([key, [title, unit]]) => {
    const result = results[key]
    return result ? [title, unit, ...[result.median, result.min, result.max].map(number)] : [title, unit, '-', '-', '-']
  })
  const all = [['', 'unit', 'median', 'min', 'max'], ...lines]
  const widths = all[0].map((_, column) => Math.max(...all.map((line) => line[column].length)))
  for (const line of all) console.log(line.map((cell, at) => (at < 2 ? cell.padEnd(widths[at]) : cell.padStart(widths[at] + 2))).join('  '))
}

async function main() {
  const { repetitions, calls, json, guest } = options()
  if (!existsSync(server)) fail(`${server} is missing; build it: npm run build`)
  const hasRaw = existsSync(raw)
  const say = (text) => process.stderr.isTTY && process.stderr.write(`\r\u001b[K${text}`)
  const measured = []
  for (let index = 0; index < repetitions; index += 1) {
    say(`repetition ${index + 1} of ${repetitions}`)
    measured.push(await repetition({ calls, guest }, hasRaw))
  }
  say('')
  const results = Object.fromEntries(Object.keys(ROWS).map((key) => [key, summary(measured.map(({ values }) => values[key]))]))
  const machine = {
    cpu: cpus()[0].model,
    cpus: cpus().length,
    node: process.version,
    guest: measured[0].guest,
    emulated: process.env.HYPERLIGHT_MCP_EMULATED === '1',
  }
  console.log(
    `${machine.cpu}, ${machine.cpus} CPUs, Node ${machine.node}, ${machine.guest} guest${machine.emulated ? ', emulated machine' : ''};`,
  )
  console.log(`medians of ${repetitions} processes; a call's figure is the median over batches of 20, of ${calls} calls in one run\n`)
  print(results)
  if (!hasRaw) console.log(`\nNo figure for rmcp alone: ${raw} is not built. cargo build --release --example raw_rmcp`)
  mkdirSync(dirname(json), { recursive: true })
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const units = Object.fromEntries(Object.entries(ROWS).map(([key, [, unit]]) => [key, unit]))
  writeFileSync(
    json,
    `${JSON.stringify({ version, date: new Date().toISOString(), machine, repetitions, calls, units, results }, null, 2)}\n`,
  )
  console.log(`\nwritten to ${json}`)
}

main().catch((error) => fail(error.stderr || error.message))
