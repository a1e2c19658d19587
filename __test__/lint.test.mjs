// Tests scripts/lib/lint-only, which stands for the compiler when scripts/lint checks the crates of this repository.
import assert from 'node:assert/strict'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { folder, ms, root, run } from './support.mjs'

const TIMEOUT = { timeout: ms(60_000) }

/** Compiles a crate of this text as cargo would do it, and returns the outcome and the folder. */
async function lint(t, text, name = 'sample') {
  const at = folder(t)
  writeFileSync(join(at, 'lib.rs'), text)
  const options = ['--crate-name', name, '--edition=2024', 'lib.rs', '--crate-type', 'lib', '--emit=dep-info,metadata,link']
  const args = ['rustc', ...options, '--warn=clippy::all', '-C', 'extra-filename=-1a', '--out-dir', at]
  return { at, ...(await run(t, join(root, 'scripts/lib/lint-only'), args, { cwd: at })) }
}

test('a crate with a lint fails, and leaves no file that cargo could take for a result', TIMEOUT, async (t) => {
  const { at, code, stderr } = await lint(t, 'pub fn one() -> u32 {\n    return 1;\n}\n')
  assert.equal(code, 1)
  assert.match(stderr, /unneeded `return` statement/)
  assert.ok(!existsSync(join(at, 'libsample-1a.rlib')))
})

test('a crate without a lint passes, with the files for which cargo looks', TIMEOUT, async (t) => {
  const { at, code, stderr } = await lint(t, 'pub fn one() -> u32 {\n    1\n}\n')
  assert.equal(code, 0, stderr)
  for (const name of ['libsample-1a.rmeta', 'libsample-1a.rlib', 'sample-1a.d']) assert.ok(existsSync(join(at, name)), name)
})

test('a build script is compiled, because cargo runs it', TIMEOUT, async (t) => {
  const { at, code, stderr } = await lint(t, 'pub fn one() -> u32 {\n    return 1;\n}\n', 'build_script_build')
  assert.equal(code, 0, stderr)
  assert.ok(existsSync(join(at, 'libbuild_script_build-1a.rlib')))
})
