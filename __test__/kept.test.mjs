// Tests of scripts/lib/kept.mjs: a program of tests that has passed is left out only while nothing has changed that can decide its result.
import assert from 'node:assert/strict'
import { appendFileSync, chmodSync, mkdirSync, readdirSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { passedBefore, record, resultsOf } from '../scripts/lib/kept.mjs'
import { machineFacts } from '../scripts/lib/machine.mjs'
import { folder, ms, outputOf, root, run } from './support.mjs'

const ADDON = 'npm/linux-x64-gnu/hyperlight-mcp.node'
const PROGRAM = 'target/x86_64-unknown-linux-gnu/debug/deps/search-0123456789abcdef'
const BOX = 'target/x86_64-unknown-linux-gnu/debug/hyperlight-mcp-box'
const NODE = 'node --test-reporter=spec __test__/a.test.mjs'
const RUST = `${PROGRAM} --quiet`
/** The files of a small repository. A test of documents is the only one that reads them. */
const FILES = {
  '.gitignore': '/target\n*.node\n',
  '__test__/a.test.mjs': "import './help.mjs'\n// docs/A.md is not read here",
  '__test__/b.test.mjs': "readFileSync('docs/A.md')",
  '__test__/help.mjs': '',
  '__test__/fixtures/page.html': '',
  'docs/A.md': '',
  'package-lock.json': '{}',
  'src/lib.rs': '',
  'src/room/tests.rs': '',
  'tests/search.rs': '',
  'tests/house.rs': '"src", "docs"',
  [ADDON]: 'addon',
  [PROGRAM]: 'program',
  [BOX]: 'box',
}
const READER = 'node --test-reporter=spec __test__/b.test.mjs'
const HOUSE = PROGRAM.replace('search', 'house')
const UNIT = PROGRAM.replace('search', 'hyperlight_mcp')
const ALL = [NODE, READER, RUST, HOUSE, UNIT]

/** What scripts/lib/each prints for a command. */
const ended = (command, { code = 0, text = 'test result: ok. 3 passed; 0 failed; 0 ignored;' } = {}) =>
  `${text}\neach: exit code ${code} of ${command}\n`

/** A repository in which all commands have passed. `kept` returns those that need not run again. */
function passed(t, facts = { node: 'v20' }) {
  const path = folder(t)
  const write = (name, text) => {
    mkdirSync(dirname(join(path, name)), { recursive: true })
    writeFileSync(join(path, name), text)
  }
  for (const [name, text] of Object.entries({ ...FILES, [HOUSE]: 'house', [UNIT]: 'unit' })) write(name, text)
  outputOf('git', ['-C', path, 'init', '--quiet'])
  const note = join(folder(t), 'keys')
  const before = (label = 'here', other = facts) => passedBefore(path, other, label, note, ALL)
  const kept = (...args) => ALL.filter((_, index) => before(...args)[index] !== undefined)
  assert.deepEqual(kept(), [])
  record(path, facts, note, ALL.map((command) => ended(command)).join(''))
  return { path, note, write, before, kept }
}

test('what has passed is kept, with the number of its tests', (t) => {
  const { before, kept } = passed(t)
  assert.deepEqual(kept(), ALL)
  assert.deepEqual(before(), [3, 3, 3, 3, 3])
})

test('a changed file repeats all that it can decide', (t) => {
  const { path, kept } = passed(t)
  const changes = {
    [ADDON]: [],
    '__test__/help.mjs': [],
    '__test__/fixtures/page.html': [],
    'package-lock.json': [],
    'src/lib.rs': [],
    '__test__/a.test.mjs': [READER, RUST, HOUSE],
    'docs/A.md': [NODE, RUST],
    'src/room/tests.rs': [NODE, READER, RUST],
    [PROGRAM]: [NODE, READER, HOUSE, UNIT],
    // The Node tests use its copy beside the addon.
    [BOX]: [NODE, READER],
  }
  for (const [name, rest] of Object.entries(changes)) {
    appendFileSync(join(path, name), ' ')
    assert.deepEqual(kept(), rest, name)
    writeFileSync(join(path, name), FILES[name])
    assert.deepEqual(kept(), ALL, name)
  }
})

test('a new file, a removed one and another right count, and a time does not', (t) => {
  const { path, write, kept } = passed(t)
  utimesSync(join(path, 'package-lock.json'), 1, 1)
  assert.deepEqual(kept(), ALL)
  chmodSync(join(path, 'package-lock.json'), 0o755)
  assert.deepEqual(kept(), [])
  chmodSync(join(path, 'package-lock.json'), 0o644)
  write('new.json', '')
  assert.deepEqual(kept(), [])
})

test('another machine, user or variable repeats everything', (t) => {
  const facts = machineFacts({ PATH: '/usr/bin' })
  const { kept } = passed(t, facts)
  assert.deepEqual(kept('here', { ...facts }), ALL)
  for (const name of Object.keys(facts)) assert.deepEqual(kept('here', { ...facts, [name]: 'another' }), [], name)
  assert.deepEqual(kept('in another machine'), [])
  assert.deepEqual(kept('here', machineFacts({ PATH: '/usr/bin', LANG: 'C' })), [])
  assert.deepEqual(kept('here', machineFacts({ PATH: '/here/node_modules/.bin:/usr/bin', SHLVL: '2' })), ALL)
})

test('only a program of which all tests have passed is recorded', (t) => {
  for (const bad of [
    { code: 1 },
    { code: 124, text: 'test result: ok. 1 passed; 0 failed;' },
    { text: 'test result: ok. 1 passed; 0 failed; 1 ignored;' },
    ...['cancelled', 'skipped', 'todo'].map((word) => ({ text: `ℹ pass 2\nℹ ${word} 1` })),
  ]) {
    const { path, note, kept } = passed(t)
    appendFileSync(join(path, ADDON), ' ')
    assert.deepEqual(kept(), [])
    record(path, { node: 'v20' }, note, `${ended(NODE, bad)}${ended(RUST)}each: ${READER}\n12 passed;`)
    assert.deepEqual(kept(), [RUST], JSON.stringify(bad))
  }
})

test('what changed while a program ran is not recorded', (t) => {
  const { path, note, kept } = passed(t)
  appendFileSync(join(path, ADDON), ' ')
  assert.deepEqual(kept(), [])
  appendFileSync(join(path, ADDON), ' ')
  record(path, { node: 'v20' }, note, ended(NODE))
  assert.deepEqual(kept(), [])
})

test('a record ends after two weeks', (t) => {
  const { path, kept } = passed(t)
  const records = join(path, 'target/passed')
  for (const name of readdirSync(records)) utimesSync(join(records, name), Date.now() / 1000, Date.now() / 1000 - 15 * 86_400)
  assert.deepEqual(kept(), [])
  assert.deepEqual(readdirSync(records), [])
})

test('each runs all commands, and its output says how each has ended', { timeout: ms(60_000) }, async (t) => {
  const path = folder(t)
  const script = (name, text) => {
    writeFileSync(join(path, name), `#!/bin/sh\n${text}\n`)
    chmodSync(join(path, name), 0o755)
    return join(path, name)
  }
  const two = script('two', 'echo "test result: ok. 2 passed; 0 failed; 0 ignored;"')
  const fails = script('fails', 'echo "ℹ pass 4"; echo "ℹ skipped 1"; exit 3')
  const endless = script('endless', 'exec sleep 1000')
  const { code, stdout } = await run(t, join(root, 'scripts/lib/each'), ['2', `${two} --quiet`, fails, endless, two])
  assert.equal(code, 1)
  const results = [
    [`${two} --quiet`, { code: 0, passed: 2, unrun: 0 }],
    [fails, { code: 3, passed: 4, unrun: 1 }],
    [endless, { code: 124, passed: 0, unrun: 0 }],
    [two, { code: 0, passed: 2, unrun: 0 }],
  ]
  assert.deepEqual([...resultsOf(stdout)], results)
})

test('Rust tests get the variables that cargo gives, and what the environment says comes first', { timeout: ms(60_000) }, async (t) => {
  const { RUST_MIN_STACK, PROPTEST_RNG_SEED, ...environment } = process.env
  const variables = async (more) => {
    const { stdout } = await run(t, 'bash', ['-c', '. scripts/lib/programs.sh; variables_of_cargo'], {
      cwd: root,
      env: { ...environment, ...more },
    })
    return stdout.trim().split('\n')
  }
  const [stack, seed, ...none] = await variables({})
  assert.match(`${stack} ${seed}`, /^RUST_MIN_STACK=\d+ PROPTEST_RNG_SEED=\d+$/)
  assert.deepEqual(none, [])
  assert.deepEqual(await variables({ PROPTEST_RNG_SEED: '7' }), [stack])
})

test('the step of scripts/test leaves out what is kept, and --all does not', { timeout: ms(60_000) }, async (t) => {
  const { path, write } = passed(t)
  write('target/counting', '#!/bin/sh\necho run >> target/runs\necho "7 passed; 0 failed; 0 ignored;"\n')
  chmodSync(join(path, 'target/counting'), 0o755)
  for (const name of ['step.sh', 'programs.sh', 'kept.mjs', 'machine.mjs', 'each']) {
    write(`scripts/lib/${name}`, outputOf('cat', [join(root, 'scripts/lib', name)]))
  }
  chmodSync(join(path, 'scripts/lib/each'), 0o755)
  const { CI, ...environment } = process.env
  const step = async (before = '', more = {}) => {
    const lines = [
      'set -uo pipefail',
      '. scripts/lib/step.sh',
      '. scripts/lib/programs.sh',
      before,
      'programs counting env A=1 -- target/counting',
    ]
    const script = [...lines, 'declare -p failed', 'grep -h ^kept "$log"; wc -l < target/runs'].join('\n')
    const { stdout } = await run(t, 'bash', ['-c', script], { cwd: path, env: { ...environment, ...more } })
    assert.match(stdout, /failed=\(\)/)
    return stdout.slice(stdout.indexOf('failed=()')).trim().split('\n').slice(1)
  }
  assert.deepEqual(await step(), ['1'])
  assert.deepEqual(await step(), ['kept 7 target/counting', '1'])
  assert.deepEqual(await step('repeat=--all'), ['2'])
  assert.deepEqual(await step('', { CI: 'true' }), ['3'])
  assert.deepEqual(await step(), ['kept 7 target/counting', '3'])
})
