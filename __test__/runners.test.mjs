// Servers that `npx` and `uvx` fetch when they start, by the steps of the README alone: import, approve, run. Nothing is installed for them. Their
// registries are on loopback and serve what scripts/setup has installed for other tests.
import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { uvx } from '../scripts/lib/tools.mjs'
import { atTerminal, place, run, write } from './command-line.mjs'
import { npmRegistry, pythonIndex } from './registries.mjs'
import { folder, ms } from './support.mjs'

/** Time for a runner to fetch a hundred packages while both processors are busy. */
const TO_START = ms(120_000)

test('a server from npm by npx and one from PyPI by uvx: import, approve, run', { timeout: 4 * TO_START }, async (t) => {
  const at = place(t)
  const env = {
    npm_config_registry: await npmRegistry(t),
    UV_DEFAULT_INDEX: await pythonIndex(t, folder(t)),
    PATH: `${dirname(uvx())}:${process.env.PATH}`,
  }
  // As their own pages on npm and PyPI say.
  const everything = { command: 'npx', args: ['-y', '@modelcontextprotocol/server-everything'] }
  const time = { command: 'uvx', args: ['mcp-server-time', '--local-timezone', 'UTC'] }
  mkdirSync(join(at.work, '.cursor'))
  write(at, '.cursor/mcp.json', JSON.stringify({ mcpServers: { everything, time } }))
  const imported = await run(at, ['import', 'cursor', '--write'], { env })
  assert.equal(imported.code, 0, imported.stderr)

  const yes = ['Approve? [y/N]', 'y\n']
  for (const name of ['everything', 'time']) {
    const { code, text, unanswered } = await atTerminal(at, ['approve', name], [yes, yes], { env, limit: TO_START })
    assert.deepEqual([code, unanswered], [0, 0], text)
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are no part of the words
    assert.match(text.replace(/\u001b\[[0-9;]*m/g, '').replace(/\s+/g, ' '), /until it has started, to fetch its package/)
  }
  write(
    at,
    'script.js',
    `import { echo } from 'host:mcp-everything'
     import { get_current_time } from 'host:mcp-time'
     export const handler = () => [echo({ message: 'hello' }), get_current_time({ timezone: 'Europe/Oslo' })]`,
  )
  const ran = await run(at, ['run', 'script.js'], { env, limit: TO_START })
  assert.equal(ran.code, 0, ran.stderr)
  const [said, now] = JSON.parse(ran.stdout)
  assert.equal(said, 'Echo: hello')
  assert.match(JSON.stringify(now), /Europe\/Oslo/)
})
