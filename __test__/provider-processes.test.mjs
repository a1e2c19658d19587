// Tests of the process in which the code of a provider package runs: the code can hang, crash or take memory and threads, and hurts neither the
// agent nor another package.
import assert from 'node:assert/strict'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { CODE, install } from './fixtures/provider-packages.mjs'
import { start } from './processes.mjs'
import { approve, open, providerOf, serverOf, statesOf } from './providers.mjs'
import { fixture, folder, isAlive, ms, root, run as runProgram, waitFor } from './support.mjs'

describe('The code of a package', () => {
  test('that throws, hangs, ends, answers nonsense or grows its answer fails, and hurts no other', async (t) => {
    const path = folder(t)
    install(path, 'neighbour', '', { file: 'index.cjs', manifest: { main: './index.cjs' } })
    const bad = Object.keys(CODE).filter((name) => !['good', 'common'].includes(name))
    for (const [name, code] of Object.entries(CODE))
      install(path, name, code, { file: ['common', 'starting'].includes(name) ? 'provider.cjs' : 'provider.mjs' })
    const { gateway, events } = await open(t, path, { mcpServers: { own: fixture() }, providers: Object.keys(CODE) })
    for (const name of Object.keys(CODE)) await approve(gateway, name)
    const expected = Object.fromEntries(Object.keys(CODE).map((name) => [name, bad.includes(name) ? 'failed' : 'ready']))
    assert.deepEqual(statesOf(gateway), expected)
    const problem = (name) => providerOf(gateway, name).problem
    assert.match(problem('throwing'), /no servers today/)
    assert.match(problem('rejecting'), /no servers today/)
    assert.match(problem('silent'), /exports no function servers/)
    assert.match(problem('hanging'), /did not answer within 2 s/)
    assert.match(problem('waiting'), /did not answer within 2 s/)
    assert.match(problem('ending'), /ended before it answered: it exited with code 0/)
    assert.match(problem('nonsense'), /not a list of definitions/)
    assert.match(problem('huge'), /more than 262144 bytes/)
    // On a busy machine, the time limit may be reached first. The next test checks the memory limit.
    for (const name of ['buffering', 'growing'])
      assert.match(problem(name), /the memory is used up|allocation failed|did not answer within 2 s/, name)
    assert.match(problem('killing'), /ended before it answered: it was ended by signal 9/)
    assert.match(problem('aborting'), /ended before it answered: Node has aborted it/)
    for (const name of ['posting', 'flooding']) assert.match(problem(name), /sent something other than an answer/, name)
    // Nothing that the code writes to its other streams is read.
    assert.match(problem('writing'), /did not answer within 2 s/)
    for (const name of ['outside', 'requiring']) assert.match(problem(name), /which is not in its package/)
    for (const name of bad) {
      const told = events.some(({ type, message }) => type === 'warning' && message.includes(`"${name}" has no servers (failed)`))
      assert.ok(told, `${name} was not told`)
    }
    assert.deepEqual(
      gateway.servers().map(({ name }) => name),
      ['own', 'common--files', 'good--files', 'good--mail'],
    )
    await gateway.approve('own')
    assert.equal(serverOf(gateway, 'own').approved, true)
  })

  test('that fills buffers is ended before it has the memory of the machine, and the memory of this process does not grow', async (t) => {
    const path = folder(t)
    const fillers = Array.from({ length: 15 }, (_, place) => `buffering-${place}`)
    for (const name of fillers) install(path, name, CODE.buffering)
    install(path, 'overflowing', CODE.overflowing)
    const { gateway } = await open(t, path, { providers: [...fillers, 'overflowing'] })
    const mebibytes = () => process.resourceUsage().maxRSS / 1024
    const before = mebibytes()
    assert.match((await approve(gateway, 'overflowing')).problem, /^no servers today\.+/)
    // On a busy machine, the 2 s of a provider can be over before it has used that much memory.
    const problems = []
    for (const name of fillers) {
      problems.push((await approve(gateway, name)).problem)
      if (!/did not answer within 2 s/.test(problems.at(-1))) break
    }
    assert.match(problems.at(-1), /^(Array buffer allocation failed|its process ended .*the memory is used up)/, problems.join('\n'))
    assert.ok(mebibytes() - before < 200, `${mebibytes() - before} MiB more`)
  })

  test('that waits in a system call fails after its time, and leaves no process', async (t) => {
    const path = folder(t)
    const pipe = join(path, 'pipe')
    const own = join(path, 'pid')
    assert.equal((await runProgram(t, 'mkfifo', [pipe])).code, 0)
    const code = `import { readFileSync, writeFileSync } from 'node:fs'
      export const servers = () => { writeFileSync(${JSON.stringify(own)}, String(process.pid)); readFileSync(${JSON.stringify(pipe)}); return [] }`
    install(path, 'blocking', code)
    const { gateway } = await open(t, path, { providers: ['blocking'] })
    const { problem } = await approve(gateway, 'blocking')
    assert.match(problem, /did not answer within 2 s/)
    const pid = Number(readFileSync(own, 'utf8'))
    assert.ok(pid !== process.pid)
    assert.equal(isAlive(pid), false)
  })

  test('that takes all threads of its pool takes none of this process', async (t) => {
    const path = folder(t)
    const pipe = join(path, 'pipe')
    assert.equal((await runProgram(t, 'mkfifo', [pipe])).code, 0)
    const code = `import { readFile } from 'node:fs/promises'
      export const servers = () => Promise.all(Array.from({ length: 64 }, () => readFile(${JSON.stringify(pipe)})))`
    install(path, 'blocking', code)
    install(path, 'acme-mcp', CODE.good)
    const { gateway } = await open(t, path, { providers: ['blocking', 'acme-mcp'] })
    assert.match((await approve(gateway, 'blocking')).problem, /did not answer within 2 s/)
    assert.equal((await approve(gateway, 'acme-mcp')).state, 'ready')
    assert.ok((await readFile(join(path, 'config.json'), 'utf8')).length > 0, 'this process reads files as before')
  })

  test('sees nothing of the environment and the arguments of this process', async (t) => {
    const path = folder(t)
    const seen = '[Object.keys(process.env), process.argv.length, process.execArgv, process.stdout.isTTY]'
    install(path, 'curious', `export const servers = () => { throw new Error(JSON.stringify(${seen})) }`)
    const { gateway } = await open(t, path, { providers: ['curious'] })
    const { problem } = await approve(gateway, 'curious')
    assert.deepEqual(JSON.parse(problem), [[], 1, [], null])
  })

  test('cannot start a thread or a program, which could go on after its own process', async (t) => {
    const path = folder(t)
    install(path, 'starting', CODE.starting, { file: 'provider.cjs' })
    install(path, 'importing', CODE.importing)
    const { gateway } = await open(t, path, { providers: ['starting', 'importing'] })
    for (const name of ['starting', 'importing']) {
      const { problem } = await approve(gateway, name)
      assert.match(problem, /^started: nothing; refused: \d+$/, name)
    }
  })
})

