// Tests that a permission for more than one call ends with the approval under which a person gave it, no matter who revokes the approval,
// and how late the person answers.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { arrived, deferred, failure, fixture, folder, gated, openApproved, openGateway } from './support.mjs'

const CALL = ['fixture', 'write_note', { text: 'x' }]

/** Gives these answers in order, and then denies. An answer may be a promise. */
function person(...answers) {
  const asked = []
  return { asked, onApproval: (question) => asked.push(question) && (answers[asked.length - 1] ?? 'deny') }
}

/**
 * Opens a gateway with one server whose calls need a permission, and another gateway on the same approvals, which acts as another process.
 */
async function setUp(t, onApproval, server = gated) {
  const stateDir = join(folder(t), 'state')
  const log = join(stateDir, '..', 'log')
  const servers = { fixture: server('--log', log) }
  const here = await openApproved(t, servers, { stateDir, onApproval })
  const elsewhere = await openGateway(t, servers, { stateDir })
  const again = async () => {
    await elsewhere.revoke('fixture')
    await elsewhere.approve('fixture')
  }
  return { here, elsewhere, again, writes: () => arrived(log, 'write_note').length }
}

/**
 * Runs code that calls the tool, makes a change outside of the run, and calls the tool again. Returns the first answer, and the code of the
 * second one.
 */
async function around(gateway, change) {
  const sandbox = await gateway.sandbox()
  sandbox.hostModule('outside', { change: async () => change() })
  const code = `import { write_note } from "host:mcp-fixture"; import { change } from "host:outside"
    export function handler() { const first = write_note({ text: "x" }); change(); return [first, write_note({ text: "x" }).code ?? "sent"] }`
  const { value } = await sandbox.run(code)
  return value
}

/** Changes the description of a tool. Then a person approves the change. */
async function changeAndApprove(gateway, tool, description) {
  await gateway.callTool('fixture', 'rewrite', { tool, description }, { onApproval: () => 'once' })
  const { digest } = await gateway.approvalRequest('fixture')
  await gateway.approve('fixture', digest)
}

describe('A permission ends', () => {
  test('for the session, where another process takes the approval back, though it gives the same again', async (t) => {
    const { asked, onApproval } = person('session')
    const { here, again } = await setUp(t, onApproval)
    await here.callTool(...CALL)
    await here.callTool(...CALL)
    assert.equal(asked.length, 1)
    await again()
    await failure(here.callTool(...CALL), 'ERR_CALL_DENIED')
    assert.equal(asked.length, 2)
  })

  test('for the run, where another process does so', async (t) => {
    const { asked, onApproval } = person('run')
    const { here, again } = await setUp(t, onApproval)
    assert.deepEqual(await around(here, again), ['noted', 'ERR_CALL_DENIED'])
    assert.equal(asked.length, 2)
  })

  test('for the run, where what was approved of the tool is another by then', async (t) => {
    const { asked, onApproval } = person('run')
    const { here } = await setUp(t, onApproval)
    const change = () => changeAndApprove(here, 'write_note', 'Writes it, and mails it')
    assert.deepEqual(await around(here, change), ['noted', 'ERR_CALL_DENIED'])
    assert.equal(asked.length, 2)
  })

  test('for the run, where the server was disabled and enabled again', async (t) => {
    const { asked, onApproval } = person('run')
    const { here } = await setUp(t, onApproval)
    const change = async () => {
      await here.disable('fixture')
      await here.enable('fixture')
    }
    assert.deepEqual(await around(here, change), ['noted', 'ERR_CALL_DENIED'])
    assert.equal(asked.length, 2)
  })

  test('and not before, of a server whose program is pinned as well', async (t) => {
    const { asked, onApproval } = person('session')
    const { here, writes } = await setUp(t, onApproval, (...args) => ({ ...gated(...args), pinExecutable: true }))
    await here.callTool(...CALL)
    await here.callTool(...CALL)
    assert.deepEqual([asked.length, writes()], [1, 2])
  })

  test('and not before: what happens to other servers is nothing to it', async (t) => {
    const { asked, onApproval } = person('run')
    const gateway = await openApproved(t, { fixture: gated(), other: fixture() }, { onApproval })
    const change = async () => {
      await gateway.disable('other')
      await gateway.revoke('other')
    }
    assert.deepEqual(await around(gateway, change), ['noted', 'sent'])
    assert.equal(asked.length, 1)
  })

  test('of reads as of calls', async (t) => {
    const { asked, onApproval } = person('session')
    const { here, again } = await setUp(t, onApproval, (...args) => ({ ...gated('--resources', ...args), confirm: 'always' }))
    const read = () => here.readResource('fixture', 'fixture://note.txt')
    await read()
    await read()
    assert.equal(asked.length, 1)
    await again()
    await failure(read(), 'ERR_CALL_DENIED')
    assert.equal(asked.length, 2)
  })
})

