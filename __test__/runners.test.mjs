// Servers that `npx` and `uvx` fetch when they start, with only the steps of the README: import, approve, run. Nothing is installed for
// them. Their registries are on loopback and serve what scripts/setup has installed for other tests.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, realpathSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { uvx } from '../scripts/lib/tools.mjs'
import { atTerminal, place, run, write } from './command-line.mjs'
import { npmRegistry, pythonIndex } from './registries.mjs'
import { folder, ms, outputOf } from './support.mjs'

/** Time for a runner to fetch a hundred packages while both processors are busy. */
const TO_START = ms(120_000)

test('servers from npm by npx and one from PyPI by uvx read and write: import, approve, run', { timeout: 5 * TO_START }, async (t) => {
  const at = place(t)
  const env = {
    npm_config_registry: await npmRegistry(t),
    UV_DEFAULT_INDEX: await pythonIndex(t, folder(t)),
    PATH: `${dirname(uvx())}:${process.env.PATH}`,
  }
  const files = realpathSync(folder(t))
  outputOf('git', ['-C', files, 'init', '--quiet'])
  // The commands of the servers' own pages on npm and PyPI.
  const mcpServers = {
    everything: { command: 'npx', args: ['-y', '@modelcontextprotocol/server-everything'] },
    filesystem: { command: 'npx', args: ['-y', '@modelcontextprotocol/server-filesystem', files] },
    git: { command: 'uvx', args: ['mcp-server-git', '--repository', files] },
  }
  mkdirSync(join(at.work, '.cursor'))
  write(at, '.cursor/mcp.json', JSON.stringify({ mcpServers }))
  const imported = await run(at, ['import', 'cursor', '--write'], { env })
  assert.equal(imported.code, 0, imported.stderr)

  const yes = ['Approve? [y/N]', 'y\n']
  for (const name of Object.keys(mcpServers)) {
    const { code, text, unanswered } = await atTerminal(at, ['approve', name], [yes, yes], { env, limit: TO_START })
    assert.deepEqual([code, unanswered], [0, 0], text)
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are not part of the words
    assert.match(text.replace(/\u001b\[[0-9;]*m/g, '').replace(/\s+/g, ' '), /until it has started, to fetch its package/)
  }
  write(
    at,
    'script.js',
    `import { echo, toggle_simulated_logging } from 'host:mcp-everything'
     import { read_text_file, write_file } from 'host:mcp-filesystem'
     import { git_add, git_status } from 'host:mcp-git'
     export const handler = ({ files }) => {
       const toggled = toggle_simulated_logging({})
       write_file({ path: files + '/a.txt', content: 'kept' })
       git_add({ repo_path: files, files: ['a.txt'] })
       const { content } = read_text_file({ path: files + '/a.txt' })
       return { said: echo({ message: 'hello' }), toggled, content, status: git_status({ repo_path: files }) }
     }`,
  )
  const words = ['run', 'script.js', '--input', JSON.stringify({ files }), '--tool-errors', 'throw']
  const refused = await run(at, words, { env, limit: TO_START })
  assert.match(refused.stderr, /everything\.toggle-simulated-logging was not called: .* --allow-writes/)
  assert.equal(existsSync(join(files, 'a.txt')), false)
  const ran = await run(at, [...words, '--allow-writes', Object.keys(mcpServers).join()], { env, limit: TO_START })
  assert.equal(ran.code, 0, ran.stderr)
  const { said, toggled, content, status } = JSON.parse(ran.stdout)
  assert.deepEqual([said, content], ['Echo: hello', 'kept'])
  assert.match(toggled, /^Started simulated/)
  assert.match(status, /new file: +a\.txt/)
  assert.equal(readFileSync(join(files, 'a.txt'), 'utf8'), 'kept')
  assert.equal(outputOf('git', ['-C', files, 'diff', '--cached', '--name-only']), 'a.txt\n')
})
