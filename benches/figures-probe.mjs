// Makes one repetition of figures.mjs in a separate process, and prints its figures as JSON.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Gateway } from 'hyperlight-mcp'

const { calls, guest, server, raw } = JSON.parse(process.argv[2])
const RUNS = 20
const SANDBOXES = 8
const WARM_UP = 50

const BATCH = 20

// A function is called many times within one run. The microseconds of a call are the median over batches, so that other work of the machine
// has little effect. Reading the clock is itself a host call, so it is read once for each batch.
const timed = (imports, call) => `
  ${imports}
  export function handler({ batches, size, warmUp }) {
    for (let i = 0; i < warmUp; i += 1) ${call};
    const times = [];
    for (let batch = 0; batch < batches; batch += 1) {
      const started = performance.now();
      for (let i = 0; i < size; i += 1) ${call};
      times.push((performance.now() - started) * 1000 / size);
    }
    return times.sort((a, b) => a - b)[Math.floor(batches / 2)];
  }`

async function milliseconds(work) {
  const started = performance.now()
  await work()
  return performance.now() - started
}

const middle = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)]

const status = (key) => Number(new RegExp(`^${key}:\\s+(\\d+) kB`, 'm').exec(readFileSync('/proc/self/status', 'utf8'))[1]) / 1024

/** Returns the private memory of this process in MiB. */
function privateMemory() {
  globalThis.gc?.()
  const found = readFileSync('/proc/self/smaps_rollup', 'utf8').matchAll(/^Private_(?:Clean|Dirty):\s+(\d+) kB/gm)
  return [...found].reduce((sum, [, size]) => sum + Number(size), 0) / 1024
}

/** Returns the memory that sandboxes add to the process: while all of them are in a run, and after it. */
async function sandboxMemory(gateway) {
  const before = privateMemory()
  const sandboxes = []
  for (let index = 0; index < SANDBOXES; index += 1) sandboxes.push(await gateway.sandbox())
  let arrived = 0
  let release
  let everyone
  const released = new Promise((resolve) => {
    release = resolve
  })
  const allThere = new Promise((resolve) => {
    everyone = resolve
  })
  const wait = () => {
    arrived += 1
    if (arrived === SANDBOXES) everyone()
    return released
  }
  const runs = sandboxes.map((sandbox) => {
    sandbox.hostModule('gate', { wait })
    return sandbox.run('import { wait } from "host:gate"; export const handler = () => { wait() }')
  })
  await Promise.race([allThere, Promise.all(runs)])
  const running = (privateMemory() - before) / SANDBOXES
  release()
  await Promise.all(runs)
  const idle = (privateMemory() - before) / SANDBOXES
  await Promise.all(sandboxes.map((sandbox) => sandbox.close()))
  return { running, idle }
}

async function measure(gateway) {
  const values = {}
  const batches = Math.ceil(calls / BATCH)
  const input = { batches, size: BATCH, warmUp: WARM_UP }
  const one = 'export const handler = () => 1'
  let sandbox
  values.memoryProcess = privateMemory()
  values.sandboxFirst = await milliseconds(async () => {
    sandbox = await gateway.sandbox()
  })
  values.sandboxNext = await milliseconds(async () => (await gateway.sandbox()).close())
  values.runFirst = await milliseconds(() => sandbox.run(one))
  const next = []
  for (let index = 0; index < RUNS; index += 1) next.push(await milliseconds(() => sandbox.run(one)))
  values.runNext = middle(next)
  values.memoryPeakOne = status('VmHWM')
  const perCall = async (imports, call) => (await sandbox.run(timed(imports, call), { input })).value

  // No server is enabled yet, so this is only the time of the way out of the VM and back.
  values.emptyCall = await perCall('import { tools } from "host:mcp";', 'tools()')
  sandbox.hostModule('own', { direct: () => 1, promised: async () => 1 })
  values.hostModuleSync = await perCall('import * as own from "host:own";', 'own.direct()')
  values.hostModuleAsync = await perCall('import * as own from "host:own";', 'own.promised()')

  await gateway.approve('fixture')
  await gateway.enable('fixture')
  values.toolGuest = await perCall('import { echo_text } from "host:mcp-fixture";', 'echo_text({ text: "hello" })')
  if (raw) {
    values.toolRaw = JSON.parse(execFileSync(raw, [String(batches * BATCH), server], { encoding: 'utf8' })).mean
    values.bridge = values.toolGuest - values.toolRaw
  }
  const call = () => gateway.callTool('fixture', 'echo_text', { text: 'hello' })
  for (let index = 0; index < WARM_UP; index += 1) await call()
  const times = []
  for (let batch = 0; batch < batches; batch += 1) {
    const batchTime = await milliseconds(async () => {
      for (let index = 0; index < BATCH; index += 1) await call()
    })
    times.push((batchTime * 1000) / BATCH)
  }
  values.toolNode = middle(times)

  const memory = await sandboxMemory(gateway)
  values.memoryRunning = memory.running
  values.memoryIdle = memory.idle
  values.memoryPeakMany = status('VmHWM')
  return { guest: (await gateway.hypervisor()).guest, values }
}

const folder = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-bench-'))
try {
  const gateway = await Gateway.open({ config: { mcpServers: { fixture: { command: server } } }, stateDir: join(folder, 'state'), guest })
  try {
    console.log(JSON.stringify(await measure(gateway)))
  } finally {
    await gateway.close()
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}
