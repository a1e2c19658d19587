// The host's side of the emulated machine: starts QEMU, passes the command to scripts/lib/emulator-init.sh inside, transfers the streams,
// signals and exit code, and leaves nothing behind. scripts/with-hypervisor starts it:
//
//   node emulator.mjs --kernel FILE --initrd FILE --memory MB [--timeout SECONDS] [--results DIR] [--ignored 'HUP INT'] -- COMMAND…
//
// QEMU and this process talk over socket pairs that QEMU inherits. There is no socket file to remove, and each side notices when the other
// ends. The ports have fixed numbers that emulator-init.sh knows too.
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readFileSync, readlinkSync } from 'node:fs'
import { constants } from 'node:os'
import { Transform } from 'node:stream'
import { parseArgs } from 'node:util'

const PORTS = ['command', 'control', 'stdin', 'stdout', 'stderr']
const FORWARDED = ['HUP', 'INT', 'QUIT', 'TERM']
const OWN_FAILURE = 125 // as in env(1) and timeout(1): COMMAND did not fail, but the program that runs it
const TIMED_OUT = 124
const BOOT_SECONDS = 180 // 5 to 10 are usual; a busy machine needs more
const GRACE_SECONDS = 5 // between the signal that ends COMMAND and the end of the machine
const FLUSH_SECONDS = 1 // for output that is still in transit after a signal or a timeout
const CONSOLE_TAIL = 16 * 1024

