// Tests of servers that agents add through the package's own API, and of a person's changes of the config at the command line.
import assert from 'node:assert/strict'
import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { atTerminal, place, run, small, write } from './command-line.mjs'
import { added, failure, fixture, folder, openGateway, waitFor } from './support.mjs'

test('an agent adds, changes and removes servers, and nothing of them comes back out but names', async (t) => {
  const events = []
  const gateway = await openGateway(t, {}, { onEvent: (event) => events.push(event) })
  const agent = gateway.agent('researcher')
  const status = await agent.addServer({ name: 'My Café!', ...added('--tools', 'echo'), env: { TOKEN: 'correct-horse' } })
  assert.equal(status.name, 'my-cafe')
  assert.equal(status.state, 'pending-approval')
  assert.deepEqual([status.displayName, status.source], ['My Café!', { kind: 'agent', name: 'researcher' }])
  assert.deepEqual(
    events.filter(({ type }) => type === 'server-proposed').map(({ server, agent, approved }) => ({ server, agent, approved })),
    [{ server: 'my-cafe', agent: 'researcher', approved: false }],
  )
  await gateway.approve('my-cafe', (await gateway.approvalRequest('my-cafe')).digest)
  await gateway.approve('my-cafe', (await gateway.approvalRequest('my-cafe')).digest)
  const info = await agent.serverInfo('my-cafe')
  assert.deepEqual([info.details.transport, info.details.variables], ['stdio', ['TOKEN']])
  assert.match(info.details.tools[0].signature, /^echo\(/)
  assert.equal(info.details.tools[0].directNames.underscore, 'mcp_my_cafe_echo')
  assert.equal(info.details.tools[0].inputSchema.type, 'object')
  assert.ok(!JSON.stringify([events, info, gateway.servers(), agent.servers()]).includes('correct-horse'))

  const changed = await agent.updateServer('my-cafe', { name: 'Other', env: { TOKEN: null } })
  assert.deepEqual([changed.name, changed.displayName, changed.state], ['my-cafe', 'Other', 'pending-approval'])
  assert.deepEqual((await gateway.serverInfo('my-cafe')).details.variables, [])
  assert.deepEqual(gateway.agent('other').servers(), [])
  await failure(gateway.agent('other').removeServer('my-cafe'), 'ERR_UNKNOWN_SERVER')
  await agent.removeServer('my-cafe')
  assert.deepEqual(gateway.servers(), [])

  assert.match((await failure(agent.addServer({ name: 'A', command: 'x', confirm: 'never' }), 'ERR_INVALID_OPTION')).message, /confirm/)
  assert.match((await failure(agent.addServer({ command: 'x' }), 'ERR_INVALID_OPTION')).message, /name/)
  assert.match((await failure(agent.addServer({ name: 'A', command: 5 }), 'ERR_INVALID_OPTION')).message, /command/)
})

test('the operator grants what one agent has added to another, by a pattern that names both', async (t) => {
  const gateway = await openGateway(t, {})
  const owner = gateway.agent('researcher')
  const reader = gateway.agent('reader')
  await owner.addServer({ name: 'Files', ...added('--tools', 'echo,count') })
  for (let stage = 0; stage < 2; stage++) await gateway.approve('files', (await gateway.approvalRequest('files')).digest)
  await gateway.enable('files')
  await gateway.setToolbox('all', ['*/*', 'files/*'])
  await gateway.grant('reader', 'all')
  await failure(reader.callTool('files', 'echo', { value: 1 }), 'ERR_NOT_GRANTED')
  assert.deepEqual(reader.servers(), [])
  const { granted, reason } = await gateway.explainGrant('reader', 'files', 'echo')
  assert.deepEqual([granted, /only patterns that begin with agent:researcher:files\//.test(reason)], [false, true])

  await failure(gateway.setToolbox('named', ['agent:researcher:*/echo']), 'ERR_INVALID_OPTION')
  await gateway.setToolbox('named', ['agent:researcher:files/echo'])
  await gateway.grant('reader', 'named')
  assert.deepEqual((await reader.callTool('files', 'echo', { value: 1 })).structuredContent, { value: 1 })
  assert.deepEqual(
    reader.servers().map(({ name, displayName, source }) => [name, displayName, source.name]),
    [['files', undefined, 'researcher']],
  )
  const sandbox = await reader.sandbox()
  const run = await sandbox.run(
    'import * as files from "host:mcp-files"; export const handler = () => Object.keys(files).filter((name) => name !== "default")',
  )
  assert.deepEqual(run.value, ['echo'])
  assert.equal('setToolbox' in owner, false, 'the owner grants nothing')
})

test('onServerApproval is asked for each stage, and only true approves', async (t) => {
  const stages = []
  let answer = true
  const onServerApproval = ({ stage }) => {
    stages.push(stage)
    return answer
  }
  const gateway = await openGateway(t, { good: fixture('--tools', 'echo'), bad: fixture() }, { onServerApproval })
  await gateway.enable('good')
  assert.deepEqual(stages, ['command', 'manifest'])
  assert.deepEqual(gateway.servers().map(({ name, enabled }) => [name, enabled])[0], ['good', true])
  for (answer of [false, 'yes', undefined, 1]) {
    await assert.rejects(gateway.enable('bad'), { code: answer === false ? 'ERR_NOT_APPROVED' : /ERR_/ })
    assert.equal(gateway.servers()[1].approved, false)
  }
  assert.throws(() => gateway.agent('a', { onServerApproval }), { code: 'ERR_INVALID_OPTION' })
})

test('/mcp enable returns the open request, and enables after the yes', async (t) => {
  const gateway = await openGateway(t, { files: fixture('--tools', 'echo') })
  for (const stage of ['command', 'manifest']) {
    const { ok, data, text } = await gateway.command('/mcp enable files')
    assert.deepEqual([ok, data.error.code, data.request.stage], [false, 'ERR_NOT_APPROVED', stage])
    assert.match(text, new RegExp(`/mcp enable files ${data.request.digest}`))
    const model = await gateway.command(`/mcp enable files ${data.request.digest}`, { speaker: 'model' })
    assert.equal(model.data.error.code, 'ERR_INVALID_OPTION')
    await gateway.command(`/mcp enable files ${data.request.digest}`)
  }
  assert.equal(gateway.servers()[0].enabled, true)
  const info = await gateway.command('/mcp info files')
  assert.match(info.text, /transport +stdio[\s\S]*limits +connect[\s\S]*echo\([\s\S]*direct: mcp_files_echo/)
})

test('add, set, unset and remove write the config, and keep its comments and its mode', async (t) => {
  const at = place(t, {})
  const config = join(at.home, '.hyperagent/config.json')
  writeFileSync(config, '{\n  // mine\n  "mcpServers": {}\n}\n')
  chmodSync(config, 0o640)
  const { command, args } = fixture('--tools', 'echo')
  const added = await run(at, ['add', 'files', '--env', 'API_KEY=sk-live-0123456789abcdef', '--', command, ...args])
  assert.equal(added.code, 0, added.stderr)
  assert.match(added.stdout, /files from [\s\S]*API_KEY=sk-l\*\*\*[\s\S]*looks like a secret[\s\S]*approve files/)
  const text = () => readFileSync(config, 'utf8')
  assert.match(text(), /\/\/ mine/)
  assert.equal(statSync(config).mode & 0o777, 0o640)
  const server = () => JSON.parse(text().replace('// mine', '')).mcpServers.files
  assert.deepEqual(server(), { command, args, env: { API_KEY: 'sk-live-0123456789abcdef' } })

  const variable = '$' + '{API_KEY}'
  assert.equal((await run(at, ['set', 'files', `API_KEY=${variable}`, 'timeoutMs=5000'])).code, 0)
  assert.deepEqual([server().env, server().timeoutMs], [{ API_KEY: variable }, 5000])
  const wrong = await run(at, ['set', 'files', 'timeoutMs=soon'])
  assert.equal(wrong.code, 1)
  assert.match(wrong.stderr, /was not changed: .*timeoutMs/)
  assert.equal(server().timeoutMs, 5000)
  assert.equal((await run(at, ['unset', 'files', 'API_KEY', 'timeoutMs'])).code, 0)
  assert.deepEqual(server(), { command, args, env: {} })
  assert.match((await run(at, ['add', 'files', '--', 'x'])).stderr, /already/)
  assert.equal((await run(at, ['add', 'none'])).code, 2)

  const enabled = await atTerminal(
    at,
    ['enable', 'files'],
    [
      ['Approve? [y/N]', 'y\n'],
      ['Approve? [y/N]', 'y\n'],
    ],
  )
  assert.equal(enabled.code, 0, enabled.text)
  const removed = await run(at, ['remove', 'files', '--json'])
  assert.equal(JSON.parse(removed.stdout).written, true, removed.stderr)
  assert.match(text(), /\/\/ mine/)
  assert.equal(server(), undefined)
  // The same server, added again, is not approved.
  assert.equal((await run(at, ['add', 'files', '--', command, ...args])).code, 0)
  assert.equal(JSON.parse((await run(at, ['list', '--json'])).stdout).servers[0].state, 'unapproved')
})

test('run offers the approval of what a script needs', async (t) => {
  const at = place(t, { weather: small(), other: small() })
  write(
    at,
    'note.js',
    'import { get_forecast } from "host:mcp-weather"\nexport const handler = () => get_forecast({ location: "x" }).conditions\n',
  )
  const refused = await atTerminal(at, ['run', 'note.js'], [['Approve? [y/N]', 'n\n']])
  assert.equal(refused.code, 1, refused.text)
  const yes = [
    ['Approve? [y/N]', 'y\n'],
    ['Approve? [y/N]', 'y\n'],
  ]
  const ran = await atTerminal(at, ['run', 'note.js'], yes)
  assert.match(ran.text, /"sunny"/)
  assert.match((await run(at, ['list'])).stdout, /other +unapproved/)
})

test('what agents propose comes first in list and doctor, and a person decides at the terminal', async (t) => {
  const at = place(t, { weather: small() })
  const state = join(at.home, '.hyperagent/hyperlight-mcp')
  const gateway = await openGateway(t, {}, { stateDir: state })
  const agent = gateway.agent('researcher')
  await agent.addServer({ name: 'Zeta', ...added('--tools', 'echo') })
  await agent.addServer({ name: 'Refused', ...added('--log', join(folder(t), 'log')) })
  await gateway.close()
  const { servers } = JSON.parse((await run(at, ['list', '--json'])).stdout)
  assert.deepEqual(
    servers.map(({ name, state }) => [name, state]),
    [
      ['refused', 'pending-approval'],
      ['zeta', 'pending-approval'],
      ['weather', 'unapproved'],
    ],
  )
  const doctor = JSON.parse((await run(at, ['doctor', '--json'])).stdout)
  assert.deepEqual(
    doctor.checks.slice(0, 2).map(({ what, remedy }) => [what, /approve/.test(remedy)]),
    [
      ['server refused', true],
      ['server zeta', true],
    ],
  )
  assert.match((await run(at, ['list'])).stderr, /agent "researcher" proposes server "zeta"\. .*approve zeta.*remove zeta/s)
  const yes = [
    ['Approve? [y/N]', 'y\n'],
    ['Approve? [y/N]', 'y\n'],
  ]
  const approved = await atTerminal(at, ['approve', 'zeta'], yes)
  assert.match(approved.text, /the agent "researcher", which calls it "Zeta"[\s\S]*zeta: approved/)
  // Another agent can use the server if a toolbox names it. A wider pattern is not enough.
  const has = async () => /zeta/.test((await run(at, ['list', '--agent', 'reader', '--json'])).stdout)
  for (const [pattern, granted] of [
    ['*/*', false],
    ['agent:researcher:zeta/echo', true],
  ]) {
    assert.equal((await run(at, ['toolboxes', 'named', pattern])).code, 0)
    assert.equal((await run(at, ['grant', 'reader', 'named'])).code, 0)
    assert.equal(await has(), granted, pattern)
  }
  assert.equal((await run(at, ['remove', 'refused'])).code, 0)
  const { stderr } = await run(at, ['list'])
  assert.doesNotMatch(stderr, /proposes/)
})

test("a removed server is gone from the grants, and one of its name that is added again is nobody else's", async (t) => {
  const gateway = await openGateway(t, {}, {})
  const owner = gateway.agent('researcher')
  const reader = gateway.agent('reader')
  const bring = async () => {
    await owner.addServer({ name: 'Files', ...added('--tools', 'echo,count') })
    for (let stage = 0; stage < 2; stage++) await gateway.approve('files', (await gateway.approvalRequest('files')).digest)
    await gateway.enable('files')
  }
  await bring()
  await gateway.setToolbox('named', ['agent:researcher:files/*', '!agent:researcher:files/count', 'weather/*', '*/echo'])
  await gateway.setToolbox('other', ['agent:researcher:other/*'])
  await gateway.grant('reader', ['named', 'other'])
  assert.deepEqual((await reader.callTool('files', 'echo', { value: 1 })).structuredContent, { value: 1 })
  await owner.removeServer('files')
  const patterns = async () => (await gateway.toolboxes()).toolboxes.map(({ patterns }) => patterns)
  assert.deepEqual(await patterns(), [['!agent:researcher:files/count', 'weather/*', '*/echo'], ['agent:researcher:other/*']])
  await bring()
  await failure(reader.callTool('files', 'echo', { value: 1 }), 'ERR_NOT_GRANTED')
  assert.deepEqual(reader.servers(), [])
  const [row] = (await gateway.audit({ kind: 'grant' })).slice(-1)
  assert.deepEqual([row.action, row.subject, row.by], ['changed', 'named', 'agent'])
})

test('a removed server that a toolbox of the config names is told, as only a person changes the config', async (t) => {
  const warnings = []
  const config = { mcpServers: {}, toolboxes: { named: ['agent:researcher:files/*'] }, agents: { reader: { toolboxes: ['named'] } } }
  const onEvent = ({ type, message }) => type === 'warning' && warnings.push(message)
  const gateway = await openGateway(t, {}, { config, onEvent })
  const owner = gateway.agent('researcher')
  await owner.addServer({ name: 'Files', ...added() })
  await owner.removeServer('files')
  await waitFor('the warning', () => warnings.some((text) => /toolbox "named" still grants the server "files"/.test(text)))
})

test('a server whose tools nobody has decided about comes first and is told at each start', async (t) => {
  const events = []
  const options = { stateDir: join(folder(t), 'state'), onEvent: (event) => event.type === 'server-proposed' && events.push(event) }
  const first = await openGateway(t, { aaa: fixture() }, options)
  await first.agent('researcher').addServer({ name: 'Zeta', ...added('--tools', 'echo') })
  await waitFor('the event', () => events.length === 1)
  assert.equal(events[0].stage, 'command')
  await first.approve('zeta', events[0].request.digest)
  await first.close()
  const second = await openGateway(t, { aaa: fixture() }, options)
  await waitFor('the event', () => events.length === 2)
  const { server, stage, approved, request } = events[1]
  assert.deepEqual([server, stage, approved, request.approved], ['zeta', 'manifest', false, true])
  assert.deepEqual(
    second.servers().map(({ name, state }) => [name, state]),
    [
      ['zeta', 'command-approved'],
      ['aaa', 'unapproved'],
    ],
  )
  await second.approve('zeta', (await second.approvalRequest('zeta')).digest)
  assert.equal(second.servers()[0].name, 'aaa')
  await second.close()
  await (await openGateway(t, {}, options)).close()
  assert.equal(events.length, 2)
})

test('requireApproval as an option of Gateway.open approves what an agent adds, and the audit says by what', async (t) => {
  const gateway = await openGateway(t, {}, { requireApproval: false })
  const agent = gateway.agent('researcher')
  const { name, state, approved } = await agent.addServer({ name: 'Files', ...added('--tools', 'echo') })
  assert.deepEqual([name, approved], ['files', true], state)
  assert.deepEqual((await agent.callTool('files', 'echo', { value: 1 })).structuredContent, { value: 1 })
  assert.deepEqual(
    (await gateway.audit({ kind: 'approval' })).map(({ action, by, server }) => [action, by, server]),
    [
      ['command', 'setting', 'files'],
      ['manifest', 'setting', 'files'],
    ],
  )
  assert.equal((await agent.updateServer('files', { env: { A: '1' } })).state, 'pending-approval')
})
