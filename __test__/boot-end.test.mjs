// The end of the command `boot` by a signal, with calls in progress.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { digestIn, number, serving, withKey } from './boot-command.mjs'
import { code, model, plan, planned, provider, service } from './booting.mjs'
import { environment, LIMIT, place, program, run } from './command-line.mjs'
import { overHttp } from './serving.mjs'
import { afterwards, endOf, listenTo, waitFor } from './support.mjs'

const RATES = '/rates/latest'

/** Makes a tool that asks a service and one that computes, and returns the arguments that start them again. */
async function made(t, at, ...more) {
  const local = await service(t)
  const answers = {
    plans: [plan(planned('get_rates', { url: local.url(RATES) }), planned('add', { properties: { a: number, b: number } }))],
    handlers: {
      get_rates: [code(`const response = await fetch('${local.url(RATES)}')\nreturn await response.json()`)],
      add: [code('return { sum: args.a + args.b }')],
    },
  }
  const { baseUrl } = await provider(t, 'openai', model(answers))
  const line = ['boot', '--prompt', `Rates, as in ${local.url('/page.html')}`, '--allow-host', local.host, ...more]
  const first = await run(at, [...line, '--provider', 'openai', '--base-url', baseUrl], withKey('openai'))
  const waiting = () => local.requests.filter(({ url }) => url === RATES).length
  return { words: [...line, '--locked', '--digest', digestIn(first)], waiting, local }
}

/** Starts the command as a host does over standard input and output, and begins a session. `child.send` writes a message. */
function host(t, at, words) {
  const child = listenTo(t, process.execPath, [program, ...words], { cwd: at.work, env: environment(at), limit: LIMIT })
  child.stdin.on('error', () => {})
  child.send = (message) => child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'host', version: '1' } }
  child.send({ id: 1, method: 'initialize', params })
  child.send({ method: 'notifications/initialized' })
  return child
}

describe('boot that a signal ends', () => {
  for (const signal of ['SIGTERM', 'SIGINT']) {
    test(`over HTTP, ${signal} lets calls in progress end with their answers and refuses new ones; the exit code is 0`, async (t) => {
      const at = place(t)
      const { words, waiting, local } = await made(t, at, '--port', '0')
      const release = local.hold(RATES)
      const { url, child, ended } = await serving(t, at, words)
      const [caller, other] = [await overHttp(t, url), await overHttp(t, url)]
      const calls = [1, 2, 3].map(() => caller.callTool({ name: 'get_rates', arguments: {} }))
      await waitFor('three calls', () => waiting() === 3, LIMIT)
      child.kill(signal)
      const health = async () => (await fetch(new URL('/health', url)).catch(() => ({}))).status
      await waitFor('the refusal of what is new', async () => (await health()) === 503, LIMIT)
      await assert.rejects(other.callTool({ name: 'add', arguments: { a: 1, b: 2 } }), /503|closing|ending|shut/i)
      assert.equal(child.exitCode, null)
      release()
      for (const call of calls) assert.deepEqual((await call).structuredContent, { EUR: 1, NOK: 11.5 })
      assert.equal(waiting(), 3, 'no call was made twice')
      assert.equal((await ended).code, 0)
    })

    test(`over standard input and output, a call that outlasts the time after ${signal} is cancelled; the exit code is 130`, async (t) => {
      const at = place(t)
      const { words, waiting, local } = await made(t, at, '--stdio')
      afterwards(t, local.hold(RATES))
      const child = host(t, at, words)
      const ended = endOf(child)
      child.send({ id: 2, method: 'tools/call', params: { name: 'get_rates', arguments: {} } })
      await waitFor('a call', () => waiting() === 1 || child.exitCode !== null, LIMIT)
      child.kill(signal)
      const { code, stderr } = await ended
      assert.match(stderr, /a request did not end in the time after the signal/)
      assert.equal(code, 130)
    })

    test(`over standard input and output, ${signal} lets calls in progress end with their answers; the exit code is 0`, async (t) => {
      const at = place(t)
      const { words, waiting, local } = await made(t, at, '--stdio')
      const release = local.hold(RATES)
      const child = host(t, at, words)
      const ended = endOf(child)
      for (const id of [2, 3]) child.send({ id, method: 'tools/call', params: { name: 'get_rates', arguments: {} } })
      await waitFor('two calls', () => waiting() === 2 || child.exitCode !== null, LIMIT)
      child.kill(signal)
      release()
      assert.equal((await ended).code, 0, child.output.stderr)
      const answers = child.output.stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line))
      const results = [2, 3].map((id) => answers.find((answer) => answer.id === id).result.structuredContent)
      assert.deepEqual(
        results,
        [1, 2].map(() => ({ EUR: 1, NOK: 11.5 })),
      )
    })
  }
})
