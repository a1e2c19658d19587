// Tests of what a caller of a served gateway can find out if each caller has its own grants.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { ERAS, overHttp } from './serving.mjs'
import { afterwards, deferred, fixture, folder, gated, openApproved, waitFor } from './support.mjs'

const TOKENS = {
  one: '0123456789abcdef0123456789abcdef',
  two: 'fedcba9876543210fedcba9876543210',
  none: '00112233445566778899aabbccddeeff',
}

/** A file of tokens that only its owner may read. */
function tokenFile(t) {
  const path = join(folder(t), 'tokens')
  writeFileSync(
    path,
    Object.entries(TOKENS)
      .map((entry) => entry.join(':'))
      .join('\n'),
    { mode: 0o600 },
  )
  return path
}

/** Serves a gateway with two servers. Each caller is granted one of them, and one caller none. */
async function granted(t) {
  const servers = { payroll: fixture('--resources'), weather: fixture() }
  const agents = { one: { fetch: { hosts: ['one.example'] } }, two: { fetch: { hosts: ['two.example'] } } }
  const gateway = await openApproved(t, servers, { config: { mcpServers: servers, agents } })
  for (const agent of ['one', 'two']) {
    const { digest } = await gateway.fetchApproval({ agent })
    await gateway.approveFetch({ agent, digest })
  }
  await gateway.setToolbox('pay', ['payroll/*', 'payroll/resource:*'])
  await gateway.setToolbox('sky', ['weather/*'])
  await gateway.grant('one', 'pay')
  await gateway.grant('two', 'sky')
  const { url } = await gateway.serve({ http: 0, tokenFile: tokenFile(t) })
  return { gateway, url }
}

for (const era of Object.keys(ERAS)) {
  test(`The instructions for a caller name its own servers and hosts, and no others (${era})`, async (t) => {
    const { url } = await granted(t)
    const instructions = async (token) => (await overHttp(t, url, { token: TOKENS[token], era })).getInstructions() ?? ''
    const [one, two, none] = await Promise.all(['one', 'two', 'none'].map(instructions))
    assert.match(one, /host:mcp-payroll/)
    assert.match(one, /one\.example/)
    assert.doesNotMatch(one, /weather|two\.example/)
    assert.match(two, /host:mcp-weather/)
    assert.match(two, /two\.example/)
    assert.doesNotMatch(two, /payroll|one\.example/)
    assert.doesNotMatch(none, /payroll|weather|example/)
  })
}

test('A resource that is no longer listed can be unsubscribed', async (t) => {
  const { gateway, url } = await granted(t)
  const client = await overHttp(t, url, { token: TOKENS.one })
  const uri = 'fixture://note.txt'
  await client.subscribeResource({ uri })
  await gateway.ungrant('one')
  await waitFor('the resource to go', async () => (await client.listResources()).resources.every((resource) => resource.uri !== uri))
  await client.unsubscribeResource({ uri })
  await assert.rejects(client.unsubscribeResource({ uri }), /no server has this resource/)
})

test('Calls of one caller that wait for a person have a limit, and another caller is still asked', async (t) => {
  const gateway = await openApproved(t, { fixture: gated() })
  const { url } = await gateway.serve({ http: 0, tokenFile: tokenFile(t), direct: true })
  const [asked, answer] = [[], deferred()]
  const onElicit = async (params) => asked.push(params) && answer.promise
  const loud = await overHttp(t, url, { token: TOKENS.one, onElicit })
  const quiet = await overHttp(t, url, { token: TOKENS.two, onElicit: () => ({ action: 'accept', content: { allow: 'this call' } }) })
  afterwards(t, () => answer.resolve({ action: 'decline' }))
  const write = (client) => client.callTool({ name: 'mcp_fixture_write_note', arguments: { text: 'x' } })
  const waiting = Array.from({ length: 64 }, () => write(loud))
  await waitFor('all questions', () => asked.length === 64)
  const refused = await write(loud)
  assert.deepEqual([refused.isError, refused._meta['io.hyperlight-mcp/code']], [true, 'ERR_BUSY'])
  assert.match(refused.content[0].text, /64 calls of this caller that wait for an answer/)
  assert.equal((await write(quiet)).content[0].text, 'noted')
  answer.resolve({ action: 'accept', content: { allow: 'this call' } })
  for (const done of await Promise.all(waiting)) assert.equal(done.content[0].text, 'noted')
  assert.equal((await write(loud)).content[0].text, 'noted')
})
