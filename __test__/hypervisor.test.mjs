// Tests of which guest runs, and what is reported if none runs. A mount namespace simulates the machines without a hypervisor.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { emulated, fixture, folder, guest, ms, openGateway, root, runSync } from './support.mjs'

/** Runs an expression on an open gateway in a child process. The script `prepare` changes /dev for this process. */
function elsewhere(t, prepare, expression) {
  const code = `import { Gateway } from ${JSON.stringify(join(root, 'index.mjs'))}
    const config = { mcpServers: { fixture: ${JSON.stringify(fixture())} } }
    const gateway = await Gateway.open({ config, stateDir: ${JSON.stringify(join(folder(t), 'state'))} })
    const result = await (async () => ${expression})().catch(({ code, message }) => ({ code, message }))
    console.log(JSON.stringify(result)); await gateway.close()`
  const script = `${prepare}; exec "$0" --input-type=module --eval "$1"`
  const { stdout, stderr } = runSync('unshare', ['--mount', '--map-root-user', 'sh', '-c', script, process.execPath, code], {
    limit: ms(30_000),
    env: { ...process.env, EMPTY: folder(t) },
  })
  assert.notEqual(stdout, '', stderr)
  return JSON.parse(stdout)
}

// Makes /dev empty except for the devices that Node needs.
const noDevice = `cd "$EMPTY" && mount -t tmpfs none . && cd "$EMPTY" &&
  for device in null zero random urandom; do touch $device && mount --bind /dev/$device $device; done; mount --rbind . /dev`

test('the guest that runs is reported with its boot time, and the ring-3 one with a warning', async (t) => {
  const events = []
  const gateway = await openGateway(t, {}, { onEvent: (event) => events.push(event) })
  const report = await gateway.hypervisor()
  assert.equal(report.available, true)
  assert.ok(report.bootMs > 0)
  if (guest !== 'auto') assert.equal(report.guest, guest)
  assert.equal(report.warning !== undefined, report.guest === 'ring3')
  await (await gateway.sandbox()).run('export const handler = () => 1')
  assert.equal(events.filter(({ type }) => type === 'warning').length, report.guest === 'ring3' ? 1 : 0)
})

test('either guest can be forced, and one that cannot run here says which case it is', async (t) => {
  for (const forced of ['ring3', 'standard']) {
    const gateway = await openGateway(t, {}, { guest: forced })
    const report = await gateway.hypervisor()
    if (report.available) {
      assert.equal(report.guest, forced)
      assert.equal((await (await gateway.sandbox()).run('export const handler = () => 1')).value, 1)
    } else {
      assert.equal(forced, 'standard', 'the ring-3 guest runs on every KVM')
      assert.match(report.problem, /its KVM cannot run the guest/)
      await assert.rejects(gateway.sandbox(), { code: 'ERR_NO_HYPERVISOR', message: new RegExp(report.problem) })
    }
  }
})

test('without a device nothing that needs no guest fails, and a sandbox says what to do', {
  skip: emulated && 'no user namespaces there',
}, (t) => {
  const refused = elsewhere(t, noDevice, 'gateway.sandbox()')
  assert.equal(refused.code, 'ERR_NO_HYPERVISOR')
  assert.match(refused.message, /\/dev\/kvm does not exist\. Enable virtualisation/)
  const called = elsewhere(
    t,
    noDevice,
    `{ await gateway.approve('fixture'); await gateway.enable('fixture'); return gateway.callTool('fixture', 'echo_text', { text: 'hi' }) }`,
  )
  assert.deepEqual(called.content, [{ type: 'text', text: 'hi' }])
})

test('every error code is documented', () => {
  const codes = new Set(readFileSync(join(root, 'src/error/mod.rs'), 'utf8').match(/ERR_[A-Z_]+/g))
  const documented = readFileSync(join(root, 'docs/ERRORS.md'), 'utf8')
  assert.deepEqual(
    [...codes].filter((code) => !documented.includes(`\`${code}\``)),
    [],
  )
})
