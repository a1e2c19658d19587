// Tests of scripts/with-hypervisor. A probe that answers no simulates a machine without a hypervisor, and a probe that answers yes
// simulates a machine with one, so both ways are tested everywhere. A machine takes 5 to 10 s to boot, so each boot checks several things.
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { afterEach, before, describe, test } from 'node:test'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { afterwards, runSync, start as startProgram, wholeFile } from './processes.mjs'

const SCRIPTS = fileURLToPath(new URL('../scripts', import.meta.url))
const SCRIPT = join(SCRIPTS, 'with-hypervisor')
const BOOTED = { timeout: 180_000 }
// Inside the emulated machine, a second machine would be emulated by an emulated one.
const EMULATED = process.env.HYPERLIGHT_MCP_EMULATED === '1' && 'an emulated machine does not emulate another'

const work = realpathSync(mkdtempSync(join(tmpdir(), 'with-hypervisor-test-')))
// This comes first, because what is set up last is removed first. So programs that a failed test leaves end before their folder is removed.
afterwards(wholeFile, () => rmSync(work, { recursive: true, force: true }))
const folder = (name) => {
  mkdirSync(join(work, name), { recursive: true })
  return join(work, name)
}
const temporary = folder('temporary')
const cache = folder('cache')

function probe(name, body) {
  const path = join(work, name)
  writeFileSync(path, `#!/bin/sh\n${body}\n`)
  chmodSync(path, 0o755)
  return path
}
const YES = probe('probe-yes', 'exit 0')
const NO = probe('probe-no', 'exit 3')

function environment(more) {
  const { HYPERLIGHT_MCP_EMULATED, NODE_TEST_CONTEXT, ...outer } = process.env
  return { ...outer, TMPDIR: temporary, XDG_CACHE_HOME: cache, XDG_RUNTIME_DIR: folder('runtime'), ...more }
}

/** Starts the script. `ended` resolves to what it wrote and how it ended. */
function start(probePath, args, { env, cwd, stdin = 'pipe' } = {}) {
  const given = {
    env: environment({ HYPERLIGHT_MCP_PROBE: probePath, ...env }),
    cwd,
    stdio: [stdin, 'pipe', 'pipe'],
    limit: BOOTED.timeout,
  }
  const child = startProgram(wholeFile, SCRIPT, args, given)
  const [stdout, stderr] = [[], []]
  child.stdout.on('data', (chunk) => stdout.push(chunk))
  child.stderr.on('data', (chunk) => stderr.push(chunk))
  child.ended = once(child, 'close').then(([code, signal]) => {
    return { code, signal, stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr).toString() }
  })
  child.wrote = async (text) => {
    while (!Buffer.concat(stdout).includes(text)) await Promise.race([once(child.stdout, 'data'), child.ended.then(assert.fail)])
  }
  return child
}

function run(probePath, args, options) {
  const child = start(probePath, args, options)
  child.stdin?.on('error', () => {}).end(options?.input)
  return child.ended
}

/** Returns the processes, without zombies, whose arguments contain these words. The machines of this test have its cache folder in them. */
function processes(...words) {
  return readdirSync('/proc').filter((pid) => {
    try {
      const line = /^\d+$/.test(pid) && Number(pid) !== process.pid ? readFileSync(`/proc/${pid}/cmdline`, 'utf8') : ''
      return words.every((word) => line.includes(word))
    } catch {
      return false
    }
  })
}

async function until(what) {
  for (const end = Date.now() + 20_000; !what(); await pause(10)) assert.ok(Date.now() < end, `never: ${what}`)
}

const digest = (data) => createHash('sha256').update(data).digest('hex')

before(() => rmSync(folder('runtime'), { recursive: true }))
/** Checks that nothing is left of the runs that have ended: no process, no temporary file, and no unfinished entry in the cache. */
function assertClean() {
  assert.deepEqual(processes(cache), [])
  assert.deepEqual(readdirSync(temporary), [])
  const kept = [cache, folder('runtime')].flatMap((path) => readdirSync(path, { recursive: true }))
  assert.deepEqual(
    kept.filter((path) => /(^|\/)\./.test(path)),
    [],
  )
}

