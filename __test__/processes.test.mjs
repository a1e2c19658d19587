// Tests of what processes.mjs promises: no test can block the run, and no test starts a program in another way.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { ms, outputOf, run, runSync, start, typed } from './processes.mjs'

const here = fileURLToPath(new URL('.', import.meta.url))
const SHORT = { limit: ms(1000) }
/** Returns a test's context that the test itself can end. */
function ending() {
  const hooks = []
  return { after: (hook) => hooks.push(hook), end: () => Promise.all(hooks.map((hook) => hook())) }
}
const exists = (pid) => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

describe('a program that a test starts', { timeout: ms(60_000) }, () => {
  test('is gone after the test, whatever it does about signals', async () => {
    const context = ending()
    const child = start(context, 'sh', ['-c', 'trap "" TERM INT HUP; echo up; while :; do sleep 1; done'])
    await new Promise((resolve) => child.stdout.once('data', resolve))
    await context.end()
    assert.equal(child.signalCode, 'SIGKILL')
    assert.equal(exists(child.pid), false)
  })

  test('that does not end within its limit fails its test, with what it wrote', async (t) => {
    await assert.rejects(
      run(t, 'sh', ['-c', 'echo so far; exec sleep 1000'], SHORT),
      /sleep 1000 did not end within \d+ ms; it wrote:\nso far/,
    )
    assert.throws(() => runSync('sh', ['-c', 'echo so far; exec sleep 1000'], SHORT), /did not end within \d+ ms; it wrote:\nso far/)
  })

  test('ends where a process that it left behind still holds its output', async (t) => {
    const { code, stdout } = await run(t, 'sh', ['-c', 'setsid sleep 1000 & echo $!'])
    assert.equal(code, 0)
    process.kill(Number(stdout), 'SIGKILL')
  })

  test('that cannot be started fails its test', async (t) => {
    await assert.rejects(run(t, '/does/not/exist', []), /ENOENT/)
    assert.throws(() => outputOf('/does/not/exist', []), /ENOENT/)
    assert.throws(() => outputOf('sh', ['-c', 'echo why; exit 3']), { status: 3, stdout: 'why\n' })
  })
})

describe('a dialogue at a terminal', { timeout: ms(60_000) }, () => {
  const env = { PATH: process.env.PATH }

  test('is typed as it is asked for', async (t) => {
    const command = `bash -c 'read -p "name? " name; echo "hello $name"'`
    const { code, text, unanswered } = await typed(t, command, [['name? ', 'Ada\n']], { env })
    assert.deepEqual([code, unanswered], [0, 0])
    assert.match(text, /hello Ada/)
  })

  test('fails after its limit, with the text so far and what was waited for', async (t) => {
    const attempt = typed(t, 'echo another question; exec sleep 1000', [['name? ', 'Ada\n']], { env, ...SHORT })
    await assert.rejects(attempt, /did not end within[\s\S]*another question[\s\S]*waited for: "name\? "/)
  })

  test('has no input after its last answer', async (t) => {
    const command = `bash -c 'read -p "name? " name; read -p "and? " more || echo "no more"'`
    const { text } = await typed(t, command, [['name? ', 'Ada\n']], { env })
    assert.match(text, /no more/)
  })
})

test('no other file of the tests starts a program', () => {
  const names = readdirSync(here, { recursive: true }).filter((name) => /\.[cm]?js$/.test(name) && !name.includes('node_modules'))
  const starting = names.filter((name) => /['"](?:node:)?child_process['"]/.test(readFileSync(join(here, name), 'utf8')))
  // A server whose programs end with its box.
  const ended = 'fixtures/reaching.mjs'
  const others = starting.filter((name) => name !== ended)
  assert.deepEqual(others, ['processes.mjs'], 'use __test__/processes.mjs: a program without a limit can hold up the whole run')
})
