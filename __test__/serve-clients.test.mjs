// Tests with the official client, which calls every tool of `hyperlight-mcp serve` over both transports and in both eras.
// tests/servers/serve_clients.rs does the same with rmcp's client, and serve-inspector.test.mjs with the Inspector's command line.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { approved, small } from './command-line.mjs'
import { CALLS, ERAS, overHttp, overStdio, script, served } from './serving.mjs'

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

test('A resource that no server has is an error that names it', async (t) => {
  const at = await approved(t, { fixture: small() })
  const { client } = await overStdio(t, at)
  const uri = 'nowhere://here'
  await assert.rejects(client.readResource({ uri }), ({ data }) => data.uri === uri)
})
