// Implementation of scripts/conformance: runs the suite, reads its results for each scenario, and judges them more strictly than the suite
// does. These count as failures too: a warning (the client breaks a SHOULD), a scenario without checks, and a scenario whose client did not
// end as expected. conformance-unsupported.json lists the known failures with their reasons. A listed scenario that passes is a failure as
// well.
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { newerNode } from './tools.mjs'

const REVISIONS = ['2025-11-25', '2026-07-28']
const SUITE = 'node_modules/@modelcontextprotocol/conformance/dist/index.js'
// The suite splits the command at spaces and gives it to a shell. It starts all scenarios at once, so five locks limit the number of agents
// that run at the same time.
const COMMAND = 'flock "$HYPERLIGHT_MCP_SLOTS/$(($$ % 5))" "$HYPERLIGHT_MCP_NODE" scripts/conformance-client.mjs'
const CLIENT = ['client', '--timeout', '120000', '--command', COMMAND]
const slots = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-conformance-slots-'))
const unsupported = JSON.parse(readFileSync('scripts/lib/conformance-unsupported.json', 'utf8'))

const { values: options } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    negotiate: { type: 'boolean', default: false },
    results: { type: 'string' },
    verbose: { type: 'boolean', default: false },
  },
})

/** Runs the suite and returns its output. Ignores its exit code, as the result files tell more. */
async function suite(...args) {
  // The client runs on the current Node, as users of the package do. The suite itself may need a newer one.
  const ours = {
    HYPERLIGHT_MCP_NODE: process.execPath,
    HYPERLIGHT_MCP_SLOTS: slots,
    HYPERLIGHT_MCP_NEGOTIATE: options.negotiate ? '1' : '',
  }
  const env = { ...process.env, ...ours, NO_COLOR: '1' }
  const child = spawn(newerNode(), [SUITE, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  const [stdout, stderr] = await Promise.all([child.stdout, child.stderr].map(async (stream) => Buffer.concat(await stream.toArray())))
  return { stdout: String(stdout), stderr: String(stderr) }
}

/** Returns the names of the scenarios that `list` prints, each with the text in brackets after it. */
async function list(...args) {
  const { stdout, stderr } = await suite('list', ...args)
  const lines = [...stdout.matchAll(/^ +- (\S+)(?: \[(.*)\])?$/gm)].map(([, name, note]) => ({ name, note }))
  if (lines.length === 0) throw new Error(`the suite lists nothing: ${stderr}`)
  return lines
}

/** Returns the scenarios that a protocol revision requires of a client, and the others that belong to the revision. */
async function required(revision, known) {
  const lines = await list('--requirements', revision)
  const clients = lines.filter(({ name, note }) => known.some((one) => one.name === name) && note !== 'server')
  return {
    scored: clients.filter(({ note }) => !note).map(({ name }) => name),
    besides: clients.filter(({ note }) => note).map(({ name }) => name),
  }
}

/** Returns the suite's results: for each scenario, its checks and the output of the client. */
function results(folder) {
  const found = new Map()
  for (const path of readdirSync(folder, { recursive: true })) {
    if (!path.endsWith('checks.json')) continue
    const run = dirname(join(folder, path))
    const read = (name) => readFileSync(join(run, name), 'utf8')
    const name = relative(folder, run).replace(/-\d{4}-\d\d-\d\dT[-\dZ]+$/, '')
    found.set(name, { checks: JSON.parse(read('checks.json')), stdout: read('stdout.txt'), stderr: read('stderr.txt') })
  }
  return found
}

function judge(revision, name, result) {
  const problems = problemsOf(result)
  const verdict = { revision, name, problems, said: result && result.stdout + result.stderr }
  if (unsupported[name] && problems.length > 0) return { ...verdict, state: 'not supported' }
  if (unsupported[name]) problems.push('it passes: take it off scripts/lib/conformance-unsupported.json')
  return { ...verdict, state: problems.length > 0 ? 'failed' : 'passed' }
}

function problemsOf(result) {
  if (!result) return ['the suite did not run it to its end']
  const problems = result.checks
    .filter(({ status }) => status === 'FAILURE' || status === 'WARNING')
    .map(({ id, status, description, errorMessage }) => `${status} ${id}: ${errorMessage ?? description}`)
  if (!result.checks.some(({ status }) => status === 'SUCCESS')) problems.push('nothing was checked')
  const failure = outcome(result.stdout)
  if (failure) problems.push(`the client: ${failure}`)
  return problems
}

function outcome(stdout) {
  try {
    return JSON.parse(stdout.trim().split('\n').at(-1)).failure
  } catch {
    return 'it ended without a word of how it went'
  }
}

async function runAll(folder) {
  const verdicts = []
  const sets = new Map()
  const known = await list('--client')
  for (const revision of REVISIONS) {
    sets.set(revision, await required(revision, known))
    const into = join(folder, revision)
    mkdirSync(into)
    await suite(...CLIENT, '--requirements', revision, '-o', into)
    const written = results(into)
    const { scored, besides } = sets.get(revision)
    for (const name of [...scored, ...besides])
      verdicts.push({ ...judge(revision, name, written.get(name)), scored: scored.includes(name) })
  }
  // These scenarios belong to no revision's set: older ways to sign in, and other extensions.
  const covered = new Set(verdicts.map(({ name }) => name))
  const others = known.filter(({ name }) => !covered.has(name))
  const into = join(folder, 'others')
  mkdirSync(into)
  const at = ({ note }) => (note === 'extension' ? [] : ['--spec-version', note.split(',').at(-1)])
  await Promise.all(others.map((one) => suite(...CLIENT, '--scenario', one.name, ...at(one), '-o', into)))
  const written = results(into)
  for (const { name, note } of others) verdicts.push({ ...judge('others', name, written.get(name)), note })
  return { verdicts, sets }
}

function print({ verdicts, sets }) {
  const columns = [...REVISIONS, 'others']
  const names = [...new Set(verdicts.map(({ name }) => name))]
  const width = Math.max(...names.map((name) => name.length))
  const line = (name, cells) => console.log([name.padEnd(width), ...cells.map((cell) => cell.padEnd(14))].join('  ').trimEnd())
  line('scenario', columns)
  for (const name of names) {
    const cell = (column) => verdicts.find((verdict) => verdict.name === name && verdict.revision === column)
    line(
      name,
      columns.map((column) => cell(column)?.state ?? '-'),
    )
  }
  console.log()
  for (const [revision, { scored }] of options.only ? [] : sets) {
    const passed = verdicts.filter((verdict) => verdict.revision === revision && verdict.scored && verdict.state === 'passed')
    console.log(`${revision}: ${passed.length} of the ${scored.length} scenarios that it requires of a client`)
  }
  for (const name of names.filter((name) => unsupported[name])) console.log(`not supported: ${name}: ${unsupported[name]}`)
}

function explain(failed) {
  for (const { revision, name, problems, said } of failed) {
    console.log(`\nFAILED: ${name} (${revision})`)
    for (const problem of new Set(problems)) console.log(`  ${problem}`)
    if (options.verbose) console.log(`  the client said: ${said}`)
  }
}

const folder = options.results ? resolve(options.results) : mkdtempSync(join(tmpdir(), 'hyperlight-mcp-conformance-results-'))
rmSync(folder, { recursive: true, force: true })
mkdirSync(folder, { recursive: true })
try {
  const { verdicts, sets } = await runAll(folder)
  const chosen = verdicts.filter(({ name }) => name.includes(options.only))
  print({ verdicts: chosen, sets })
  const failed = chosen.filter(({ state }) => state === 'failed')
  explain(failed)
  process.exitCode = failed.length > 0 || chosen.length === 0 ? 1 : 0
} finally {
  rmSync(slots, { recursive: true, force: true })
  if (!options.results) rmSync(folder, { recursive: true, force: true })
}