/** Converts bytes to text with one character for each byte, as the caller's arguments and environment need not be UTF-8. */
const bytes = (buffer) => buffer.toString('latin1')
const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`

function procList(name) {
  const list = bytes(readFileSync(`/proc/self/${name}`)).split('\0')
  list.pop() // the last entry is empty, as each entry ends with a NUL
  return list
}

/** Returns the part of emulator-init.sh that differs between runs: the preparations, and the command with the caller's environment. */
function commandScript({ mark, results, ignored }) {
  const args = procList('cmdline')
  const command = args.slice(args.indexOf('--') + 1)
  const environment = procList('environ').filter((entry) => !entry.startsWith('HYPERLIGHT_MCP_EMULATED='))
  const groups = process.getgroups().join(',')
  const [uid, gid] = [process.getuid(), process.getgid()]
  const runtime = process.env.XDG_RUNTIME_DIR
  // env(1) would read a name with "=" as a variable and a name with "-" as an option. nice(1) takes the words after "--" unchanged.
  const shield = /^-|=/.test(command[0]) ? ['nice', '-n', '0', '--'] : []
  const words = [
    'setsid',
    'chroot',
    '.',
    '/usr/bin/setpriv', // with its path, as busybox would run its own setpriv
    `--reuid=${uid}`,
    `--regid=${gid}`,
    groups ? `--groups=${groups}` : '--clear-groups',
    '--',
    'env',
    '-i',
    `--chdir=${bytes(readlinkSync('/proc/self/cwd', 'buffer'))}`,
    '--default-signal',
    ...ignored.map((name) => `--ignore-signal=${name}`),
    '--',
    ...environment,
    'HYPERLIGHT_MCP_EMULATED=1',
    ...shield,
    ...command,
  ]
  // COMMAND may open its streams again (/dev/stderr), so they must belong to its user.
  const prepare = [`owner=${uid}:${gid}`]
  if (runtime?.startsWith('/run/')) {
    const folder = quote(bytes(Buffer.from(`.${runtime}`)))
    prepare.push(`mkdir -p ${folder}`, `chown ${uid}:${gid} ${folder}`, `chmod 700 ${folder}`)
  }
  if (results) {
    // Writes are not delayed, so that files that were written before a timeout exist.
    const mount = 'mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=mmap results'
    const folder = quote(bytes(Buffer.from(`.${results}`)))
    prepare.push(`mkdir -p ${folder}`, `${mount} ${folder}`)
  }
  const umask = process.umask().toString(8)
  return Buffer.from(
    `mark=${mark}\nprepare() {\n${prepare.join(' &&\n')}\n}\nrun() {\numask ${umask}\nexec ${words.map(quote).join(' ')}\n}\n`,
    'latin1',
  )
}

function qemuArguments({ kernel, initrd, memory, results }) {
  const folder = (tag, path, more) => `local,path=${path.replaceAll(',', ',,')},mount_tag=${tag},security_model=none,multidevs=remap${more}`
  return [
    '-nodefaults',
    '-no-user-config',
    '-no-reboot',
    '-display',
    'none',
    '-machine',
    'pc',
    // One thread emulates both CPUs. With two threads, the CPU of a nested guest sometimes handles page faults forever, or the whole
    // machine stops: in one of four or five runs of tests/stress.rs. With one thread, this happened in none of seventeen runs.
    '-accel',
    'tcg,thread=single',
    '-cpu',
    'max,+svm',
    '-smp',
    '2',
    '-m',
    memory,
    '-kernel',
    kernel,
    '-initrd',
    initrd,
    // Mitigations are useless here and cost a fifth of the boot time. The clocks are known to be reliable. panic=-1 ends QEMU at once.
    '-append',
    'console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr random.trust_cpu=on tsc=reliable no_timer_check cryptomgr.notests',
    '-device',
    'virtio-rng-pci',
    '-device',
    'virtio-serial-pci,max_ports=8',
    '-chardev',
    'socket,id=console,fd=3',
    '-serial',
    'chardev:console',
    ...PORTS.flatMap((name, index) => [
      '-chardev',
      `socket,id=${name},fd=${4 + index}`,
      '-device',
      `virtserialport,chardev=${name},nr=${1 + index}`,
    ]),
    '-virtfs',
    folder('root', '/', ',readonly=on'),
    ...(results ? ['-virtfs', folder('results', results, '')] : []),
  ]
}

/** Forwards a stream up to the mark that ends it, and records whether the mark came. */
class UntilMark extends Transform {
  #mark
  #held = Buffer.alloc(0)
  complete = false

  constructor(mark) {
    super()
    this.#mark = Buffer.from(mark)
  }

  _transform(chunk, _encoding, done) {
    const data = Buffer.concat([this.#held, chunk])
    let length = Math.min(this.#mark.length, data.length)
    while (!data.subarray(data.length - length).equals(this.#mark.subarray(0, length))) length -= 1
    this.push(data.subarray(0, data.length - length))
    this.#held = data.subarray(data.length - length)
    if (length === this.#mark.length) {
      this.complete = true
      this.push(null)
    }
    done()
  }

  _flush(done) {
    done(null, this.complete ? undefined : this.#held)
  }
}

function lines(stream, take) {
  let rest = ''
  stream.setEncoding('utf8')
  stream.on('data', (text) => {
    const parts = (rest + text).split('\n')
    rest = parts.pop()
    parts.forEach(take)
  })
}

/** One run of COMMAND in its own machine. */
class Emulation {
  #state = 'booting' // → 'running' → 'draining' → 'over'
  #console = ''
  #code
  #closing
  #open = 2 // number of outputs that have not ended
  #qemu
  #ports

  constructor(options) {
    this.options = { ...options, mark: randomBytes(24).toString('hex') }
  }

  start() {
    this.#listenForSignals()
    this.#after(BOOT_SECONDS, () => this.#state === 'booting' && this.#fail(`did not start within ${BOOT_SECONDS} s`))
    // QEMU ends when this process ends for any reason. QEMU is in its own session, so that Ctrl-C at a terminal does not reach it.
    const stdio = ['ignore', 'ignore', 'pipe', 'pipe', ...PORTS.map(() => 'pipe')]
    // This process may be killed before the signal is set. Then the parent is another one, and nobody would end QEMU.
    const unlessOrphaned = '[ "$PPID" = "$1" ] || exit 1; shift; exec "$@"'
    const shell = ['sh', '-c', unlessOrphaned, 'sh', String(process.pid)]
    const args = ['--pdeathsig', 'KILL', '--', ...shell, 'qemu-system-x86_64', ...qemuArguments(this.options)]
    this.#qemu = spawn('setpriv', args, { stdio, detached: true })
    this.#qemu.on('error', (error) => this.#fail(`cannot start: ${error.message}`))
    this.#qemu.on('close', () => this.#machineEnded())
    const [, , errors, serial, ...ports] = this.#qemu.stdio
    for (const stream of [errors, serial]) {
      stream.setEncoding('utf8').on('data', (text) => (this.#console = (this.#console + text).slice(-CONSOLE_TAIL)))
    }
    // A broken port means that QEMU has ended, which is handled elsewhere.
    for (const port of [serial, ...ports]) port.on('error', () => {})
    this.#ports = Object.fromEntries(PORTS.map((name, index) => [name, ports[index]]))
    this.#connect()
  }

  #connect() {
    const { command, control, stdin, stdout, stderr } = this.#ports
    // Each port first sends a line from inside when it is connected; see greet in emulator-init.sh.
    command.once('data', () => command.end(commandScript(this.options)))
    stdin.once('data', () => {
      process.stdin.on('error', () => stdin.end()) // stdin is a folder, or a terminal that was closed
      process.stdin.pipe(stdin)
    })
    lines(control, (line) => this.#take(line))
    this.#carry('stdout', stdout, process.stdout)
    this.#carry('stderr', stderr, process.stderr)
  }

  #carry(name, port, target) {
    const output = port.pipe(new UntilMark(this.options.mark))
    output.on('end', () => {
      this.#open -= 1
      this.#finishIfDrained()
    })
    output.pipe(target, { end: false })
    target.on('error', () => {
      // The reader of this output has gone. COMMAND gets a broken pipe, as it would outside of the machine.
      output.unpipe(target)
      output.resume()
      if (this.#state === 'running') this.#ports.control.write(`close ${name}\n`)
    })
  }

  #take(line) {
    const [word, argument] = line.split(' ')
    if (word === 'started') {
      this.#state = 'running'
      if (this.options.timeout) this.#after(this.options.timeout, () => this.#timeOut())
    } else if (word === 'exit') {
      this.#state = 'draining'
      this.#code ??= Number(argument)
      this.#finishIfDrained()
    }
  }

  #finishIfDrained() {
    if (this.#state === 'draining' && this.#open === 0) this.#end(this.#code)
  }

  #listenForSignals() {
    for (const name of FORWARDED) {
      process.on(`SIG${name}`, () => {
        if (this.options.ignored.includes(name)) return
        if (this.#state === 'running') this.#ports.control.write(`signal ${name}\n`)
        else this.#abort(128 + constants.signals[`SIG${name}`])
      })
    }
  }

  #timeOut() {
    this.#code = TIMED_OUT
    if (this.#state !== 'running') return this.#abort(TIMED_OUT) // COMMAND has ended, but nobody reads its output
    this.#ports.control.write('signal TERM\n')
    this.#after(GRACE_SECONDS, () => this.#abort(TIMED_OUT))
  }

  #machineEnded() {
    if (this.#closing !== undefined) this.#exit(this.#closing)
    else if (this.#code === TIMED_OUT) this.#exit(TIMED_OUT)
    else this.#fail(this.#state === 'booting' ? 'did not start' : 'ended before the command did')
  }

  #fail(message) {
    if (this.#closing !== undefined) return
    const hint = this.#state === 'booting' ? '; what it wrote on its console:' : '; the end of its console:'
    process.stderr.write(`with-hypervisor: the emulated machine ${message}${hint}\n${this.#console.trimEnd()}\n`)
    this.#end(OWN_FAILURE)
  }

  /** Switches the machine off. This process ends after QEMU, so that nothing is left when the caller continues. */
  #end(code) {
    if (this.#closing !== undefined) return
    this.#closing = code
    this.#state = 'over'
    if (this.#qemu?.pid === undefined || this.#qemu.exitCode !== null || this.#qemu.signalCode !== null) this.#exit(code)
    else this.#qemu.kill('SIGKILL')
  }

  /** Ends the machine even if nobody reads its output. */
  #abort(code) {
    this.#end(code)
    this.#after(FLUSH_SECONDS, () => process.exit(code))
  }

  #exit(code) {
    process.stdin.destroy()
    // The outputs must be flushed before this process exits. If the reader has gone, the callback gets an error.
    process.stdout.write('', () => process.stderr.write('', () => process.exit(code)))
  }

  #after(seconds, act) {
    setTimeout(act, seconds * 1000).unref()
  }
}

function main() {
  const end = process.argv.indexOf('--')
  const text = { type: 'string' }
  const options = { kernel: text, initrd: text, memory: text, timeout: text, results: text, ignored: { ...text, default: '' } }
  const { values } = parseArgs({ args: process.argv.slice(2, end), options })
  const ignored = values.ignored.split(' ').filter(Boolean)
  new Emulation({ ...values, timeout: Number(values.timeout ?? 0), ignored }).start()
}

main()
