// Measures the figures that this project promises, and compares each with its goal (`npm run bench`). Prints one table, and writes the same
// as JSON. docs/PERFORMANCE.md says what each figure is and how it is measured.
//
//   node benches/bench.mjs [--rounds 5] [--calls 1000] [--growth 100000] [--only ROW,…] [--json FILE] [--guest auto|standard|ring3]
//                                      [--compare FILE [--from FILE]] [--also]
//
// --compare compares this run with the JSON of an earlier one. With --from, nothing is measured, and that file is used as this run. With
// --also, the benchmarks that have no goal here run afterwards (`npm run bench:all`). The exit code is 1 if a row misses its goal or could
// not be measured.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { cpus, loadavg } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { GROUPS, guestHere, root, server } from './groups.mjs'
import { compared, differences } from './lib/compare.mjs'
import { comparison, table } from './lib/table.mjs'
import { allMet, judged, ROWS } from './lib/verdict.mjs'

const FORMAT = 2
const GUESTS = ['auto', 'standard', 'ring3']

/** With a load above this, the machine is busy with other work. */
const BUSY = 1

class Mistake extends Error {}

function count(values, name, least = 1) {
  const number = Number(values[name])
  if (!Number.isInteger(number) || number < least) throw new Mistake(`--${name} is a whole number from ${least}, not "${values[name]}"`)
  return number
}

function chosenRows(only) {
  if (only === undefined) return ROWS
  const keys = only.split(',')
  const unknown = keys.filter((key) => !ROWS.some((row) => row.key === key))
  if (unknown.length > 0)
    throw new Mistake(`there is no row "${unknown.join('", "')}"; there are: ${ROWS.map(({ key }) => key).join(', ')}`)
  return ROWS.filter(({ key }) => keys.includes(key))
}

function options() {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '5' },
      calls: { type: 'string', default: '1000' },
      growth: { type: 'string', default: '100000' },
      only: { type: 'string' },
      json: { type: 'string' },
      guest: { type: 'string', default: process.env.HYPERLIGHT_MCP_GUEST ?? 'auto' },
      compare: { type: 'string' },
      from: { type: 'string' },
      also: { type: 'boolean', default: false },
    },
  })
  if (!GUESTS.includes(values.guest)) throw new Mistake(`--guest is one of ${GUESTS.join(', ')}, not "${values.guest}"`)
  if (values.from !== undefined && values.compare === undefined) throw new Mistake('--from needs --compare FILE: with what?')
  return {
    ...values,
    rows: chosenRows(values.only),
    rounds: count(values, 'rounds'),
    calls: count(values, 'calls'),
    // With fewer calls, there are no early and late ones to compare.
    growth: count(values, 'growth', 4000),
    // A run of only some rows does not replace the file of a complete run.
    json: resolve(values.json ?? join(root, 'bench-results', values.only === undefined ? 'latest.json' : 'some.json')),
  }
}

function read(file) {
  let run
  try {
    run = JSON.parse(readFileSync(file, 'utf8'))
  } catch (error) {
    throw new Mistake(`${file}: ${error.message}`)
  }
  if (run.format !== FORMAT)
    throw new Mistake(`${file} is not what this benchmark writes (format ${run.format ?? 'missing'}, not ${FORMAT})`)
  return run
}

/** Returns the reason why a group failed, in one line. All rows of the group show it. */
const reason = (error) => (String(error.stderr ?? '').match(/^\w*Error.*$/m)?.[0] ?? error.message).split('\n')[0].slice(0, 300)

async function measure(given) {
  if (!existsSync(server)) throw new Mistake(`${server} is missing; build it: npm run build`)
  const say = (text) => process.stderr.isTTY && process.stderr.write(`\r\u001b[K${text}`)
  const [load] = loadavg()
  const guest = await guestHere(given)
  const found = {}
  for (const group of new Set(given.rows.map((row) => row.group))) {
    say(`measuring: ${group}`)
    const unavailable = (error) => Object.fromEntries(ROWS.map(({ key }) => [key, { unavailable: reason(error) }]))
    const measured = await GROUPS[group]({ ...given, kind: guest }).catch(unavailable)
    for (const row of ROWS.filter((row) => row.group === group)) found[row.key] = measured[row.key]
  }
  say('')
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const emulated = process.env.HYPERLIGHT_MCP_EMULATED === '1'
  return {
    format: FORMAT,
    version,
    date: new Date().toISOString(),
    machine: { cpu: cpus()[0].model, cpus: cpus().length, node: process.version, guest, emulated, load },
    options: { rounds: given.rounds, calls: given.calls, growth: given.growth },
    rows: given.rows.map((row) => judged(row, found[row.key], guest)),
  }
}

function print({ machine, options, rows }) {
  const { cpu, cpus, node, guest, emulated, load } = machine
  console.log(`${cpu}, ${cpus} CPUs, Node ${node}, ${guest} guest${emulated ? ', emulated machine' : ''}`)
  console.log(`medians of ${options.rounds} rounds, both sides in turn; ${options.calls} calls in a round`)
  // Other work on this machine slows both sides, but not to the same degree.
  if (load > BUSY) console.log(`the machine was busy before it began (load ${load.toFixed(1)}): ratios are less certain`)
  console.log()
  for (const line of table(rows)) console.log(line)
  const missed = rows.filter(({ verdict }) => verdict !== 'ok').map(({ key }) => key)
  console.log(missed.length === 0 ? '\nevery goal is met' : `\n${missed.length} of ${rows.length} goals missed: ${missed.join(', ')}`)
}

function printComparison(then, now) {
  console.log(`\nagainst the run of ${then.date} (version ${then.version}); marked is what lies beyond the spread of the rounds\n`)
  for (const difference of differences(then, now)) console.log(`not the same ${difference}`)
  for (const line of comparison(compared(then, now))) console.log(line)
}

function write(file, run) {
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, `${JSON.stringify(run, null, 2)}\n`)
  console.log(`\nwritten to ${file}`)
}

const OTHERS = [
  [process.execPath, 'benches/figures.mjs'],
  [process.execPath, '--expose-gc', 'benches/guest.mjs'],
  [process.execPath, 'benches/connections.mjs'],
  ...['trust', 'search', 'results'].map((name) => [`target/x86_64-unknown-linux-gnu/release/examples/${name}`]),
  [process.execPath, 'benches/tokens.mjs'],
]

/** Runs the benchmarks that have no goal here, one after the other. Returns whether all of them ran. */
function others() {
  const failed = OTHERS.filter(([program, ...args]) => {
    console.log(`\n${args.at(-1) ?? program}\n`)
    return spawnSync(program, args, { cwd: root, stdio: 'inherit' }).status !== 0
  })
  return failed.length === 0
}

async function main() {
  const given = options()
  const then = given.compare === undefined ? undefined : read(given.compare)
  const now = given.from === undefined ? await measure(given) : read(given.from)
  print(now)
  if (then !== undefined) printComparison(then, now)
  if (given.from === undefined) write(given.json, now)
  const ran = given.also ? others() : true
  return ran && allMet(now.rows) ? 0 : 1
}

main().then(
  (code) => {
    process.exitCode = code
  },
  (error) => {
    const mistake = error instanceof Mistake || String(error.code).startsWith('ERR_PARSE_ARGS')
    console.error(`bench: ${mistake ? error.message : error.stderr || error.stack}`)
    process.exitCode = mistake ? 2 : 1
  },
)
