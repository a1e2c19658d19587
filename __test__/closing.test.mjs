// Tests of close() when the process lacks a resource or runs for a long time: close() settles, and nothing is left behind.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { listenTo, run } from './processes.mjs'
import { failure, fixture, fixtureProgram, folder, ms, openApproved, root, waitFor } from './support.mjs'

/** Runs a script of the tests, and returns the JSON that it prints. The script must end by itself, with nothing on stderr. */
async function said(t, name, argument, command = 'exec "$@"') {
  const script = join(root, '__test__/fixtures', name)
  const { code, stdout, stderr } = await run(t, 'bash', ['-c', command, '-', process.execPath, script, folder(t), argument])
  assert.deepEqual({ code, stderr }, { code: 0, stderr: '' })
  return JSON.parse(stdout)
}

describe('close()', () => {
  test('settles where no file descriptor is free, and so does what is asked for later', { timeout: ms(30_000) }, async (t) => {
    const outcomes = await said(t, 'no-descriptors.mjs', 'none', 'ulimit -n 128; exec "$@"')
    assert.deepEqual(outcomes, {
      held: 'EMFILE',
      during: 'ERR_CLOSED',
      closed: [null, null],
      closedAgain: null,
      later: 'ERR_CLOSED',
      children: 0,
    })
  })

  for (const what of ['calls', 'runs'])
    test(`leaves no thread and no descriptor, however many gateways with ${what} are closed`, { timeout: ms(60_000) }, async (t) => {
      const { before, after } = await said(t, 'many-gateways.mjs', what)
      assert.deepEqual(after, before)
    })

  test('leaves no thread and no descriptor, however many gateways with a server over HTTP are closed', {
    timeout: ms(120_000),
  }, async (t) => {
    const server = listenTo(t, fixtureProgram, ['--http'], { limit: ms(120_000) })
    await waitFor('its address', () => server.output.stdout.includes('\n'))
    const { before, after } = await said(t, 'many-gateways.mjs', JSON.parse(server.output.stdout).url)
    assert.deepEqual(after, before)
  })

  test('rejects a call with ERR_CLOSED whose server is asking, and a run that is started meanwhile', { timeout: ms(30_000) }, async (t) => {
    let asked = 0
    const onElicit = () => {
      asked++
      return new Promise(() => {})
    }
    const gateway = await openApproved(t, { fixture: fixture() }, { onElicit })
    const sandbox = await gateway.sandbox()
    const call = failure(gateway.callTool('fixture', 'elicit', {}), 'ERR_CLOSED')
    await waitFor('the question', () => asked > 0)
    const late = failure(sandbox.run('import { elicit } from "host:mcp-fixture"; export const handler = () => elicit({})'), 'ERR_CLOSED')
    await gateway.close()
    await Promise.all([call, late])
  })
})

describe('a worker that ends between two outcomes', () => {
  for (const what of ['calls', 'sandboxes', 'gateways'])
    test(`leaves no thread and no process: ${what}`, { timeout: ms(60_000) }, async (t) => {
      const { before, after, children } = await said(t, 'worker-ends.mjs', what)
      assert.deepEqual({ after, children }, { after: before, children: 0 })
    })
})

describe('fake timers', () => {
  for (const what of ['setImmediate', 'throwing', 'unref', 'clearing'])
    test(`that are in place when the addon is loaded hold up no promise: ${what}`, { timeout: ms(30_000) }, async (t) => {
      assert.deepEqual(await said(t, 'fake-timers.mjs', what), { looks: 600, closed: true })
    })
})