describe('on a machine where a guest boots', () => {
  afterEach(assertClean)

  test('runs the command itself', async () => {
    const words = ['two words', '', 'a\nb', '$HOME "\'']
    const show =
      'process.stdin.pipe(process.stdout); console.error(JSON.stringify([process.argv.slice(1), process.cwd(), process.env.NOTE, process.pid])); process.exitCode = 7'
    const child = start(YES, ['--', process.execPath, '-e', show, '--', ...words], { env: { NOTE: 'x\ny' }, cwd: work })
    const input = randomBytes(100_000)
    child.stdin.end(input)
    const { code, stdout, stderr } = await child.ended
    assert.equal(code, 7)
    assert.deepEqual(stdout, input)
    assert.deepEqual(JSON.parse(stderr), [words, work, 'x\ny', child.pid])
  })

  test('a deadline changes nothing, until it comes', async () => {
    assert.equal((await run(YES, ['--timeout', '100', 'sh', '-c', 'exit 7'])).code, 7)
    assert.equal((await run(YES, ['--timeout', '100', 'sh', '-c', 'kill -KILL $$'])).code, 137)
    assert.equal((await run(YES, ['--timeout', '100', '/does/not/exist'])).code, 127)
    const child = start(YES, ['--timeout', '100', 'bash', '-c', 'trap "exit 33" TERM; echo up; while :; do read -t 0.1; done'])
    await child.wrote('up')
    child.kill('SIGTERM')
    assert.equal((await child.ended).code, 33)
  })

  test('a deadline ends everything that the command has started', async () => {
    const mark = `mark-${process.pid}`
    const stubborn = `setsid bash -c 'trap "" TERM; while :; do sleep 0.1; done' ${mark} & trap "exit 0" TERM; echo up; wait`
    assert.equal((await run(YES, ['--timeout', '1', 'bash', '-c', stubborn])).code, 124)
    await until(() => processes(mark).length === 0)
  })

  test('the probe is told which guest, and asked once', async () => {
    const asked = join(work, 'asked')
    const counting = probe('probe-counting', `echo "$@" >>'${asked}'; [ "$2" = auto ] || exit 3`)
    const env = { XDG_CACHE_HOME: folder('empty') }
    for (let i = 0; i < 2; i += 1) assert.equal((await run(counting, ['true'], { env })).code, 0)
    for (let i = 0; i < 2; i += 1) assert.equal((await run(counting, ['--standard', 'true'], { env })).code, 125)
    assert.equal(readFileSync(asked, 'utf8'), '--guest auto\n--guest standard\n')
  })

  test('inside the emulated machine the command runs at once, without a question', async () => {
    const { code, stdout } = await run('/does/not/exist', ['echo', 'here'], { env: { HYPERLIGHT_MCP_EMULATED: '1' } })
    assert.deepEqual([code, `${stdout}`], [0, 'here\n'])
  })
})

describe('what is missing is named, with what to do', () => {
  afterEach(assertClean)

  const refuses = async (probePath, args, text, env) => {
    const { code, stdout, stderr } = await run(probePath, args, { env })
    assert.equal(code, 125)
    assert.equal(stdout.length, 0)
    assert.match(stderr, text)
  }

  test('the arguments', async () => {
    await refuses(YES, [], /COMMAND is missing/)
    await refuses(YES, ['--nonsense', 'true'], /unknown option --nonsense/)
    await refuses(YES, ['--timeout', '0', 'true'], /--timeout needs/)
    await refuses(YES, ['--results'], /--results needs/)
    await refuses(NO, ['true'], /HYPERLIGHT_MCP_EMULATOR_MEMORY is a number/, { HYPERLIGHT_MCP_EMULATOR_MEMORY: '2G' })
  })

  test('the probe', async () => {
    await refuses('/does/not/exist', ['true'], /npm run build/)
    await refuses(probe('probe-broken', 'exit 1'), ['true'], /exit code 1.*npm run build/)
  })

  test('the kernel', () => refuses(NO, ['true'], /scripts\/fetch-kernel/, { XDG_CACHE_HOME: folder('empty') }))

  test('the packages', async () => {
    const programs = folder('programs')
    const without = /^(qemu-.*|busybox|cpio)$/
    for (const name of readdirSync('/usr/bin')) if (!without.test(name)) symlinkSync(join('/usr/bin', name), join(programs, name))
    await refuses(NO, ['true'], /apt-get install .*qemu-system-x86 busybox-static cpio/, { PATH: programs })
  })
})

