// Follows docs/MCP.md, the user's guide, from its beginning to its end. guide.mjs explains the comments of a guide.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, test } from 'node:test'
import { blocks, follow, LIMIT, looksLike } from './guide.mjs'
import { folder, root, run, runSync } from './support.mjs'

const guide = 'docs/MCP.md'
/**
 * Does what npx does with a program that is installed in the working folder, and says in the environment what npx says there. npx itself takes 0.4 s of
 * processor time for each of the guide's forty commands. The tests of the package follow docs/SERVE.md with npx itself.
 */
const NPX = `#!/bin/sh
program="$PWD/node_modules/.bin/$1"
shift
export npm_command=exec npm_lifecycle_event=npx
exec "$program" "$@"
`
/** Makes a reader's machine: a home with an empty folder in it, where the packages have been installed. */
function place(t) {
  const home = folder(t)
  const work = join(home, 'first')
  const modules = join(work, 'node_modules')
  mkdirSync(work)
  // The packages of this repository stand for those that the reader installs. A box follows no link to another folder, so they are copied, as hard
  // links where both folders are on one disk.
  const copied = ['-alT', '-aT'].some((how) => runSync('cp', [how, join(root, 'node_modules'), modules]).status === 0)
  assert.ok(copied, 'node_modules cannot be copied')
  symlinkSync(root, join(modules, 'hyperlight-mcp'))
  symlinkSync('../hyperlight-mcp/bin/hyperlight-mcp.mjs', join(modules, '.bin/hyperlight-mcp'))
  const programs = folder(t)
  writeFileSync(join(programs, 'npx'), NPX, { mode: 0o755 })
  // The environment of this process is not used, so there are no tokens and no terminal colours.
  const env = { PATH: `${programs}:${process.env.PATH}`, HOME: home }
  return { home, work, env }
}

describe(guide, { timeout: 4 * LIMIT }, () => {
  const text = readFileSync(join(root, guide), 'utf8')
  const all = blocks(text, guide)

  it('what it shows is what happens, from an empty folder on', async (t) => {
    const at = place(t)
    await follow(t, at, guide, all)

    await t.test('its scripts hold as TypeScript, with the types that it tells to write', async () => {
      const scripts = readdirSync(at.work)
      assert.deepEqual(await tsc(t, at, ['-p', '.']), '')
      // Code for Node gets Node's types in place of the guest's.
      const options = '--noEmit --checkJs --allowJs --strict --target es2023 --module nodenext --types node --skipLibCheck'.split(' ')
      const forNode = scripts.filter((name) => name.endsWith('.mjs'))
      assert.notEqual(forNode.length, 0)
      assert.deepEqual(await tsc(t, at, ['--ignoreConfig', ...options, ...forNode]), '')
    })
  })

  it('a first useful run is two minutes of reading away', () => {
    const [, section] = /\n## From an empty folder[^\n]*\n([\s\S]*?)\n## /.exec(text)
    const read = section.replace(/<!--.*-->/g, '').match(/[\p{L}\p{N}_]+/gu)
    // People read about 200 words of technical text in a minute.
    assert.ok(read.length <= 400, `${read.length} words`)
  })

  it('its links lead somewhere', () => {
    for (const [, target] of text.matchAll(/\]\((?!https?:)([^)#]+)/g)) assert.ok(existsSync(join(root, 'docs', target)), target)
    const anchors = new Set([...text.matchAll(/^#+ (.+)$/gm)].map(([, title]) => title.toLowerCase().replaceAll(' ', '-')))
    for (const [, anchor] of text.matchAll(/\]\(#([^)]+)\)/g)) assert.ok(anchors.has(anchor), anchor)
  })
})

async function tsc(t, { work, env }, words) {
  const { code, stdout, stderr } = await run(t, 'npx', ['tsc', ...words], { cwd: work, env, limit: LIMIT })
  return code === 0 ? '' : `${stdout}${stderr}npx tsc ended with ${code}`
}

test('no block of a guide escapes', () => {
  const block = (...lines) => lines.join('\n')
  assert.throws(() => blocks(block('```js', 'f()', '```')), /neither run nor written/)
  assert.throws(() => blocks(block('```sh', '$ ls', '```')), /neither run nor written/)
  assert.throws(() => blocks(block('  ```console', '  $ ls', '  ```')), /begins with three backticks/)
  assert.throws(() => blocks(block('~~~', 'f()', '~~~')), /begins with three backticks/)
  assert.throws(() => blocks(block('<!-- file: a.js -->', '', '```js', '```')), /followed by no block/)
  assert.throws(() => blocks(block('```console', '$ ls')), /does not end/)
  assert.equal(blocks(block('<!-- file: a.js -->', '```js', 'f()', '```'))[0].file, 'a.js')
  assert.ok(looksLike('a\nb\nc 12 ms\n', ['a', '…', 'c … ms']))
  assert.ok(!looksLike('a\nb\n', ['a']) && !looksLike('', ['a']) && !looksLike('ab\n', ['a.']))
})