describe('An answer that comes late', () => {
  /** Makes a call, and a change while a person thinks about this call. Then the person answers "session". */
  async function late(t, change) {
    const [asking, answer] = [deferred(), deferred()]
    const asked = []
    const onApproval = (question) => {
      asked.push(question)
      asking.resolve()
      return asked.length === 1 ? answer.promise : 'deny'
    }
    const opened = await setUp(t, onApproval)
    const calling = opened.here.callTool(...CALL).then(
      () => 'sent',
      ({ code }) => code,
    )
    await asking.promise
    await change(opened)
    answer.resolve('session')
    return { ...opened, asked, outcome: await calling }
  }

  test('sends nothing where another process has taken the approval back, and is no permission once it is given again', async (t) => {
    const { here, elsewhere, outcome, asked, writes } = await late(t, ({ elsewhere }) => elsewhere.revoke('fixture'))
    assert.deepEqual([outcome, writes()], ['ERR_NOT_APPROVED', 0])
    await elsewhere.approve('fixture')
    await failure(here.callTool(...CALL), 'ERR_CALL_DENIED')
    assert.equal(asked.length, 2)
  })

  test('is for its call alone where the same was approved anew meanwhile', async (t) => {
    const { here, outcome, asked, writes } = await late(t, ({ here }) => here.approve('fixture'))
    assert.deepEqual([outcome, writes()], ['sent', 1])
    await failure(here.callTool(...CALL), 'ERR_CALL_DENIED')
    assert.equal(asked.length, 2)
  })

  test('sends nothing where another process has taken the approval back and given the same again', async (t) => {
    const { here, outcome, asked, writes } = await late(t, ({ again }) => again())
    assert.deepEqual([outcome, writes()], ['ERR_NOT_APPROVED', 0])
    await failure(here.callTool(...CALL), 'ERR_CALL_DENIED')
    assert.equal(asked.length, 2)
  })

  test('sends nothing where the tool is approved in another way by then', async (t) => {
    const change = ({ here }) => changeAndApprove(here, 'write_note', 'Writes it, and mails it')
    const { here, outcome, writes } = await late(t, change)
    assert.deepEqual([outcome, writes()], ['ERR_TOOL_CHANGED', 0])
    await failure(here.callTool(...CALL), 'ERR_CALL_DENIED')
  })

  test('sends nothing where the server was disabled meanwhile, and is no permission once it is enabled again', async (t) => {
    const change = async ({ here }) => {
      await here.disable('fixture')
      await here.enable('fixture')
    }
    const { here, outcome, writes } = await late(t, change)
    assert.deepEqual([outcome, writes()], ['ERR_NOT_ENABLED', 0])
    await failure(here.callTool(...CALL), 'ERR_CALL_DENIED')
  })
})

test('What the config disables is not used any more, whoever enabled it before, and comes back as it was', async (t) => {
  const home = folder(t)
  const [path, stateDir] = [join(home, 'config.json'), join(home, 'state')]
  const write = (disabled) => writeFileSync(path, JSON.stringify({ mcpServers: { fixture: { ...fixture(), disabled } } }))
  write(false)
  const gateway = await openGateway(t, {}, { config: undefined, configPath: path, stateDir })
  await gateway.approve('fixture')
  await gateway.enable('fixture')
  const hanging = failure(gateway.callTool('fixture', 'hang'), 'ERR_SERVER_DISABLED')
  await gateway.callTool('fixture', 'pid')
  write(true)
  assert.deepEqual((await gateway.reload()).changed, ['fixture'])
  await hanging
  await failure(gateway.callTool('fixture', 'pid'), 'ERR_SERVER_DISABLED')
  assert.equal(gateway.servers()[0].enabled, false)
  assert.ok(!(await gateway.listModules()).some(({ name }) => name === 'mcp-fixture'))
  write(false)
  await gateway.reload()
  await gateway.callTool('fixture', 'pid')
})
