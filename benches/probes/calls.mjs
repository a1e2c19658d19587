// Measures what a call costs: a tool call, an empty call, a call while Node's main thread is busy, and a result of a mebibyte. Each is
// compared with the baseline.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { alternate, baseline, beside, entry, perCall, withGateway } from './common.mjs'

const MEBIBYTE = 1024 * 1024
const ECHO = 'echo_text({ text: "hello" })'

/** Runs `work` with a sandbox that has a server in both ways: as our module `host:mcp-fixture`, and as the baseline. */
async function bothWays(command, options, work) {
  return withGateway({ servers: { fixture: entry(...command) }, ...options }, async (gateway) => {
    const sandbox = await gateway.sandbox()
    const usual = await baseline(sandbox, ...command)
    try {
      return await work(sandbox)
    } finally {
      await usual.close()
    }
  })
}

/**
 * Returns the microseconds of a call with rmcp alone: the median over batches, as in `perCall`. Returns undefined if that program is not
 * built.
 */
async function alone({ raw, calls }, command, ...options) {
  if (raw === undefined) return undefined
  return JSON.parse((await promisify(execFile)(raw, [...options, String(calls), ...command])).stdout).batch
}

/** Measures what a call costs in addition to rmcp alone. rmcp is measured between the two ways. */
async function toolCall(task) {
  const { rounds, calls, raw, server, guest } = task
  if (raw === undefined) return { unavailable: 'the example raw_rmcp is not built' }
  const found = await bothWays([server], { guest }, (sandbox) =>
    alternate(
      rounds,
      async () => ({ ours: await perCall(sandbox, 'mcp-fixture', ECHO, { calls }) }),
      async () => ({ alone: await alone(task, [server]) }),
      async () => ({ usual: await perCall(sandbox, 'baseline', ECHO, { calls }) }),
    ),
  )
  return {
    rounds: found.map(({ ours, alone, usual }) => ({ value: ours - alone, reference: usual - alone })),
    details: [
      beside('rmcp alone', 'us', found, ({ alone }) => alone),
      beside('from the guest', 'us', found, ({ ours }) => ours),
      beside('from the guest, the baseline', 'us', found, ({ usual }) => usual),
    ],
  }
}

/** Measures `tools()` without servers, which returns an empty list. This is only the time of the way out of the VM and back. */
async function emptyCall({ rounds, calls, server, guest }) {
  return withGateway({ guest }, async (gateway) => {
    const sandbox = await gateway.sandbox()
    const usual = await baseline(sandbox, server)
    const found = await alternate(
      rounds,
      async () => ({ value: await perCall(sandbox, 'mcp', 'tools()', { calls }) }),
      async () => ({ reference: await perCall(sandbox, 'baseline', 'nothing()', { calls }) }),
    )
    await usual.close()
    return { rounds: found }
  })
}

export async function calls(task) {
  return { toolCall: await toolCall(task), emptyCall: await emptyCall(task) }
}

/**
 * Keeps this thread busy for 8 of every 10 ms. The returned function stops this, and returns the share of the time in which the thread was
 * busy.
 */
function busyThread() {
  const [begun, state] = [performance.now(), { busy: 0, timer: undefined }]
  const spin = () => {
    const started = performance.now()
    while (performance.now() - started < 8);
    state.busy += performance.now() - started
    state.timer = setTimeout(spin, 2)
  }
  state.timer = setTimeout(spin, 2)
  return () => {
    clearTimeout(state.timer)
    return state.busy / (performance.now() - begun)
  }
}

/** Measures the same while this thread is busy. The guest's own clock measures the time, so that only its calls count. */
async function whileBusy(name, measure) {
  const stop = busyThread()
  const time = await measure()
  return { [name]: time, [`${name}Share`]: stop() }
}

