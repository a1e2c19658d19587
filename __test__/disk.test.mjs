// Tests that the disk never blocks Node's main thread: a method that returns no promise reads no file.
import assert from 'node:assert/strict'
import { mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { failure, fixture, folder, guest, ms, openApproved, openGateway, outputOf, root, run, waitFor } from './support.mjs'

/** Returns what a separate program prints. A program that hangs is ended. This process could not notice that its own main thread hangs. */
async function printed(t, code) {
  const { code: exit, stdout, stderr } = await run(t, process.execPath, ['--input-type=module', '--eval', code], { limit: ms(60_000) })
  assert.equal(exit, 0, stderr)
  return JSON.parse(stdout)
}

test('entries that name devices and pipes are listed at once, pinned or not', async (t) => {
  const at = folder(t)
  outputOf('mkfifo', [join(at, 'pipe')])
  const entry = (command) => ({ command, pinExecutable: true, pinValues: true, envFile: join(at, 'pipe') })
  const mcpServers = { zero: entry('/dev/zero'), pipe: entry(join(at, 'pipe')), plain: { command: '/dev/zero' } }
  const options = { config: { mcpServers }, stateDir: join(at, 'state'), workspaceFolder: at, guest, enable: 'approved' }
  const states = await printed(
    t,
    `import { Gateway } from ${JSON.stringify(join(root, 'index.mjs'))}
    const gateway = await Gateway.open(${JSON.stringify(options)})
    const states = () => gateway.servers().map(({ state }) => state)
    const told = [states()]
    for (const name of ['zero', 'pipe']) {
      const { digest, executable } = await gateway.approvalRequest(name)
      await gateway.approve(name, digest)
      told.push(executable ?? null, await gateway.test(name).catch(({ code, message }) => [code, /regular file/.test(message)]), states())
    }
    console.log(JSON.stringify(told))
    await gateway.close()`,
  )
  const [unapproved, refused] = [Array(3).fill('unapproved'), ['ERR_NOT_APPROVED', true]]
  assert.deepEqual(states, [unapproved, null, refused, unapproved, null, refused, unapproved])
})

test('what is told without a promise reads no approvals', async (t) => {
  const told = {
    'servers()': (gateway) => gateway.servers()[0].approved,
    // The results of these methods read the approvals again when they are used, and may then see a newer state.
    'pluginRegistration()': (gateway) => gateway.pluginRegistration('fixture').name === 'mcp-fixture',
    'agentTools()': (gateway) => /mcp-fixture/.test(gateway.agentTools({ describeServers: 500 })[0].description),
    'plugin()': (gateway) => gateway.plugin().name === 'hyperlight-mcp',
  }
  for (const [name, tell] of Object.entries(told)) {
    const stateDir = join(folder(t), 'state')
    const gateway = await openApproved(t, { fixture: fixture('--tools', 'echo') }, { stateDir })
    // From now on, reading the store fails.
    renameSync(join(stateDir, 'store.sqlite3'), join(stateDir, 'aside'))
    mkdirSync(join(stateDir, 'store.sqlite3'))
    assert.equal(tell(gateway), true, name)
    // The store is still read in the background, for the next caller. A method that returns a promise reads the store itself.
    await failure(gateway.enable('fixture'), 'ERR_APPROVAL_STORE')
    await failure(() => gateway.servers(), 'ERR_APPROVAL_STORE')
  }
})

test('what another program approves is told a moment after it was asked for', async (t) => {
  const stateDir = join(folder(t), 'state')
  const servers = { fixture: fixture() }
  const [here, there] = [await openGateway(t, servers, { stateDir }), await openGateway(t, servers, { stateDir })]
  await there.approve('fixture')
  await waitFor('the approval', () => here.servers()[0].approved)
  assert.equal((await here.serverInfo('fixture')).approved, true)
  await there.revoke('fixture')
  await waitFor('the revocation', () => !here.servers()[0].approved)
})
