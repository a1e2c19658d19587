// Tests that a process that finds the guest's snapshot does not boot the guest, and that a snapshot with any problem is replaced.
import assert from 'node:assert/strict'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'
import { folder, run } from './support.mjs'

const script = fileURLToPath(new URL('fixtures/first-result.mjs', import.meta.url))

/**
 * Returns the first result of another process, and the origin of its snapshot. With `keeps`, the process ends after its snapshot is saved.
 */
async function firstResult(t, snapshotDir, keeps = true) {
  const { code, stdout, stderr } = await run(t, process.execPath, [script, JSON.stringify({ snapshotDir, keeps })])
  assert.equal(code, 0, stderr)
  return JSON.parse(stdout)
}

const snapshots = (folder) => readdirSync(folder).filter((name) => /^[0-9a-f]{64}$/.test(name))

function files(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name)
    return entry.isDirectory() ? files(path) : [path]
  })
}

/** A folder with a snapshot of this machine's guest. */
async function kept(t) {
  const place = join(folder(t), 'snapshots')
  assert.deepEqual(await firstResult(t, place), { value: 3, snapshot: 'booted' })
  const [name] = snapshots(place)
  return { place, snapshot: join(place, name) }
}

describe('the snapshot on disk', () => {
  it('is made by the first process and found by the next, readable by the user alone', async (t) => {
    const { place, snapshot } = await kept(t)
    assert.deepEqual(await firstResult(t, place), { value: 3, snapshot: 'found' })
    assert.equal(snapshots(place).length, 1)
    assert.equal(statSync(place).mode & 0o777, 0o700)
    for (const file of files(snapshot)) assert.equal(statSync(file).mode & 0o777, 0o600, file)
    const memory = files(snapshot)
      .map((file) => statSync(file))
      .sort((a, b) => b.size - a.size)[0]
    assert.ok(memory.blocks * 512 < memory.size / 4, 'its zeroes do not lie on the disk')
  })

  it('is not used, and made anew, where a byte has changed, a file is missing or cut, or others may write it', async (t) => {
    const { place, snapshot } = await kept(t)
    const largest = (all) => all.sort((a, b) => statSync(b).size - statSync(a).size)[0]
    const harms = {
      'a byte has changed': () => {
        const file = largest(files(snapshot))
        const bytes = readFileSync(file)
        bytes[8192 + 5] ^= 1
        writeFileSync(file, bytes)
      },
      'a file is cut': () => writeFileSync(join(snapshot, 'index.json'), '{'),
      'the record is no JSON': () => writeFileSync(join(snapshot, 'kept.json'), 'x'),
      'others may write it': () => chmodSync(join(snapshot, 'index.json'), 0o622),
      'it is a link to another': () => {
        renameSync(snapshot, join(place, 'elsewhere'))
        symlinkSync(join(place, 'elsewhere'), snapshot)
      },
      'it is not a folder of ours': () => {
        renameSync(snapshot, join(place, 'aside'))
        mkdirSync(snapshot, { mode: 0o755 })
      },
    }
    for (const [harm, apply] of Object.entries(harms)) {
      apply()
      assert.deepEqual(await firstResult(t, place), { value: 3, snapshot: 'booted' }, harm)
      assert.deepEqual(await firstResult(t, place), { value: 3, snapshot: 'found' }, `after: ${harm}`)
    }
  })

  it('is left alone in a folder that others may write to, and the run goes on without', async (t) => {
    const place = join(folder(t), 'snapshots')
    mkdirSync(place)
    chmodSync(place, 0o777)
    assert.deepEqual(await firstResult(t, place, false), { value: 3, snapshot: 'booted' })
    assert.deepEqual(readdirSync(place), [])
  })

  it('is not made where none is to be kept', async (t) => {
    assert.deepEqual(await firstResult(t, false, false), { value: 3, snapshot: 'booted' })
  })

  it('is made by several processes at once, and one of them is kept', async (t) => {
    const place = join(folder(t), 'snapshots')
    const results = await Promise.all([1, 2, 3].map(() => firstResult(t, place)))
    for (const { value } of results) assert.equal(value, 3)
    assert.equal(snapshots(place).length, 1)
    assert.ok(existsSync(join(place, snapshots(place)[0], 'kept.json')))
    assert.deepEqual(await firstResult(t, place), { value: 3, snapshot: 'found' })
  })
})

describe('the options of warm VMs', () => {
  it('are checked', async () => {
    const { Gateway } = await import('hyperlight-mcp')
    const open = (options) => Gateway.open({ config: {}, ...options })
    await assert.rejects(open({ warm: { vms: -1 } }), { code: 'ERR_INVALID_OPTION', message: /warm\.vms/ })
    await assert.rejects(open({ warm: { vm: 1 } }), { code: 'ERR_INVALID_OPTION', message: /vms/ })
    await assert.rejects(open({ snapshotDir: 5 }), { code: 'ERR_INVALID_OPTION', message: /snapshotDir.*folder, or false/ })
  })
})
