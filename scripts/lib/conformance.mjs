// Implementation of scripts/conformance: runs the suite, reads its results for each scenario, and judges them more strictly than the suite
// does. These count as failures too: a warning (a SHOULD is not kept), a scenario without checks, and a scenario whose client did not end as
// expected. conformance-unsupported.json lists the known failures with their reasons. A listed scenario that passes is a failure as well.
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { runServer } from './conformance-server.mjs'
import { list, problemsOf, REVISIONS, required, results, suite } from './conformance-suite.mjs'

// The suite splits the command at spaces and gives it to a shell. It starts all scenarios at once, so five locks limit the number of agents
// that run at the same time.
const COMMAND = 'flock "$HYPERLIGHT_MCP_SLOTS/$(($$ % 5))" "$HYPERLIGHT_MCP_NODE" scripts/conformance-client.mjs'
const CLIENT = ['client', '--timeout', '120000', '--command', COMMAND]
const SIDES = ['client', 'server']
const slots = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-conformance-slots-'))
const unsupported = JSON.parse(readFileSync('scripts/lib/conformance-unsupported.json', 'utf8'))

const { values: options } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    side: { type: 'string' },
    negotiate: { type: 'boolean', default: false },
    results: { type: 'string' },
    verbose: { type: 'boolean', default: false },
  },
})
if (options.side && !SIDES.includes(options.side)) throw new Error(`--side must be one of ${SIDES.join(', ')}`)

/** Runs scenarios against the agent. It runs on the current Node, as users of the package do. */
const clientSuite = (...args) =>
  suite([...CLIENT, ...args], {
    HYPERLIGHT_MCP_NODE: process.execPath,
    HYPERLIGHT_MCP_SLOTS: slots,
    HYPERLIGHT_MCP_NEGOTIATE: options.negotiate ? '1' : '',
  })

/**
 * Returns the reason why a scenario is not supported: in all its revisions, or in one (`NAME 2026-07-28`). If only some checks of a
 * scenario may fail, returns an object with the reasons of these checks.
 */
const reasonOf = (name, revision) => unsupported[name] ?? unsupported[`${name} ${revision}`]

function judge(side, revision, name, result) {
  const reason = reasonOf(name, revision)
  const excepted = typeof reason === 'object' ? Object.keys(reason) : []
  const problems = problemsOf(result, excepted)
  const failure = side === 'client' && result && outcome(result.stdout)
  if (failure) problems.push(`the client: ${failure}`)
  const verdict = { side, revision, name, problems, said: result?.stdout && result.stdout + result.stderr }
  if (excepted.length > 0) return { ...verdict, state: problems.length > 0 ? 'failed' : 'in part' }
  if (reason && problems.length > 0) return { ...verdict, state: 'not supported' }
  if (reason) problems.push('it passes: take it off scripts/lib/conformance-unsupported.json')
  return { ...verdict, state: problems.length > 0 ? 'failed' : 'passed' }
}

function outcome(stdout) {
  try {
    return JSON.parse(stdout.trim().split('\n').at(-1)).failure
  } catch {
    return 'it ended without a word of how it went'
  }
}

async function runClient(folder) {
  const verdicts = []
  const sets = new Map()
  const known = await list('--client')
  for (const revision of REVISIONS) {
    sets.set(revision, await required(revision, 'client', known))
    const into = join(folder, revision)
    mkdirSync(into)
    await clientSuite('--requirements', revision, '-o', into)
    const written = results(into)
    const { scored, besides } = sets.get(revision)
    for (const name of [...scored, ...besides])
      verdicts.push({ ...judge('client', revision, name, written.get(name)), scored: scored.includes(name) })
  }
  // These scenarios belong to no revision's set: older ways to sign in, and other extensions.
  const covered = new Set(verdicts.map(({ name }) => name))
  const others = known.filter(({ name }) => !covered.has(name))
  const into = join(folder, 'others')
  mkdirSync(into)
  const at = ({ note }) => (note === 'extension' ? [] : ['--spec-version', note.split(',').at(-1)])
  await Promise.all(others.map((one) => clientSuite('--scenario', one.name, ...at(one), '-o', into)))
  const written = results(into)
  for (const { name, note } of others) verdicts.push({ ...judge('client', 'others', name, written.get(name)), note })
  return { verdicts, sets }
}

/** Runs one side's scenarios, and returns the verdicts, and which scenarios each revision requires. */
async function run(side, folder) {
  const into = join(folder, side)
  mkdirSync(into)
  if (side === 'client') return runClient(into)
  const { found, sets } = await runServer(into)
  const verdicts = found.map(({ revision, name, result, ...more }) => ({ ...judge('server', revision, name, result), ...more }))
  return { verdicts, sets }
}

function print(side, { verdicts, sets }) {
  const columns = [...REVISIONS, 'others']
  const names = [...new Set(verdicts.map(({ name }) => name))]
  const title = `scenario of a ${side}`
  const width = Math.max(title.length, ...names.map((name) => name.length))
  const line = (name, cells) => console.log([name.padEnd(width), ...cells.map((cell) => cell.padEnd(14))].join('  ').trimEnd())
  line(title, columns)
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
    console.log(`${revision}: ${passed.length} of the ${scored.length} scenarios that it requires of a ${side}`)
  }
  const listed = verdicts.filter(({ state }) => state === 'not supported' || state === 'in part')
  const reasons = listed.flatMap(({ name, revision }) => {
    const reason = reasonOf(name, revision)
    return typeof reason === 'string' ? [`${name}: ${reason}`] : Object.entries(reason).map(([check, why]) => `${name}, ${check}: ${why}`)
  })
  for (const reason of new Set(reasons)) console.log(`not supported: ${reason}`)
  console.log()
}

function explain(failed) {
  for (const { side, revision, name, problems, said } of failed) {
    console.log(`FAILED: ${name} (${side}, ${revision})`)
    for (const problem of new Set(problems)) console.log(`  ${problem}`)
    if (options.verbose && said) console.log(`  the client said: ${said}`)
  }
}

const folder = options.results ? resolve(options.results) : mkdtempSync(join(tmpdir(), 'hyperlight-mcp-conformance-results-'))
rmSync(folder, { recursive: true, force: true })
mkdirSync(folder, { recursive: true })
try {
  const chosen = []
  for (const side of options.side ? [options.side] : SIDES) {
    const { verdicts, sets } = await run(side, folder)
    const judged = verdicts.filter(({ name }) => name.includes(options.only))
    if (judged.length > 0) print(side, { verdicts: judged, sets })
    chosen.push(...judged)
  }
  const failed = chosen.filter(({ state }) => state === 'failed')
  explain(failed)
  process.exitCode = failed.length > 0 || chosen.length === 0 ? 1 : 0
} finally {
  rmSync(slots, { recursive: true, force: true })
  if (!options.results) rmSync(folder, { recursive: true, force: true })
}
