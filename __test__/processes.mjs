// Only this file starts programs for tests. Each program has a time limit and ends with its test, whatever the outcome, because a program
// that never ends would block the whole run. processes.test.mjs checks that no test starts a program in another way.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { after } from 'node:test'

/** In the emulated machine, everything takes longer. Limits that users see stay the same there, and the tests' own deadlines are longer. */
export const emulated = process.env.HYPERLIGHT_MCP_EMULATED === '1'
export const scale = emulated ? 8 : 1
export const ms = (natively) => natively * scale

const LIMIT = ms(120_000)
/**
 * The time for which a program's pipes are still read after its end. A process that it has started and that has detached itself may keep
 * them open.
 */
const PIPES_AFTER_END = ms(5000)

/**
 * Replaces a test's context for things that a whole file shares. They are removed after the file's last test. Must first be used outside of
 * a test.
 */
export const wholeFile = { after }

const cleanups = new WeakMap()
/** Calls `clean` after the test. What was set up last is removed first, so that no folder is removed while something still writes to it. */
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
  // With this variable of the test's process, a child would report as a test.
  const { NODE_TEST_CONTEXT, ...rest } = env
  return rest
}

/** Kills a program immediately. Also kills its process group if the program leads one. */
function kill(child, detached) {
  try {
    if (detached) process.kill(-child.pid, 'SIGKILL')
  } catch {
    // The group has ended.
  }
  child.kill('SIGKILL')
}

/**
 * Starts a program, like `spawn`. SIGKILL ends it after the test, or after `limit` ms; in the second case `child.outOfTime` is set. Its
 * event `close` comes soon after its end, even if another process still holds its pipes.
 */
export function start(t, command, args, { limit = LIMIT, ...options } = {}) {
  const child = spawn(command, args, { ...options, env: withoutReporting(options.env) })
  const closePipes = () => {
    for (const stream of [child.stdout, child.stderr]) stream?.destroy()
  }
  const closed = new Promise((resolve) => {
    child.once('close', resolve)
    child.once('error', resolve) // It was not started.
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

/** Starts a program and collects what it writes. `child.output` has the output so far. */
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

/**
 * Waits for the end of a program that `listenTo` has started. Returns its exit code or signal, and its output. Fails if the time limit
 * ended it.
 */
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
  child.stdin?.on('error', () => {}).end(input) // The program may end without reading it.
  return endOf(child)
}

/** Runs a program to its end, like `spawnSync` but with a time limit. Nothing else happens in this process meanwhile. */
export function runSync(command, args, { limit = LIMIT, ...options } = {}) {
  const env = withoutReporting(options.env)
  const ended = spawnSync(command, args, { encoding: 'utf8', timeout: limit, killSignal: 'SIGKILL', ...options, env })
  if (ended.error?.code !== 'ETIMEDOUT') return ended
  throw new Error(`${[command, ...args].join(' ')} did not end within ${limit} ms; it wrote:\n${ended.stdout ?? ''}${ended.stderr ?? ''}`)
}

/** Returns the output of a program. Throws an error if its exit code is not 0. The error has the output as `stdout`. */
export function outputOf(command, args, options) {
  const { error, status, signal, stdout, stderr } = runSync(command, args, options)
  if (error) throw error
  if (status === 0) return stdout
  const failed = new Error(`${[command, ...args].join(' ')} ended with ${status ?? signal}\n${stdout ?? ''}${stderr ?? ''}`)
  throw Object.assign(failed, { status, stdout, stderr })
}

/**
 * Runs a shell command at a terminal of 80 columns (util-linux `script`). Each pair is a text to wait for, and the answer that is typed
 * then, or a function that returns it. `text` is everything that the terminal got, with control characters. The input ends after the last answer, so a further question
 * fails.
 */
export async function typed(t, command, dialogue, { limit, ...options }) {
  const env = { TERM: 'xterm', ...options.env }
  const child = listenTo(t, 'script', ['-qec', `stty cols 80; ${command}`, '/dev/null'], { cwd: options.cwd, env, limit })
  const rest = [...dialogue]
  let from = 0
  let pages = 0
  child.stdin.on('error', () => {}) // It has ended without being told.
  const answer = () => {
    // A long request is shown in pages. `dialogue` answers only the questions after the pages.
    const paused = child.output.stdout.match(/Enter: next page, \[a\]ll, \[s\]kip to the question: /g)?.length ?? 0
    if (paused > pages) child.stdin.write('a\n')
    pages = paused
    while (rest.length > 0) {
      const [wanted, words] = rest[0]
      const at = child.output.stdout.indexOf(wanted, from)
      if (at < 0) break
      // The next text to wait for may follow directly.
      from = at + wanted.length
      rest.shift()
      child.stdin.write(typeof words === 'function' ? words() : words)
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
