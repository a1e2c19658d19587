// Decides which programs of tests need not run again, as they have passed with the same inputs. For scripts/test:
//
//   node scripts/lib/kept.mjs due [--all] LABEL KEYS COMMAND…   prints `due COMMAND` or `kept TESTS COMMAND` for each, and notes their keys in the
//                                                               file KEYS; with --all, every command is due
//   node scripts/lib/kept.mjs record KEYS OUTPUT                records those that have passed, as the output of scripts/lib/each says
//
// A command is one line, such as `node --test-reporter=spec __test__/runs.test.mjs`. LABEL says how it runs: in which machine, with which guest. The key
// of a command is a digest of everything that can decide its result: the command, its program, the files of this repository, what was built
// from them, and the machine. A record is a file in target/passed whose name is the key. Where it is not certain that something has no
// influence, it counts, as a test that runs needlessly costs seconds, and one that is left out wrongly hides a bug.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { machineFacts } from './machine.mjs'

const PASSED = 'target/passed'
/** A record that is older is removed, as no key contains what changes with time alone. */
const MOST_DAYS = 14
const DEBUG = 'target/x86_64-unknown-linux-gnu/debug'
/** What scripts/build makes, and git ignores: files, and folders whose own files count. A Node test of the benchmarks needs the last one. */
const BUILT = [
  'target/programs',
  'guest/out',
  'npm/linux-x64-gnu',
  'npm/search-model',
  'node_modules/.package-lock.json',
  `${DEBUG}/examples/raw_rmcp`,
]
/** What cargo makes for Rust tests, while Node tests may run already. */
const BUILT_FOR_RUST = [DEBUG, `${DEBUG}/examples`]
/** A program whose text has this can read any file of the repository. */
const READS_ALL = /\bscripts\b|readdirSync\(.*recursive: true|new URL\('\.\.?\/?'/
/** Files that have no influence on a program whose text does not name them. All other files count for each program. */
const GROUPS = [
  { holds: /\.md$/, named: /\bdocs\b|\.md\b|README|CHANGELOG/ },
  { holds: /^__test__\/.*\.test\.mjs$/, named: /\.test\.mjs/ },
  // They are compiled into the programs of Rust tests.
  { holds: /^tests\/.*\.rs$|^src\/(.*[/_])?tests\.rs$/, named: /\btests\/|\bsrc\b/ },
]

const digest = (data) => createHash('sha256').update(data).digest('hex')

/** Returns the digest of a file with its kind and its right to be executed. A link counts by the path that it contains. */
function fileDigest(path) {
  const status = lstatSync(path, { throwIfNoEntry: false })
  if (!status) return 'none'
  const data = status.isSymbolicLink() ? readlinkSync(path) : status.isFile() ? readFileSync(path) : ''
  return `${(status.mode & 0o170100).toString(8)} ${digest(data)}`
}

/** Returns the files of the repository, also those that git does not know yet, with their digests. */
function ownFiles(root) {
  const names = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: root, maxBuffer: 2 ** 26 })
  const sorted = [...new Set(names.toString().split('\0').filter(Boolean))].sort()
  return new Map(sorted.map((name) => [name, fileDigest(join(root, name))]))
}

function builtFiles(root, paths) {
  const within = (path) =>
    statSync(join(root, path), { throwIfNoEntry: false })?.isDirectory() ? readdirSync(join(root, path)).sort() : []
  const files = paths.flatMap((path) => [path, ...within(path).map((name) => `${path}/${name}`)])
  // Not the lists of sources, libraries that programs contain, what clippy leaves, and examples under their second name.
  return files.filter((path) => !/\.(d|rlib|rmeta)$|-[0-9a-f]{16}$/.test(path)).map((path) => [path, fileDigest(join(root, path))])
}

/** Returns a text without lines that are comments, as these may name files that the program does not read. */
const withoutComments = (text) => text.replace(/^\s*(\/\/|\/?\*).*$/gm, '')

/** Returns the text of a Node test and of the files that it imports from this repository. The package itself reads none of the files in `GROUPS`. */
function nodeText(root, file, seen = new Set()) {
  if (seen.has(file) || file === 'index.mjs' || !existsSync(join(root, file))) return ''
  seen.add(file)
  const text = withoutComments(readFileSync(join(root, file), 'utf8'))
  const imported = [...text.matchAll(/['"](\.\.?\/[^'"\n]+\.mjs)['"]/g)].map(([, path]) => posix.join(dirname(file), path))
  return [text, ...imported.map((path) => nodeText(root, path, seen))].join('\n')
}

