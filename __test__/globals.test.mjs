// The guest's globals as an agent's author meets them: their types in an editor, and a run through the gateway.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { compiled, failure, ms, openGateway, root, wholeFile } from './support.mjs'

const gateway = await openGateway(wholeFile)

test('code that uses what the guest has compiles with ES2023 and globals.d.ts alone', async (t) => {
  const sandbox = await gateway.sandbox()
  const files = {
    'globals.d.ts': readFileSync(join(root, 'guest/globals.d.ts'), 'utf8'),
    'host.d.ts': await sandbox.declarations('host:mcp'),
    'guest.ts': readFileSync(join(root, '__test__/fixtures/guest.ts'), 'utf8'),
  }
  assert.equal(compiled(t, files, ['es2023']), '')
})

test('code that fetches compiles with ES2023, globals.d.ts and fetch.d.ts alone', (t) => {
  const read = (file) => readFileSync(join(root, file), 'utf8')
  const files = {
    'globals.d.ts': read('guest/globals.d.ts'),
    'fetch.d.ts': read('guest/fetch.d.ts'),
    'fetching.ts': read('__test__/fixtures/fetching.ts'),
  }
  assert.equal(compiled(t, files, ['es2023']), '')
})

test('sleep is of host:mcp, fair, and ended by the run', async () => {
  const sandbox = await gateway.sandbox()
  const { value, stats } = await sandbox.run(
    'import { sleep } from "host:mcp"; export const handler = async () => { const begun = performance.now(); await Promise.all([sleep(600), sleep(600)]); return performance.now() - begun }',
  )
  assert.ok(value >= 600 && value < 1200, `two sleeps of 600 ms took ${value} ms`)
  assert.ok(stats.durationMs >= 600)
  const forever = 'import { sleep } from "host:mcp"; console.log("sleeps"); export const handler = () => sleep(3600_000)'
  await failure(sandbox.run(forever, { timeoutMs: 300 }), 'ERR_RUN_TIMEOUT')
  const controller = new AbortController()
  const onEvent = ({ type }) => type === 'log' && controller.abort()
  const begun = performance.now()
  await failure(sandbox.run(forever, { signal: controller.signal, onEvent }), 'ERR_ABORTED')
  assert.ok(performance.now() - begun < ms(5000))
})

test('bytes that were made from base64 leave the sandbox as bytes', async () => {
  const sandbox = await gateway.sandbox()
  const { value } = await sandbox.run(
    'export const handler = () => [Uint8Array.fromBase64("AQL/"), new TextEncoder().encode("ß"), crypto.getRandomValues(new Uint8Array(4))]',
  )
  assert.deepEqual([...value[0]], [1, 2, 255])
  assert.deepEqual([...value[1]], [0xc3, 0x9f])
  assert.equal(value[2].length, 4)
})

test('the example of docs/GLOBALS.md runs', async () => {
  const [, code] = /```js\n([\s\S]*?)```/.exec(readFileSync(join(root, 'docs/GLOBALS.md'), 'utf8'))
  const { value } = await (await gateway.sandbox()).run(code, { input: { base: 'https://example.org' } })
  assert.equal(value.url, 'https://example.org/search?q=%C3%A4+%26+b')
  assert.equal(Buffer.from(value.base64, 'base64').toString(), value.url)
  assert.match(value.id, /^[\da-f]{8}-/)
  assert.equal(value.day, '1/1/1970')
})
