// Runs a command with a deadline on this machine, for scripts/with-hypervisor. Unlike timeout(1), it ends all processes that the command
// has started, and its exit code is 124 even if SIGKILL was needed. It does not find a process that has detached itself before (a daemon).
//
//   node deadline.mjs SECONDS IGNORED -- COMMAND…       IGNORED: signals that the caller ignores, as in 'HUP INT', or ''
import { spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { constants } from 'node:os'
import { isatty } from 'node:tty'

const TIMED_OUT = 124
const GRACE_SECONDS = 5 // between SIGTERM and SIGKILL
const LOOK_MILLISECONDS = 100
const FORWARDED = ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM']
const TYPED = ['SIGINT', 'SIGQUIT'] // a terminal sends these to the command too

/** Returns a process's parent and its start time. The start time distinguishes it from a later process with the same number. */
function look(pid) {
  try {
    // The name of the program, in brackets, may contain any characters. Only words follow it.
    const words = readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ')
    return { parent: Number(words[1]), began: words[19] }
  } catch {
    return undefined // it has ended
  }
}

/** A process and its descendants. They are collected while their parents live, as the kernel gives an orphan another parent. */
class Family {
  #members = new Map() // process id → start time

  constructor(ancestor) {
    this.ancestor = ancestor
  }

  /** Finds new members and returns them. */
  grow() {
    const all = readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map((pid) => [Number(pid), look(pid)])
    const fresh = []
    for (let more = true; more; ) {
      more = false
      for (const [pid, process] of all) {
        const belongs = process && (pid === this.ancestor || this.#members.has(process.parent))
        if (!belongs || this.#members.get(pid) === process.began) continue
        this.#members.set(pid, process.began)
        fresh.push(pid)
        more = true
      }
    }
    return fresh
  }

  kill() {
    // All members are stopped first, so that none can start another process while the others are killed.
    for (let fresh = [...this.#members.keys()]; fresh.length > 0; fresh = this.grow()) this.#signal(fresh, 'SIGSTOP')
    this.#signal(this.#members.keys(), 'SIGKILL')
  }

  #signal(pids, signal) {
    for (const pid of pids) {
      if (look(pid)?.began !== this.#members.get(pid)) continue
      try {
        process.kill(pid, signal)
      } catch {
        // it has ended
      }
    }
  }
}

function main(seconds, ignored, command) {
  let family // set when the time is over
  const terminal = [0, 1, 2].some((stream) => isatty(stream))
  // The handlers are installed before the command starts, as a signal may arrive before `spawn` has returned.
  for (const signal of FORWARDED) {
    process.on(signal, () => {
      if (!(terminal && TYPED.includes(signal)) && !ignored.includes(signal.slice(3))) child.kill(signal)
    })
  }
  // Node resets the handling of all signals in the processes that it starts, so env(1) ignores them again.
  const [file, ...args] = ignored.length > 0 ? ['env', ...ignored.map((name) => `--ignore-signal=${name}`), '--', ...command] : command
  const child = spawn(file, args, { stdio: 'inherit' })
  child.on('error', (error) => {
    process.stderr.write(`with-hypervisor: cannot run ${file}: ${error.message}\n`)
    process.exit(error.code === 'ENOENT' ? 127 : 126)
  })
  child.on('exit', (code, signal) => {
    family?.kill()
    process.exit(family ? TIMED_OUT : (code ?? 128 + constants.signals[signal]))
  })
  const timeUp = () => {
    family = new Family(child.pid)
    family.grow()
    child.kill('SIGTERM')
    setInterval(() => family.grow(), LOOK_MILLISECONDS)
    setTimeout(() => family.kill(), GRACE_SECONDS * 1000)
  }
  setTimeout(timeUp, seconds * 1000).unref()
}

main(Number(process.argv[2]), process.argv[3].split(' ').filter(Boolean), process.argv.slice(5))
