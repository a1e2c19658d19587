// Tests of the steps of scripts/test (scripts/lib/step.sh): no step can block the run, whatever it leaves behind.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { listenTo, ms, run } from './processes.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const TIMEOUT = { timeout: ms(60_000) }

/** A script that does these steps and says how they ended. */
const script = (...lines) => [
  '-c',
  ['set -uo pipefail', '. scripts/lib/step.sh', ...lines, 'declare -p failed', 'echo "kept: $(tr "\\n" " " <"$log")"'].join('\n'),
]

/** Returns the processes that have a mark in their environment, without zombies. */
function marked(mark) {
  return readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/environ`, 'utf8').includes(`MARK=${mark}`)
    } catch {
      return false
    }
  })
}

const options = (mark, more) => ({ cwd: root, env: { ...process.env, MARK: mark, ...more }, limit: ms(30_000) })

test('a step ends with its own process, and what it left behind is named and ended', TIMEOUT, async (t) => {
  const mark = `loose-${process.pid}`
  const loose = `step loose bash -c 'setsid sleep 1000 & echo all done; exit 3'`
  const { code, stdout } = await run(t, 'bash', script(loose, 'step next echo later'), options(mark))
  assert.equal(code, 0)
  assert.match(stdout, /all done\ntest: the step has left a process running, which is ended now: \d+ sleep 1000/)
  assert.match(stdout, /failed=.*"loose \(exit code 3\)"\)\nkept: all done .*later/)
  assert.deepEqual(marked(mark), [])
})

test('a step is shown while it runs', TIMEOUT, async (t) => {
  const child = listenTo(t, 'bash', script('step slow sh -c "echo begun; exec sleep 1000"'), { ...options('shown'), detached: true })
  while (!child.output.stdout.includes('begun')) await new Promise((resolve) => child.stdout.once('data', resolve))
  assert.equal(child.exitCode, null)
})

test('a step that does not end is ended after its limit, and fails', TIMEOUT, async (t) => {
  const mark = `endless-${process.pid}`
  const { stdout } = await run(t, 'bash', script('step endless sleep 1000'), options(mark, { STEP_LIMIT: '1' }))
  assert.match(stdout, /failed=.*"endless \(exit code 124\)"/)
  assert.deepEqual(marked(mark), [])
})

test('the reasons of a failed step are its failed programs, with the failing tests of each', TIMEOUT, async (t) => {
  const output = [
    'each: exit code 0 of good',
    '✖ failing tests:',
    '✖ one',
    'each: exit code 1 of first',
    'much else',
    "thread 'two' panicked at a.rs:1:",
    'each: exit code 101 of second',
  ]
  const { stdout } = await run(
    t,
    'bash',
    script(`step bad bash -c 'printf "%s\\n" "$@"; exit 1' -- "\${@}"`, 'cat "$reasons"').concat('x', ...output),
    options('reasons'),
  )
  const reasons = stdout.slice(stdout.lastIndexOf('\nbad:\n') + 1)
  const lines = ['bad:', output[3], output[6], output[1], output[2], output[5], output[6]]
  assert.equal(reasons.split('declare')[0].trim(), lines.join('\n'))
})

test('lanes run beside each other, and what each noted counts', TIMEOUT, async (t) => {
  // Each step waits for the other one, so they never end if they run one after the other.
  const meet = (own, other) => `step ${own} sh -c 'touch "$0"/${own}; until [ -e "$0"/${other} ]; do sleep 0.05; done; exit 4' "$meeting"`
  const { stdout } = await run(
    t,
    'bash',
    script(
      'meeting=$(mktemp -d)',
      `first() { ${meet('one', 'two')}; step after echo after one; }`,
      `run_second() { ${meet('two', 'one')}; }`,
      'lane left first',
      'lane right run_second',
      'join_lanes',
      'rm -r "$meeting"',
      'declare -p timings',
    ),
    options('lanes'),
  )
  assert.match(stdout, /^left \| after one$/m)
  assert.match(stdout, /failed=\(\[0\]="one \(exit code 4\)" \[1\]="two \(exit code 4\)"\)\nkept: after one/)
  assert.match(stdout, /timings=.* s {3}first: one".* s {3}first: after".* s {3}second: two"/)
})

test('lanes take each command once, and a long one holds up no other', TIMEOUT, async (t) => {
  // With two lanes, the first command ends only if the other lane takes all the others.
  const work = `work() { step "number $1" sh -c 'if [ "$1" = 1 ]; then until [ -e "$0"/4 ]; do sleep 0.05; done; fi; touch "$0/$1"; echo "did $1"' "$meeting" "$1"; }`
  const { stdout } = await run(
    t,
    'bash',
    script(
      'meeting=$(mktemp -d)',
      work,
      "lanes 2 'work 1' 'work 2' 'work 3' 'work 4'",
      'join_lanes',
      'rm -r "$meeting"',
      'declare -p timings',
    ),
    options('shared'),
  )
  // Either lane may have taken the first command.
  const lines = [...stdout.matchAll(/^(\d) \| did (\d)$/gm)]
  const lanesOf = Object.fromEntries(lines.map(([, lane, number]) => [number, lane]))
  const other = lanesOf[1] === '1' ? '2' : '1'
  assert.deepEqual(lanesOf, { 1: lanesOf[1], 2: other, 3: other, 4: other })
  assert.equal(lines.length, 4)
  assert.match(stdout, /failed=\(\)\nkept: /)
  for (const number of [1, 2, 3, 4]) assert.match(stdout, new RegExp(`timings=.* s {3}work: number ${number}"`))
})

test('a command may add others, for which free lanes wait', TIMEOUT, async (t) => {
  // The other lane is free at once. Only it can run the last command, as the first lane ends by then.
  const lines = [
    'adds() { more_commands "work 1" "work 2"; }',
    'work() { step "number $1" echo "did $1"; }',
    `lanes 2 'adding adds' 'work 3'`,
  ]
  const { stdout } = await run(t, 'bash', script(...lines, 'join_lanes', 'declare -p timings'), options('adding'))
  assert.match(stdout, /failed=\(\)/)
  for (const number of [1, 2, 3]) assert.match(stdout, new RegExp(`timings=.* s {3}work: number ${number}"`))
})

test('nobody waits for a lane that ended before it added commands', TIMEOUT, async (t) => {
  const { stdout } = await run(t, 'bash', script('dies() { exit 0; }', "lanes 2 'adding dies' true", 'join_lanes'), options('dead'))
  assert.match(stdout, /failed=\(\[0\]="\d \(ended before its steps\)"\)/)
})

test('a lane that ends before its steps has failed', TIMEOUT, async (t) => {
  const { stdout } = await run(t, 'bash', script('dies() { exit 0; }', 'lane short dies', 'join_lanes'), options('short'))
  assert.match(stdout, /failed=\(\[0\]="short \(ended before its steps\)"\)/)
})
