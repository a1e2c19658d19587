// Tests scripts/setup --check on a machine where no package is installed: the steps for the demo, and the steps for the tests.
import assert from 'node:assert/strict'
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { folder, ms, root, run } from './support.mjs'

const TIMEOUT = { timeout: ms(60_000) }

function program(at, name, body) {
  const path = join(at, name)
  writeFileSync(path, `#!/bin/sh\n${body}\n`)
  chmodSync(path, 0o755)
  return path
}

/** Returns everything that setup would do if a guest boots here, or if none does. */
async function missing(t, { boots }, ...options) {
  const at = folder(t)
  program(at, 'dpkg-query', 'exit 1')
  const env = { ...process.env, PATH: `${at}:${process.env.PATH}`, XDG_CACHE_HOME: join(at, 'cache') }
  env.HYPERLIGHT_MCP_PROBE = program(at, 'probe', `exit ${boots ? 0 : 3}`)
  const { code, stderr } = await run(t, join(root, 'scripts/setup'), ['--check', ...options], { env })
  assert.equal(code, 1, stderr)
  assert.match(stderr, /packages are missing: clang-19 .*libc6-dev/)
  return stderr
}

const ONLY_FOR_TESTS = [/valgrind/, /mcp-server-git/, /Node 22/, /published servers/, /version 1 of the Python SDK/]

test('the demo takes no emulated machine where a guest boots, and nothing that only tests need', TIMEOUT, async (t) => {
  const said = await missing(t, { boots: true }, '--for-demo')
  for (const words of [...ONLY_FOR_TESTS, /qemu/]) assert.doesNotMatch(said, words)
})

test('the demo takes the emulated machine where no guest boots', TIMEOUT, async (t) => {
  const said = await missing(t, { boots: false }, '--for-demo')
  assert.match(said, /packages are missing: qemu-system-x86 busybox-static cpio kmod/)
  for (const words of ONLY_FOR_TESTS) assert.doesNotMatch(said, words)
})

test('the tests take all of it', TIMEOUT, async (t) => {
  const said = await missing(t, { boots: true })
  for (const words of [...ONLY_FOR_TESTS, /qemu/]) assert.match(said, words)
})

test('an option that setup does not know is refused', TIMEOUT, async (t) => {
  const { code, stderr } = await run(t, join(root, 'scripts/setup'), ['--for-tests'])
  assert.equal(code, 2)
  assert.match(stderr, /usage: scripts\/setup \[--for-demo\] \[--check\]/)
})
