// Tests of toolboxes and grants through Node's API, the command line and a host. tests/servers/grants.rs tests what the gateway itself
// promises.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { approved, environment, LIMIT, program, run, small, write } from './command-line.mjs'
import { endOf, failure, fixture, listenTo, openApproved, waitFor } from './support.mjs'

const tools = async (agent) => (await agent.moduleInfo('fixture')).functions.map((one) => one.name)

describe('A grant', () => {
  test('gives an agent exactly the tools of its toolboxes, and tells its author what it has not', async (t) => {
    const events = []
    const gateway = await openApproved(t, { fixture: fixture('--resources', '--prompts') }, { onEvent: (event) => events.push(event) })
    await gateway.setToolbox('readers', ['fixture/echo', 'fixture/count', '!fixture/count'])
    assert.deepEqual(await gateway.grant('researcher', 'readers'), { agent: 'researcher', toolboxes: ['readers'], source: 'store' })
    const agent = gateway.agent('researcher')
    assert.deepEqual(await tools(agent), ['echo'])
    assert.deepEqual((await agent.callTool('fixture', 'echo', { value: 1 })).structuredContent, { value: 1 })
    assert.match(
      (await failure(agent.callTool('fixture', 'count'), 'ERR_NOT_GRANTED')).message,
      /researcher.*fixture\/count.*the pattern "!fixture\/count"/,
    )
    assert.match((await failure(agent.readResource('fixture', 'fixture://note.txt'), 'ERR_NOT_GRANTED')).message, /no toolbox has it/)
    await failure(agent.callTool('fixture', 'nothing'), 'ERR_UNKNOWN_TOOL')
    const [run] = agent.agentTools()
    const { error } = await run.execute({ code: 'import { count } from "host:mcp-fixture"; export const handler = () => count({})' })
    assert.equal(error.code, 'ERR_CODE_SYNTAX')
    assert.doesNotMatch(JSON.stringify(error), /readers|not granted/)
    assert.ok(events.some((event) => event.type === 'not-granted' && event.agent === 'researcher' && event.item === 'count'))
    assert.match(
      (await failure(gateway.agent('other').callTool('fixture', 'echo', { value: 1 }), 'ERR_NOT_GRANTED')).message,
      /an agent without one gets nothing/,
    )
    assert.equal((await gateway.explainGrant('researcher', 'fixture', 'echo')).granted, true)
    assert.deepEqual((await gateway.ungrant('researcher')).toolboxes, [])
    await failure(agent.moduleInfo('fixture'), 'ERR_UNKNOWN_MODULE')
    const { toolboxes, agents, defaultGrant } = await gateway.toolboxes()
    assert.deepEqual([toolboxes.length, agents, defaultGrant], [1, [{ agent: 'researcher', toolboxes: [], source: 'store' }], 'none'])
  })

  test('is refused with the reason where its arguments are wrong', async (t) => {
    const gateway = await openApproved(t, { fixture: fixture() })
    await failure(gateway.grant('a', 'none'), 'ERR_UNKNOWN_TOOLBOX')
    assert.match((await failure(gateway.grant('a', 5), 'ERR_INVALID_OPTION')).message, /toolbox/)
    assert.match((await failure(gateway.setToolbox('a', ['fixture']), 'ERR_INVALID_OPTION')).message, /patterns\[0\]: must be server\/tool/)
    await failure(gateway.setToolbox('a', 'fixture/*'), 'ERR_INVALID_OPTION')
    assert.throws(() => gateway.agent('a', { profiles: ['daily'] }), { code: 'ERR_INVALID_OPTION', message: /no profile "daily"/ })
    assert.equal('grant' in gateway.agent('a'), false, 'no agent has the methods of the operator')
  })
})

test('At the command line, toolboxes are made and given, and --agent sees what is granted', async (t) => {
  const at = await approved(t, { weather: small() })
  const done = async (...words) => {
    const { code, stdout, stderr } = await run(at, words)
    assert.equal(code, 0, stderr)
    return stdout
  }
  assert.match(await done('toolboxes'), /there are no toolboxes.*\n\nagents get everything that is approved/s)
  await done('toolboxes', 'readers', 'weather/get-*')
  assert.match(await done('grant', 'coder', 'readers'), /^agent coder has readers\n$/)
  assert.match(await done('toolboxes'), /readers +weather\/get-\* .*coder +readers .*other agents get nothing/s)
  const named = async (...words) => JSON.stringify(JSON.parse(await done(...words, '--json')))
  assert.match(await named('list', '--agent', 'coder'), /get-forecast/)
  assert.doesNotMatch(await named('list', '--agent', 'coder'), /write_note/)
  assert.match(await named('list'), /write_note/)
  assert.doesNotMatch(await named('list', '--agent', 'other'), /weather/)
  assert.doesNotMatch(await named('search', 'note', '--agent', 'coder'), /write_note/)
  assert.doesNotMatch(await done('types', '--out', '-', '--agent', 'coder'), /write_note/)
  write(at, 'all.js', 'import { tools } from "host:mcp"; export const handler = () => tools().map((tool) => tool.name)')
  assert.deepEqual(JSON.parse(await done('run', 'all.js', '--agent', 'coder')), ['get-forecast'])
  const held = await run(at, ['toolboxes', 'readers', '--remove'])
  assert.equal(held.code, 1)
  assert.match(held.stderr, /given to coder/)
  assert.match(await done('ungrant', 'coder'), /agent coder has no toolbox, and so nothing/)
  assert.match(await done('toolboxes', 'readers', '--remove'), /there are no toolboxes/)
})

test('A host that gives itself the name of an agent has none of its grants, and --agent gives it', async (t) => {
  const at = await approved(t, { weather: small() })
  assert.equal((await run(at, ['toolboxes', 'readers', 'weather/get-*'])).code, 0)
  assert.equal((await run(at, ['grant', 'admin', 'readers'])).code, 0)
  const listed = async (...words) => {
    const lines = [
      {
        jsonrpc: '2.0',
        id: 1,
        method: 'initialize',
        params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'admin', version: '1' } },
      },
      { jsonrpc: '2.0', method: 'notifications/initialized' },
      { jsonrpc: '2.0', id: 2, method: 'tools/list' },
    ]
    const child = listenTo(t, process.execPath, [program, 'serve', '--direct', ...words], {
      cwd: at.work,
      env: environment(at),
      limit: LIMIT,
    })
    const ended = endOf(child)
    for (const line of lines) child.stdin.write(`${JSON.stringify(line)}\n`)
    const answer = await waitFor('the list of tools', () =>
      child.output.stdout
        .split('\n')
        // The text after the last line break is left out. It is a line that has not arrived completely.
        .slice(0, -1)
        .map((line) => JSON.parse(line))
        .find((line) => line.id === 2),
    )
    child.stdin.end()
    await ended
    return answer.result.tools.map((tool) => tool.name)
  }
  const own = (names) => names.filter((name) => name.startsWith('mcp_weather'))
  assert.deepEqual(own(await listed()), [])
  assert.deepEqual(own(await listed('--agent', 'admin')), ['mcp_weather_get_forecast'])
})
