// Tests of `scripts/test --seeds`: it repeats each property test of the sources, and fails without a number.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { ms, run } from './processes.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const options = { cwd: root, limit: ms(30_000) }

/** The number of property tests in a text. */
function propertyTests(text) {
  const blocks = text.matchAll(/^( *)\S*proptest! \{\n([\s\S]*?)^\1\}/gm)
  return [...blocks].reduce((count, [, , block]) => count + block.match(/#\[test\]/g).length, 0)
}

test('each property test of the sources is found, with its file', async (t) => {
  const { stdout } = await run(t, 'bash', ['-c', '. scripts/lib/seeds.sh; property_tests'], options)
  const found = new Map()
  for (const line of stdout.trim().split('\n')) {
    const [file, name] = line.split(' ')
    assert.match(readFileSync(join(root, file), 'utf8'), new RegExp(`fn ${name}\\(`))
    found.set(file, (found.get(file) ?? 0) + 1)
  }
  for (const folder of ['src', 'tests']) {
    for (const path of readdirSync(join(root, folder), { recursive: true })) {
      if (!path.endsWith('.rs')) continue
      const file = join(folder, path)
      assert.equal(found.get(file) ?? 0, propertyTests(readFileSync(join(root, file), 'utf8')), file)
    }
  }
  assert.ok(found.size > 40, `${found.size}`)
})

test('the targets of cargo that hold property tests are named once each', async (t) => {
  const files = ['src/a.rs', 'src/b/c.rs', 'tests/search.rs', 'tests/servers/a.rs', 'tests/servers/b.rs']
  const script = ['-c', '. scripts/lib/seeds.sh; printf "%s\\n" "$@" | targets_of', 'targets', ...files]
  const { stdout } = await run(t, 'bash', script, options)
  assert.equal(stdout, '--lib\n--test=search\n--test=servers\n')
})

test('--seeds needs to know how often', async (t) => {
  for (const count of [[], ['0'], ['many']]) {
    const { code, stderr } = await run(t, 'scripts/test', ['--seeds', ...count], options)
    assert.deepEqual([code, stderr], [2, 'test: --seeds needs a whole number from 1\n'])
  }
})
