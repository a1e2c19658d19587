// Tests with the official client, which calls every tool of `hyperlight-mcp serve` over both transports, with the protocol of before
// 2026-07-28 and of since then. tests/servers/serve_clients.rs does the same with rmcp's client, and serve-inspector.test.mjs with the
// Inspector's command line.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { approved, LIMIT, place, small } from './command-line.mjs'
import { CALLS, ERAS, overHttp, overStdio, runs, script, served } from './serving.mjs'
import { arrived, logLines, waitFor } from './support.mjs'

const onElicit = () => ({ action: 'accept', content: { allow: 'this call' } })

test('The official client drives every tool over both transports, in both eras', async (t) => {
  const at = await approved(t, { fixture: small() })
  const { url } = await served(t, at)
  for (const era of Object.keys(ERAS)) {
    for (const client of [(await overStdio(t, at, { era, onElicit })).client, await overHttp(t, url, { era, onElicit })]) {
      assert.equal(client.getNegotiatedProtocolVersion(), era)
      const { tools } = await client.listTools()
      assert.deepEqual(tools.map(({ name }) => name).sort(), Object.keys(CALLS).sort())
      for (const [name, [args, expected]] of Object.entries(CALLS)) {
        const { isError, structuredContent, content } = await client.callTool({ name, arguments: args })
        assert.notEqual(isError, true, `${name}: ${JSON.stringify(structuredContent)}`)
        assert.match(JSON.stringify(structuredContent), expected, name)
        assert.deepEqual(JSON.parse(content[0].text), structuredContent)
      }
    }
  }
})

test('A client that asks for no logs gets none, since protocol 2026-07-28', async (t) => {
  const at = await approved(t, { fixture: { ...small('--tools', 'log_lines'), confirm: 'never' } })
  const { url } = await served(t, at)
  const logs = Object.fromEntries(Object.keys(ERAS).map((era) => [era, 0]))
  for (const era of Object.keys(ERAS)) {
    const client = await overHttp(t, url, { era })
    client.setNotificationHandler('notifications/message', () => {
      logs[era] += 1
    })
    const { structuredContent } = await client.callTool({ name: 'run_javascript', arguments: script('fixture.log_lines({ count: 3 })') })
    assert.equal(structuredContent.value, 'logged')
  }
  assert.deepEqual(logs, { '2025-11-25': 3, '2026-07-28': 0 })
})

test('A client of any era gets the logs of the level that it wants, and more serious ones', async (t) => {
  const at = await approved(t, { fixture: { ...small('--tools', 'log_lines'), confirm: 'never' } })
  const { url } = await served(t, at)
  const log = (level) => script(`fixture.log_lines({ count: 1, level: '${level}' })`)
  for (const era of Object.keys(ERAS)) {
    for (const client of [(await overStdio(t, at, { era })).client, await overHttp(t, url, { era })]) {
      const levels = []
      client.setNotificationHandler('notifications/message', ({ params }) => levels.push(params.level))
      if (era === '2025-11-25') await client.setLoggingLevel('warning')
      const _meta = era === '2026-07-28' ? { 'io.modelcontextprotocol/logLevel': 'warning' } : undefined
      for (const level of ['debug', 'info', 'warning', 'error']) {
        const { structuredContent } = await client.callTool({ name: 'run_javascript', arguments: log(level), _meta })
        assert.equal(structuredContent.value, 'logged')
      }
      assert.deepEqual(levels, ['warning', 'error'], era)
    }
  }
})

test('Progress of inner calls is progress of the run, and a run that its host cancels ends its call', async (t) => {
  const log = `${place(t).home}/log`
  const at = await approved(t, { fixture: { ...small('--tools', 'progress,hang', '--log', log), confirm: 'never' } })
  const { url } = await served(t, at)
  const ended = () => logLines(log).filter(({ event }) => event === 'cancelled').length
  for (const era of Object.keys(ERAS)) {
    for (const client of [(await overStdio(t, at, { era })).client, await overHttp(t, url, { era })]) {
      const [before, begun] = [ended(), arrived(log, 'hang').length]
      const [controller, progress] = [new AbortController(), []]
      const body = '[fixture.progress({ steps: 3 }), fixture.hang({})]'
      const call = runs(client, body, { signal: controller.signal, onprogress: (told) => progress.push(told) })
      const outcome = assert.rejects(call)
      await waitFor('the progress', () => progress.length === 3 && arrived(log, 'hang').length > begun, LIMIT)
      assert.deepEqual(
        progress.map(({ progress, message }) => [progress, message]),
        [1, 2, 3].map((step) => [step, `fixture.progress: step ${step} (${step}.0 of 3.0)`]),
      )
      controller.abort()
      await outcome
      await waitFor('the end of the inner call', () => ended() > before, LIMIT)
      assert.equal((await runs(client, '1 + 1')).structuredContent.value, 2)
    }
  }
})

test('The official client calls tools by direct names over both transports, in both eras', async (t) => {
  const at = await approved(t, { fixture: small() })
  const { url } = await served(t, at, ['--direct'])
  for (const era of Object.keys(ERAS)) {
    for (const client of [(await overStdio(t, at, { era, words: ['--direct'] })).client, await overHttp(t, url, { era })]) {
      const { tools } = await client.listTools()
      const forecast = tools.find(({ name }) => name === 'mcp_fixture_get_forecast')
      assert.equal(forecast._meta['io.hyperlight-mcp/source'], 'mcp://fixture/get-forecast')
      const { isError, structuredContent } = await client.callTool({ name: forecast.name, arguments: { location: 'Oslo' } })
      assert.deepEqual([isError, structuredContent], [false, { temperature: 93, conditions: 'sunny' }])
    }
  }
})

test('A resource that no server has is an error that names it', async (t) => {
  const at = await approved(t, { fixture: small() })
  const { client } = await overStdio(t, at)
  const uri = 'nowhere://here'
  await assert.rejects(client.readResource({ uri }), ({ data }) => data.uri === uri)
})
