// Tests of the lines that a person types in an agent: gateway.command and gateway.completeCommand.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Gateway } from '../index.mjs'
import { emulated, failure, fixture, folder, openApproved, openGateway } from './support.mjs'

const small = (...args) => fixture('--tools', 'get-forecast,write_note', ...args)

/** Runs a line that must succeed. */
async function typed(gateway, line, options) {
  const outcome = await gateway.command(line, options)
  assert.equal(outcome.ok, true, outcome.text)
  return outcome
}

test('a server goes from unknown to enabled by typed lines, each stage approved by the digest that was shown', async (t) => {
  const gateway = await openGateway(t, { weather: small() })
  assert.match((await typed(gateway, '/mcp list')).text, /weather +unapproved +no +no +0/)
  const first = await typed(gateway, '/mcp approve weather')
  assert.equal(first.data.request.stage, 'command')
  // The text breaks long words at its width.
  assert.match(first.text.replace(/\n {16}/g, ''), /may this run\?[\s\S]*full permissions[\s\S]*fixture-server/)
  assert.ok(first.text.includes(`/mcp approve weather ${first.data.request.digest}`))
  assert.equal((await typed(gateway, `/mcp approve weather ${first.data.request.digest}`)).data.state, 'command-approved')
  const second = await typed(gateway, '/mcp approve weather')
  assert.equal(second.data.request.stage, 'manifest')
  assert.match(second.text, /reads get-forecast \(in code: get_forecast\)[\s\S]*WRITES write_note/)
  assert.equal((await typed(gateway, `/mcp approve weather ${second.data.request.digest}`)).data.approved, true)
  assert.match((await typed(gateway, '/mcp enable weather')).text, /enabled/)
  assert.match((await typed(gateway, '/mcp search forecast')).text, /weather\.get_forecast +Forecast for a place/)
  assert.match((await typed(gateway, '/mcp info weather')).text, /host:mcp-weather[\s\S]*get_forecast/)
  assert.equal((await typed(gateway, '/mcp test weather')).data.tools.length, 2)
  assert.equal((await typed(gateway, '/mcp disable weather')).data.enabled, false)
  assert.equal((await typed(gateway, '/mcp revoke weather')).data.approved, false)
  assert.match((await typed(gateway, '/mcp approve weather')).text, /All|stage 1 of 2/)
})

test('a start that failed is told by the line that tells most, and where the others are', async (t) => {
  const script = 'console.error("Trace" + "back:\\n  File x\\nModuleNotFoundError: No module named y"); process.exit(3)'
  const gateway = await openGateway(t, { bad: { command: process.execPath, args: ['-e', script] } })
  await failure(gateway.approve('bad'), 'ERR_SERVER_EXITED')
  const [{ lastError }] = gateway.servers()
  assert.match(lastError.message, /exited with code 3\. It said: ModuleNotFoundError: No module named y\. Its log has more: logs bad$/)
  for (const line of ['/mcp list', '/mcp info bad']) {
    const words = (await typed(gateway, line)).text.replace(/[\s|]+/g, ' ')
    assert.match(words, /No module named y\. Its log has more: logs bad/)
    assert.doesNotMatch(words, /Traceback/)
  }
  assert.match((await typed(gateway, '/mcp logs bad')).text, /Traceback/)
})

test('without a digest, or with a wrong one, nothing is approved', async (t) => {
  const gateway = await openGateway(t, { weather: small() })
  await gateway.command('/mcp approve weather')
  for (const digest of ['yes', '--yes', '0'.repeat(64), '""', 'undefined']) {
    const { ok } = await gateway.command(`/mcp approve weather ${digest}`)
    assert.equal(ok, false, digest)
  }
  assert.equal(gateway.servers()[0].approved, false)
  assert.equal(gateway.servers()[0].state, 'unapproved')
})

test('a line of a model approves nothing, with the right digest neither', async (t) => {
  const gateway = await openGateway(t, { weather: small() })
  const { data } = await gateway.command('/mcp approve weather', { speaker: 'model' })
  const outcome = await gateway.command(`/mcp approve weather ${data.request.digest}`, { speaker: 'model' })
  assert.equal(outcome.ok, false)
  assert.match(outcome.text, /only a person can approve/)
  assert.equal(gateway.servers()[0].state, 'unapproved')
})