test('a provider that hangs does not keep a process alive that has closed its gateway', async (t) => {
  const path = folder(t)
  install(path, 'waiting', CODE.waiting)
  const { gateway } = await open(t, path, { providers: ['waiting'] })
  await approve(gateway, 'waiting')
  const script = `
    import { Gateway } from ${JSON.stringify(join(root, 'index.mjs'))}
    const gateway = await Gateway.open(${JSON.stringify({ configPath: join(path, 'config.json'), stateDir: join(path, 'state'), workspaceFolder: path })})
    console.log(gateway.providers()[0].state)
    await gateway.close()`
  const ended = await runProgram(t, process.execPath, ['--input-type=module', '-e', script], { limit: ms(20_000) })
  assert.deepEqual([ended.code, ended.stdout.trim()], [0, 'failed'], ended.stderr)
})

test('a package takes its process with it when the agent is killed', async (t) => {
  const path = folder(t)
  const own = join(path, 'pid')
  const code = `import { writeFileSync } from 'node:fs'
    export const servers = () => { writeFileSync(${JSON.stringify(own)}, String(process.pid)); return new Promise(() => setInterval(() => {}, 1000)) }`
  install(path, 'waiting', code)
  const { gateway } = await open(t, path, { providers: ['waiting'] })
  await approve(gateway, 'waiting')
  rmSync(own)
  const script = `
    import { Gateway } from ${JSON.stringify(join(root, 'index.mjs'))}
    await Gateway.open(${JSON.stringify({ configPath: join(path, 'config.json'), stateDir: join(path, 'state'), workspaceFolder: path })})`
  const child = start(t, process.execPath, ['--input-type=module', '-e', script])
  await waitFor('the code to run', () => existsSync(own) && readFileSync(own, 'utf8') !== '')
  const pid = Number(readFileSync(own, 'utf8'))
  child.kill('SIGKILL')
  await waitFor('its process to end', () => !isAlive(pid))
})