/** Returns the text of a program of tests/. The others have none: the unit tests may read all files. */
function rustText(root, files, program) {
  const name = basename(program).replace(/-[0-9a-f]+$/, '')
  const sources = [...files.keys()].filter((file) => file.endsWith('.rs'))
  const own = sources.filter((file) => file === `tests/${name}.rs` || file.startsWith(`tests/${name}/`))
  if (own.length === 0) return undefined
  const shared = sources.filter((file) => file.startsWith('tests/support/'))
  return withoutComments([...own, ...shared].map((file) => readFileSync(join(root, file), 'utf8')).join('\n'))
}

/** What the keys of several commands have in common, read once. */
export class Inputs {
  constructor(root, facts) {
    this.root = root
    this.files = ownFiles(root)
    this.common = digest(JSON.stringify([facts, builtFiles(root, BUILT)]))
    this.forRust = digest(JSON.stringify(builtFiles(root, BUILT_FOR_RUST)))
  }

  key(label, command) {
    const program = command.split(' ').find((word) => /^(__test__|target)\//.test(word)) ?? ''
    const text = program.endsWith('.mjs') ? nodeText(this.root, program) : rustText(this.root, this.files, program)
    const unread = text === undefined || READS_ALL.test(text) ? [] : GROUPS.filter(({ named }) => !named.test(text))
    const files = [...this.files].filter(([file]) => file === program || !unread.some(({ holds }) => holds.test(file)))
    const forRust = program.endsWith('.mjs') ? undefined : this.forRust
    return digest(JSON.stringify([label, command, this.common, forRust, fileDigest(join(this.root, program)), files]))
  }
}

/** Returns the results in the output of scripts/lib/each, by command: its exit code, its passed tests, and its tests that did not run. */
export function resultsOf(output) {
  const sum = (text, pattern) => [...text.matchAll(pattern)].reduce((total, [, count]) => total + Number(count), 0)
  const results = new Map()
  let begin = 0
  for (const { 0: line, 1: code, 2: command, index } of output.matchAll(/^each: exit code (\d+) of (.*)$/gm)) {
    const text = output.slice(begin, index)
    begin = index + line.length
    const passed = sum(text, /(\d+) passed;/g) + sum(text, /^ℹ pass (\d+)/gm)
    const unrun = sum(text, /(\d+) ignored;/g) + sum(text, /^ℹ (?:cancelled|skipped|todo) (\d+)/gm)
    results.set(command, { code: Number(code), passed, unrun })
  }
  return results
}

function removeOld(folder) {
  for (const path of readdirSync(folder).map((name) => join(folder, name))) {
    if (Date.now() - statSync(path).mtimeMs > MOST_DAYS * 86_400_000) rmSync(path, { force: true })
  }
}

/** Returns for each command the number of tests that it passed with the same inputs, or `undefined` if it is due, and notes the keys in a file. */
export function passedBefore(root, facts, label, note, commands) {
  mkdirSync(join(root, PASSED), { recursive: true })
  removeOld(join(root, PASSED))
  const inputs = new Inputs(root, facts)
  const keys = Object.fromEntries(commands.map((command) => [command, inputs.key(label, command)]))
  writeFileSync(note, JSON.stringify({ label, keys }))
  return commands.map((command) => {
    const path = join(root, PASSED, keys[command])
    return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).passed : undefined
  })
}

/** Records the commands of which all tests have run and passed, if the inputs are still those that were noted. */
export function record(root, facts, note, output) {
  const { label, keys } = JSON.parse(readFileSync(note, 'utf8'))
  const inputs = new Inputs(root, facts)
  for (const [command, { code, passed, unrun }] of resultsOf(output)) {
    if (code !== 0 || unrun > 0 || inputs.key(label, command) !== keys[command]) continue
    writeFileSync(join(root, PASSED, keys[command]), JSON.stringify({ label, command, passed }))
  }
}

function main([verb, ...args]) {
  const root = process.cwd()
  if (verb === 'record') return record(root, machineFacts(), args[0], readFileSync(args[1], 'utf8'))
  const all = args[0] === '--all'
  const [label, note, ...commands] = all ? args.slice(1) : args
  passedBefore(root, machineFacts(), label, note, commands).forEach((tests, index) => {
    console.log(all || tests === undefined ? `due ${commands[index]}` : `kept ${tests} ${commands[index]}`)
  })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main(process.argv.slice(2))