describe('on a machine where no guest boots', { skip: EMULATED }, () => {
  before(() => {
    // If a kernel exists, the script prints nothing and ends quickly. Otherwise it prints what it does, or what to do.
    const fetched = runSync(join(SCRIPTS, 'fetch-kernel'), [], { stdio: ['ignore', 'inherit', 'inherit'], limit: 600_000 })
    assert.equal(fetched.status, 0, 'scripts/fetch-kernel failed')
    const real = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'hyperlight-mcp', 'kernel')
    for (const release of readdirSync(real).filter((name) => existsSync(join(real, name, 'kernel')))) {
      const copy = folder(join('cache', 'hyperlight-mcp', 'kernel', release))
      for (const name of ['modules', 'modules-machine', 'modules-hypervisor']) {
        cpSync(join(real, release, name), join(copy, name), { recursive: true })
      }
      symlinkSync(join(real, release, 'kernel'), join(copy, 'kernel'))
    }
  })
  afterEach(assertClean)

  // Runs inside; reports on what it finds there, and leaves files.
  const REPORT = `
    import { createServer, connect } from 'node:net'
    import { once } from 'node:events'
    import { mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs'
    const input = readFileSync('/dev/stdin')
    const server = createServer((socket) => socket.end('looped')).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const [looped] = await once(connect(server.address().port, '127.0.0.1'), 'data')
    server.close()
    const mounts = readFileSync('/proc/mounts', 'utf8').split('\\n').map((line) => line.split(' '))
    openSync('/dev/kvm', 'r+')
    mkdirSync('results/deeper')
    writeFileSync('results/deeper/kept', input)
    writeFileSync('lost', 'lost')
    writeFileSync(process.env.TMPDIR + '/lost', 'lost')
    writeFileSync(1, input)
    writeFileSync('/dev/stderr', JSON.stringify({
      args: process.argv.slice(1), cwd: process.cwd(), environment: process.env, ids: [process.getuid(), process.getgid()],
      umask: process.umask(), looped: String(looped), shm: mounts.find((mount) => mount[1] === '/dev/shm')?.[2],
      pts: mounts.find((mount) => mount[1] === '/dev/pts')?.[2], ignored: /SigIgn:.*/.exec(readFileSync('/proc/self/status', 'utf8'))[0],
    }))
    process.exit(7)`

  async function carriesEverything() {
    const cwd = folder("it's, a folder")
    const input = Buffer.concat([Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)), randomBytes(1_000_000)])
    const words = ['two words', '', 'a\nb', '$HOME "\'\\', '--', 'a=b', 'ü']
    const env = { NOTE: 'x\ny ', 'not-a-name': "'", EMPTY: '' }
    const args = ['--results', 'results', '--', process.execPath, '--input-type=module', '-e', REPORT, '--', ...words]
    const { code, stdout, stderr } = await run(NO, args, { cwd, env, input })
    assert.equal(code, 7, stderr)
    assert.equal(digest(stdout), digest(input))
    const { environment: inside, ...found } = JSON.parse(stderr)
    assert.deepEqual(found, {
      args: words,
      cwd,
      ids: [process.getuid(), process.getgid()],
      umask: process.umask(),
      looped: 'looped',
      shm: 'tmpfs',
      pts: 'devpts',
      ignored: 'SigIgn:\t0000000001001000', // what Node itself ignores, and nothing more
    })
    const { _, SHLVL, OLDPWD, PWD, ...outside } = environment({ ...env, HYPERLIGHT_MCP_PROBE: NO, HYPERLIGHT_MCP_EMULATED: '1' })
    for (const [name, value] of Object.entries(outside)) assert.equal(inside[name], value, name)
    assert.deepEqual(readdirSync(cwd), ['results'])
    assert.equal(digest(readFileSync(join(cwd, 'results', 'deeper', 'kept'))), digest(input))
  }

  async function carriesMuch() {
    const file = join(work, 'much')
    const much = randomBytes(50_000_000)
    writeFileSync(file, much)
    const script = 'head -c 1000; cat "$0"; sleep 1000 & exit 0' // what it leaves running holds its output open
    const { code, stdout, stderr } = await run(NO, ['sh', '-c', script, file], { stdin: openSync(file, 'r') })
    rmSync(file)
    assert.deepEqual([code, stderr], [0, ''])
    assert.equal(digest(stdout), digest(Buffer.concat([much.subarray(0, 1000), much])))
  }

  test('streams, arguments, environment, user, exit code, results; much output; two at a time', BOOTED, async () => {
    await Promise.all([carriesEverything(), carriesMuch()])
  })

  test('signals reach the command; streams flow while it runs; a death by a signal is 128+n', BOOTED, async () => {
    const script =
      'trap "echo on INT" INT; trap "echo on HUP" HUP; echo up; for i in 1 2 3; do until read -r line; do :; done; echo "got $line"; done; exec sleep 1000'
    const child = start(NO, ['bash', '-c', script])
    await child.wrote('up\n')
    child.stdin.write('one\n')
    await child.wrote('got one\n')
    child.kill('SIGINT')
    await child.wrote('on INT\n')
    child.kill('SIGHUP')
    await child.wrote('on HUP\n')
    child.stdin.write('two\nthree\n')
    await child.wrote('got three\n')
    child.kill('SIGTERM')
    const { code, stdout, stderr } = await child.ended
    assert.deepEqual([code, `${stdout}`, stderr], [143, 'up\ngot one\non INT\non HUP\ngot two\ngot three\n', ''])
  })

  test('a deadline ends a command that refuses to end; a closed output is a broken pipe', BOOTED, async () => {
    const stubborn = run(NO, ['--timeout', '1', 'bash', '-c', 'trap "" TERM; while :; do sleep 0.1; done'])
    const child = start(NO, ['yes'])
    await child.wrote('y\n')
    child.stdout.destroy()
    assert.equal((await child.ended).code, 141)
    const { code, stdout, stderr } = await stubborn
    assert.deepEqual([code, `${stdout}`, stderr], [124, '', ''])
  })

  test('nothing outlives the script, however it ends', BOOTED, async () => {
    for (const [signal, code] of [
      ['SIGTERM', 143],
      ['SIGINT', 130],
      ['SIGKILL', null],
    ]) {
      const child = start(NO, ['sleep', '1000'])
      await until(() => processes(cache, 'virtserialport').length > 0)
      child.kill(signal)
      assert.equal((await child.ended).code, code)
      // After SIGKILL the kernel ends QEMU; the others wait for its end.
      if (signal === 'SIGKILL') await until(() => processes(cache).length === 0)
      assertClean()
    }
  })

  test('a machine that does not start says why', BOOTED, async () => {
    // Its first program is missing. A machine with too little memory sometimes waits for ever instead.
    for (const file of readdirSync(cache, { recursive: true }).filter((path) => basename(path).startsWith('initrd-')))
      writeFileSync(join(cache, file), '')
    const { code, stdout, stderr } = await run(NO, ['true'])
    assert.deepEqual([code, stdout.length], [125, 0], stderr)
    assert.match(stderr, /did not start.*console:\n.*Kernel panic/s)
  })
})
