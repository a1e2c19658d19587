// The official conformance suite as a program: runs it, lists its scenarios, and reads its results.
import { spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { newerNode } from './tools.mjs'

export const REVISIONS = ['2025-11-25', '2026-07-28']
const SUITE = 'node_modules/@modelcontextprotocol/conformance/dist/index.js'

/** Runs the suite and returns its output. Ignores its exit code, as the result files tell more. */
export async function suite(args, variables = {}) {
  const env = { ...process.env, ...variables, NO_COLOR: '1' }
  // The suite may need a newer Node than the package.
  const child = spawn(newerNode(), [SUITE, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  const [stdout, stderr] = await Promise.all([child.stdout, child.stderr].map(async (stream) => Buffer.concat(await stream.toArray())))
  return { stdout: String(stdout), stderr: String(stderr) }
}

/** Returns the names of the scenarios that `list` prints, each with the text in brackets after it. */
export async function list(...args) {
  const { stdout, stderr } = await suite(['list', ...args])
  const lines = [...stdout.matchAll(/^ +- (\S+)(?: \[(.*)\])?$/gm)].map(([, name, note]) => ({ name, note }))
  if (lines.length === 0) throw new Error(`the suite lists nothing: ${stderr}`)
  return lines
}

/**
 * Returns the scenarios that a protocol revision requires of one side (`client` or `server`), and the others that belong to the revision.
 * `known` are all scenarios of this side.
 */
export async function required(revision, side, known) {
  const lines = await list('--requirements', revision)
  const other = side === 'client' ? 'server' : 'client'
  const ours = lines.filter(({ name, note }) => known.some((one) => one.name === name) && note !== other)
  return {
    scored: ours.filter(({ note }) => !note).map(({ name }) => name),
    besides: ours.filter(({ note }) => note).map(({ name }) => name),
  }
}

/** Returns the suite's results: for each scenario, its checks, and the output of the client where the suite started one. */
export function results(folder, prefix = '') {
  const found = new Map()
  for (const path of readdirSync(folder, { recursive: true })) {
    if (!path.endsWith('checks.json')) continue
    const run = dirname(join(folder, path))
    const read = (name) => {
      try {
        return readFileSync(join(run, name), 'utf8')
      } catch {
        return undefined
      }
    }
    const name = relative(folder, run).replace(/-\d{4}-\d\d-\d\dT[-\dZ]+$/, '')
    found.set(name.slice(prefix.length), {
      checks: JSON.parse(read('checks.json')),
      stdout: read('stdout.txt'),
      stderr: read('stderr.txt'),
    })
  }
  return found
}

/** The check of the form of all messages. It passes even in scenarios that have nothing to check. */
const FORM = 'wire-schema-valid'

/**
 * Returns the problems that the suite's checks show. A warning (about a SHOULD) is a problem, and so is a scenario without checks of its
 * own. `excepted` are the names of checks that are known to fail. If one of them passes, that is a problem too.
 */
export function problemsOf(result, excepted = []) {
  if (!result) return ['the suite did not run it to its end']
  const failed = result.checks.filter(({ status }) => status === 'FAILURE' || status === 'WARNING')
  const problems = failed
    .filter(({ id }) => !excepted.includes(id))
    .map(({ id, status, description, errorMessage }) => `${status} ${id}: ${errorMessage ?? description}`)
  if (!result.checks.some(({ id, status }) => status === 'SUCCESS' && id !== FORM)) problems.push('nothing was checked')
  for (const check of excepted)
    if (!failed.some(({ id }) => id === check)) problems.push(`${check} passes: take it off scripts/lib/conformance-unsupported.json`)
  return problems
}
