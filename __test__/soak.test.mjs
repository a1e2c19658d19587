// Runs the short form of `npm run soak` in a separate process, because it counts what the process holds.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { emulated, ms, root, run } from './support.mjs'

const LIMIT = { timeout: ms(60_000) }

test(
  'while servers are killed every second, each call ends in its result or a named error, at most once, and nothing grows',
  LIMIT,
  async (t) => {
    // In the emulated machine, eight guests at once are slow. A server that is killed each second may never reach its first call.
    const args = ['--calls', emulated ? '100' : '300', '--seconds', '10', '--kill-every', String(ms(1000)), '--json']
    const { stdout, stderr } = await run(t, process.execPath, ['--expose-gc', 'scripts/lib/soak.mjs', ...args], { cwd: root })
    assert.notEqual(stdout, '', stderr)
    const { problems, ...figures } = JSON.parse(stdout)
    t.diagnostic(JSON.stringify(figures))
    assert.deepEqual(problems, [], JSON.stringify(figures))
    assert.ok(figures.kills > 0 && figures.succeeded > figures.calls / 2, JSON.stringify(figures))
  },
)
