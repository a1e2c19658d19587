// Runs a command on this machine with a deadline, for scripts/with-hypervisor: unlike timeout(1) it ends everything that the
// command started, and says 124 also where that took SIGKILL. A process that has cut itself loose before (a daemon) is not found.
//
//   node deadline.mjs SECONDS IGNORED -- COMMAND…       IGNORED: signals that the caller ignores, as in 'HUP INT', or ''
import { spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { constants } from 'node:os'
import { isatty } from 'node:tty'

const TIMED_OUT = 124
const GRACE_SECONDS = 5 // between the signal that asks the command to end and the one that it cannot refuse
const LOOK_MILLISECONDS = 100
const FORWARDED = ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM']
const TYPED = ['SIGINT', 'SIGQUIT'] // a terminal sends these to the command too

/** A process's parent, and when it began, which tells it from a later one with the same number. */
function look(pid) {
  try {
    // The program's name, in brackets, may hold anything; what follows are words.
    const words = readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ')
    return { parent: Number(words[1]), began: words[19] }
  } catch {
    return undefined // it has ended
  }
}

/** Everything that came from a process, found while it lives: once a process ends, what it started is nobody's. */
class Family {
  #members = new Map() // number → when it began

  constructor(ancestor) {
    this.ancestor = ancestor
  }

  /** Looks for new members, and returns them. */
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
    // Stopped first, so that none starts another while the others die.
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
  let family // once the time is up
  const terminal = [0, 1, 2].some((stream) => isatty(stream))
  // Before the command is there: it may be up, and somebody may end it, before the call that started it has come back.
  for (const signal of FORWARDED) {
    process.on(signal, () => {
      if (!(terminal && TYPED.includes(signal)) && !ignored.includes(signal.slice(3))) child.kill(signal)
    })
  }
  // Node resets every signal for what it starts.
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