export async function busy(task) {
  const { rounds, calls, server, guest } = task
  const found = await bothWays([server], { guest }, (sandbox) => {
    const ours = () => perCall(sandbox, 'mcp-fixture', ECHO, { calls })
    // This makes only a tenth of the calls, because each waits for the thread several times.
    const usual = () => perCall(sandbox, 'baseline', ECHO, { calls: Math.ceil(calls / 10), size: 5, warmUp: 10 })
    return alternate(
      rounds,
      async () => ({ idle: await ours() }),
      () => whileBusy('busy', ours),
      async () => ({ usualIdle: await usual() }),
      () => whileBusy('usualBusy', usual),
      async () => ({ alone: await alone(task, [server]) }),
      () => whileBusy('aloneBusy', () => alone(task, [server])),
    )
  })
  return {
    busyCall: {
      rounds: found.map(({ idle, busy }) => ({ value: busy, reference: idle })),
      details: [
        beside('the baseline, while it is busy', 'us', found, ({ usualBusy }) => usualBusy),
        beside('the baseline, while it is idle', 'us', found, ({ usualIdle }) => usualIdle),
        beside('the baseline, busy to idle', 'times', found, ({ usualBusy, usualIdle }) => usualBusy / usualIdle),
        beside('rmcp alone beside such a thread, to without one', 'times', found, ({ alone, aloneBusy }) => aloneBusy / alone),
        beside('busy, in fact', '%', found, ({ busyShare }) => busyShare * 100),
      ],
    },
  }
}

const SIZE = `{ bytes: ${MEBIBYTE} }`
const LARGE = { text: ['big_text', `big_text(${SIZE})`], bytes: ['big_image', `big_image(${SIZE}).data`] }

/** Returns the MiB per second, from the microseconds of a call that returns one MiB. */
const perSecond = (microseconds) => 1e6 / microseconds

/** Measures the microseconds of such a call in each round, in both ways and with rmcp alone. */
async function largeResult(task, sandbox, command, [tool, call]) {
  const calls = Math.max(10, Math.ceil(task.calls / 50))
  const time = (module) => perCall(sandbox, module, call, { calls, size: 2, warmUp: 4 })
  const rmcp = () => alone({ ...task, calls }, command, '--tool', tool, '--arguments', JSON.stringify({ bytes: MEBIBYTE }))
  return alternate(
    task.rounds,
    async () => ({ ours: await time('mcp-fixture') }),
    async () => ({ alone: await rmcp() }),
    async () => ({ usual: await time('baseline') }),
  )
}

/** Measures each kind of large result on a server. */
async function largeResults(task, command) {
  const options = { guest: task.guest, limits: { maxResponseBytes: 2 * MEBIBYTE } }
  return bothWays(command, options, async (sandbox) => {
    const found = {}
    for (const [key, large] of Object.entries(LARGE)) found[key] = await largeResult(task, sandbox, command, large)
    return found
  })
}

export async function bytes(task) {
  const quick = await largeResults(task, [process.execPath, task.nodeServer])
  const fixture = await largeResults(task, [task.server])
  const row = (key) => ({
    rounds: quick[key].map(({ ours, usual }) => ({ value: perSecond(ours), reference: perSecond(usual) })),
    details: [
      beside('a call', 'us', quick[key], ({ ours }) => ours),
      beside('a call, the baseline', 'us', quick[key], ({ usual }) => usual),
      beside('a call, rmcp alone', 'us', quick[key], ({ alone }) => alone),
      beside(
        'throughput to the baseline, both less rmcp alone',
        'times',
        quick[key],
        ({ ours, usual, alone }) => (usual - alone) / (ours - alone),
      ),
      beside('throughput to the baseline on the Rust fixture server', 'times', fixture[key], ({ ours, usual }) => usual / ours),
      beside('a call, rmcp alone, on the Rust fixture server', 'us', fixture[key], ({ alone }) => alone),
    ],
  })
  return { text: row('text'), bytes: row('bytes') }
}
