// The one place where tests start programs: each has a limit, and none is left when its test ends, whatever the outcome. A test that waits
// for a program that never ends would hold up the whole run. processes.test.mjs checks that no test starts one by itself.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { after } from 'node:test'

/** Inside the emulated machine everything takes longer; limits that users see hold there, tests' own deadlines are scaled. */
export const emulated = process.env.HYPERLIGHT_MCP_EMULATED === '1'
export const scale = emulated ? 8 : 1
export const ms = (natively) => natively * scale

const LIMIT = ms(120_000)
/** A program's pipes may outlive it, in a process that it has started and that cut itself loose: they are read for this long after its end. */
const PIPES_AFTER_END = ms(5000)

/** Stands in for a test's context where a whole file shares something: cleaned up after the file's last test. First used outside of a test. */
export const wholeFile = { after }

const cleanups = new WeakMap()
/** Has something done after the test: what was set up last goes first, so that no folder is removed under what still writes to it. */
export function afterwards(t, clean) {
  const known = cleanups.get(t)
  if (known) return known.push(clean)
  const rest = [clean]
  cleanups.set(t, rest)
  t.after(async () => {
    const errors = []
    while (rest.length > 0) {
      try {
        await rest.pop()()
      } catch (error) {
        errors.push(error)
      }
    }
    if (errors.length > 0) throw errors[0]
  })
}

function withoutReporting(env = process.env) {
  // Given to a test's process, it would make a child report as a test.
  const { NODE_TEST_CONTEXT, ...rest } = env
  return rest
}

/** Ends a program at once, and all of its group where it leads one of its own. */
function kill(child, detached) {
  try {
    if (detached) process.kill(-child.pid, 'SIGKILL')
  } catch {
    // The group has ended.
  }
  child.kill('SIGKILL')
}

/**
 * Starts a program, as `spawn` does. It is ended by SIGKILL after the test, and after `limit` ms: `child.outOfTime` says so then. Its event
 * `close` comes soon after its end, also where another process still holds its pipes.
 */
export function start(t, command, args, { limit = LIMIT, ...options } = {}) {
  const child = spawn(command, args, { ...options, env: withoutReporting(options.env) })
  const closePipes = () => {
    for (const stream of [child.stdout, child.stderr]) stream?.destroy()
  }
  const closed = new Promise((resolve) => {
    child.once('close', resolve)
    child.once('error', resolve) // It did not start.
  })
  const timer = setTimeout(() => {
    child.outOfTime = limit
    kill(child, options.detached)
  }, limit)
  child.once('exit', () => {
    clearTimeout(timer)
    const pipes = setTimeout(closePipes, child.outOfTime === undefined ? PIPES_AFTER_END : 0)
    child.once('close', () => clearTimeout(pipes))
  })
  child.once('error', () => clearTimeout(timer))
  afterwards(t, async () => {
    kill(child, options.detached)
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    closePipes()
    await closed
  })
  return child
}

/** Starts a program and gathers what it writes: `child.output` is that so far. */
export function listenTo(t, command, args, options) {
  const child = start(t, command, args, options)
  child.output = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr']) {
    child[name]?.setEncoding('utf8').on('data', (text) => {
      child.output[name] += text
    })
  }
  return child
}

/** The end of a program that was started by `listenTo`: its exit code or signal, and its output. Fails where its limit came first. */
export function endOf(child) {
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => {
      const { stdout, stderr } = child.output
      if (child.outOfTime === undefined) resolve({ code, signal, stdout, stderr })
      else reject(new Error(`${child.spawnargs.join(' ')} did not end within ${child.outOfTime} ms; it wrote:\n${stdout}${stderr}`))
    })
  })
}

/** Runs a program to its end. Its standard input is `input`. */
export function run(t, command, args, { input = '', ...options } = {}) {
  const child = listenTo(t, command, args, options)
  child.stdin?.on('error', () => {}).end(input) // It need not read.
  return endOf(child)
}

/** Runs a program to its end while nothing else goes on here; as `spawnSync`, with a limit. */
export function runSync(command, args, { limit = LIMIT, ...options } = {}) {
  const env = withoutReporting(options.env)
  const ended = spawnSync(command, args, { encoding: 'utf8', timeout: limit, killSignal: 'SIGKILL', ...options, env })
  if (ended.error?.code !== 'ETIMEDOUT') return ended
  throw new Error(`${[command, ...args].join(' ')} did not end within ${limit} ms; it wrote:\n${ended.stdout ?? ''}${ended.stderr ?? ''}`)
}

/** What a program printed that ends with exit code 0; throws where it does not, with what it printed as `stdout`. */
export function outputOf(command, args, options) {
  const { error, status, signal, stdout, stderr } = runSync(command, args, options)
  if (error) throw error
  if (status === 0) return stdout
  const failed = new Error(`${[command, ...args].join(' ')} ended with ${status ?? signal}\n${stdout ?? ''}${stderr ?? ''}`)
  throw Object.assign(failed, { status, stdout, stderr })
}

/**
 * Runs a command of the shell at a terminal of 80 columns (util-linux `script`); each pair is what is waited for and what is typed then.
 * `text` is all that the terminal was sent, controls included. Its input ends after the last answer: whatever asks once more fails.
 */
export async function typed(t, command, dialogue, { limit, ...options }) {
  const env = { TERM: 'xterm', ...options.env }
  const child = listenTo(t, 'script', ['-qec', `stty cols 80; ${command}`, '/dev/null'], { cwd: options.cwd, env, limit })
  const rest = [...dialogue]
  let from = 0
  let pages = 0
  child.stdin.on('error', () => {}) // It has ended without being told.
  const answer = () => {
    // A long request is shown in pages. The dialogue is about the questions behind them.
    const paused = child.output.stdout.match(/Enter: next page, \[a\]ll, \[s\]kip to the question: /g)?.length ?? 0
    if (paused > pages) child.stdin.write('a\n')
    pages = paused
    while (rest.length > 0) {
      const [wanted, words] = rest[0]
      const at = child.output.stdout.indexOf(wanted, from)
      if (at < 0) break
      // What comes right behind may be the next that is waited for.
      from = at + wanted.length
      rest.shift()
      child.stdin.write(words)
    }
    if (rest.length === 0 && !child.stdin.writableEnded) child.stdin.end()
  }
  child.stdout.on('data', answer)
  answer()
  try {
    const { code, stdout } = await endOf(child)
    return { code, text: stdout.replaceAll('\r\n', '\n'), unanswered: rest.length }
  } catch (error) {
    if (rest.length > 0) error.message += `\nwaited for: ${JSON.stringify(rest[0][0])}`
    throw error
  }
}
