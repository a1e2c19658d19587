// What a call costs: a tool's, an empty one, one while Node's main thread is busy, and results of a mebibyte. Each beside the baseline's.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { alternate, baseline, beside, entry, pause, perCall, withGateway } from './common.mjs'

const MEBIBYTE = 1024 * 1024
const ECHO = 'echo_text({ text: "hello" })'

/** With the fixture server both ways in one sandbox. */
async function bothWays({ server, guest }, options, work) {
  return withGateway({ servers: { fixture: entry(server) }, guest, ...options }, async (gateway) => {
    const sandbox = await gateway.sandbox()
    const usual = await baseline(sandbox, server)
    try {
      return await work(sandbox)
    } finally {
      await usual.close()
    }
  })
}

/** Microseconds of a call with rmcp alone: the median over batches, as `perCall` has it. Nothing where that program is not built. */
async function alone({ raw, server, calls }, ...options) {
  if (raw === undefined) return undefined
  return JSON.parse((await promisify(execFile)(raw, [...options, String(calls), server])).stdout).batch
}

/** What a call costs beyond rmcp alone, which is measured between the two ways. */
async function toolCall(task) {
  const { rounds, calls, raw } = task
  if (raw === undefined) return { unavailable: 'the example raw_rmcp is not built' }
  const found = await bothWays(task, {}, (sandbox) =>
    alternate(
      rounds,
      async () => ({ ours: await perCall(sandbox, 'mcp-fixture', ECHO, { calls }) }),
      async () => ({ alone: await alone(task) }),
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

/** No server is there, so that `tools()` is an empty list: what is left is the way out of the VM and back. */
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

/** Keeps this thread busy for 8 of every 10 ms; `stop` gives the share that it was. */
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

/** The same while this thread is busy: the guest's own clock tells, so that only its calls count. */
async function whileBusy(name, measure) {
  const stop = busyThread()
  const time = await measure()
  return { [name]: time, [`${name}Share`]: stop() }
}

export async function busy(task) {
  const { rounds, calls } = task
  const found = await bothWays(task, {}, (sandbox) => {
    const ours = () => perCall(sandbox, 'mcp-fixture', ECHO, { calls })
    // A tenth of the calls: each waits for the thread several times.
    const usual = () => perCall(sandbox, 'baseline', ECHO, { calls: Math.ceil(calls / 10), size: 5, warmUp: 10 })
    return alternate(
      rounds,
      async () => ({ idle: await ours() }),
      () => whileBusy('busy', ours),
      async () => ({ usualIdle: await usual() }),
      () => whileBusy('usualBusy', usual),
      async () => ({ alone: await alone(task) }),
      () => whileBusy('aloneBusy', () => alone(task)),
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

/** MiB a second from microseconds of a call that gives one MiB. */
const perSecond = (microseconds) => 1e6 / microseconds

async function largeResult(task, sandbox, [tool, call]) {
  const calls = Math.max(10, Math.ceil(task.calls / 50))
  const time = (module) => perCall(sandbox, module, call, { calls, size: 2, warmUp: 4 })
  const rmcp = () => alone({ ...task, calls }, '--tool', tool, '--arguments', JSON.stringify({ bytes: MEBIBYTE }))
  const found = await alternate(
    task.rounds,
    async () => ({ ours: await time('mcp-fixture') }),
    async () => ({ alone: await rmcp() }),
    async () => ({ usual: await time('baseline') }),
  )
  return {
    rounds: found.map(({ ours, usual }) => ({ value: perSecond(ours), reference: perSecond(usual) })),
    details: [
      beside('a call', 'us', found, ({ ours }) => ours),
      beside('a call, the baseline', 'us', found, ({ usual }) => usual),
      beside('a call, rmcp alone', 'us', found, ({ alone }) => alone),
      beside(
        'throughput of what is beyond rmcp alone, to the baseline',
        'times',
        found,
        ({ ours, usual, alone }) => (usual - alone) / (ours - alone),
      ),
    ],
  }
}

export async function bytes(task) {
  return bothWays(task, { limits: { maxResponseBytes: 2 * MEBIBYTE } }, async (sandbox) => {
    const found = {}
    for (const [key, large] of Object.entries(LARGE)) {
      found[key] = await largeResult(task, sandbox, large)
      await pause(50)
    }
    return found
  })
}