test('what a person typed wrongly is said, with what was meant, and never thrown', async (t) => {
  const gateway = await openGateway(t, { weather: small() })
  for (const [line, says] of [
    ['/mcp lst', /'list'/],
    ['/mcp info wether', /did you mean "weather"/],
    ['/mcp search x --limt 3', /--limit/],
    ["/mcp info 'weather", /does not end/],
    ['/mcp info', /SERVER/],
    ['/mcp enable weather', /not approved/],
    ['x'.repeat(20_000), /limit is 10000/],
    ['/mcp info \u001b[31mred', /there is no server/],
  ]) {
    const { ok, data, text } = await gateway.command(line)
    assert.equal(ok, false, line)
    assert.match(text, says)
    assert.match(data.error.code, /^ERR_/)
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not be there
    assert.doesNotMatch(text, /\u001b/)
  }
  for (const line of ['', '/mcp', '/mcp help', 'help search', '/mcp logs --help']) assert.match((await typed(gateway, line)).text, /Usage/)
  await failure(gateway.command(5), 'ERR_INVALID_OPTION')
  await failure(gateway.command('list', { colour: true }), 'ERR_INVALID_OPTION')
})

test('text is coloured and as wide as it is asked to be', async (t) => {
  const gateway = await openGateway(t, { weather: small() })
  const plain = await typed(gateway, '/mcp approve weather', { width: 60 })
  assert.ok(plain.text.split('\n').every((line) => line.length <= 90 && !line.includes('\u001b')))
  assert.ok((await typed(gateway, 'list', { color: true })).text.startsWith('\u001b[1mSERVER'))
})

test('completion knows commands, options and servers', async (t) => {
  const gateway = await openGateway(t, { weather: small(), wiki: small() })
  assert.deepEqual(await gateway.completeCommand('/mcp re'), ['reload', 'revoke'])
  assert.deepEqual(await gateway.completeCommand('/mcp info w'), ['weather', 'wiki'])
  assert.deepEqual(await gateway.completeCommand('/mcp search x --'), ['--limit', '--server'])
})

test("a server's log tells another gateway why it failed, without secrets and control characters", async (t) => {
  const stateDir = folder(t)
  const secret = 'ghp_16C7e42F292c6912E7710c838347Ae178B4a'
  const servers = {
    bad: { ...small('--stderr', `cannot start: ${secret} \u001b[31m`, '--exit-at-start', '7'), env: { API_TOKEN: secret } },
  }
  const first = await Gateway.open({ config: { mcpServers: servers }, stateDir })
  const { digest } = await first.approvalRequest('bad')
  await first.approve('bad', digest)
  await failure(first.test('bad'), 'ERR_SERVER_EXITED')
  await first.close()
  const gateway = await openGateway(t, servers, { stateDir })
  const { data, text } = await typed(gateway, '/mcp logs bad')
  assert.ok(data.lines.some(({ kind, text }) => kind === 'stderr' && text.startsWith('cannot start')))
  assert.ok(data.lines.some(({ kind, error }) => kind === 'failed' && error === 'ERR_SERVER_EXITED'))
  assert.ok(!text.includes(secret) && !text.includes('\u001b'), text)
  assert.equal((await gateway.command('/mcp logs none')).ok, false)
})

test('calls are in the log of their server, without what was passed', async (t) => {
  const gateway = await openApproved(t, { weather: small() })
  await gateway.callTool('weather', 'get-forecast', { location: 'somewhere secret' })
  // The entry is written outside of the call's path, so it comes a little later.
  const deadline = Date.now() + 5_000 * (emulated ? 8 : 1)
  let lines = []
  while (Date.now() < deadline && !lines.some(({ kind }) => kind === 'call')) lines = (await typed(gateway, 'logs weather')).data.lines
  assert.deepEqual(
    lines.map(({ kind }) => kind),
    ['connected', 'call'],
  )
  assert.match(lines[1].text, /^get-forecast /)
  assert.ok(!JSON.stringify(lines).includes('somewhere'))
})
