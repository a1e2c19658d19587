// Measures what sandboxes cost: their start, a run, computing in two of them, and their memory. Also measures whether calls become slower.
import { Worker } from 'node:worker_threads'
import { median } from '../lib/statistics.mjs'
import { alternate, beside, entry, milliseconds, ONE, pause, settledMemory, withGateway } from './common.mjs'

const RUNS = 20
/** The pause between runs. It is long enough to make the next VM ready, which happens after a run and outside of its time. */
const REST = 100

async function runs(sandbox, rest) {
  const times = []
  for (let index = 0; index < RUNS; index += 1) {
    if (rest > 0) await pause(rest)
    times.push(await milliseconds(() => sandbox.run(ONE)))
  }
  return median(times)
}

/** Measures a first sandbox in this process without a stored snapshot, and then minimal runs. */
export async function start({ guest }) {
  return withGateway({ guest }, async (gateway) => {
    let sandbox
    const cold = await milliseconds(async () => {
      sandbox = await gateway.sandbox()
      await gateway.hypervisor()
    })
    const report = await gateway.hypervisor()
    const first = await milliseconds(() => sandbox.run(ONE))
    return { cold, boot: report.bootMs, first, warm: await runs(sandbox, REST), hurried: await runs(sandbox, 0), guest: report.guest }
  })
}

/** Returns the guest that boots here. */
export async function guest({ guest }) {
  return withGateway({ guest }, (gateway) => gateway.hypervisor())
}

/** Work that needs only the processor, and a little memory in the cache. */
const WORK = `(rounds) => {
  const table = Array.from({ length: 256 }, (_, index) => index);
  let sum = 0;
  for (let index = 0; index < rounds; index += 1) {
    const at = (sum + index) & 255;
    table[at] = (table[at] * 31 + index) & 0xffff;
    sum = (sum + table[at]) & 0xffffff;
  }
  return sum;
}`
const LEAST_MS = 400

/** Returns how many rounds of work are needed so that its start takes a negligible part of the time. */
async function enough(compute) {
  let work = 50_000
  while ((await milliseconds(() => compute(work))) < LEAST_MS) work *= 2
  return work
}

/** Returns the seconds that one needs, and the seconds that two need side by side. */
async function oneAndTwo(computers, work) {
  const one = await milliseconds(() => computers[0](work))
  const two = await milliseconds(() => Promise.all(computers.map((compute) => compute(work))))
  return { one: one / 1000, two: two / 1000 }
}

/** Starts a thread of Node that computes. It shows how fast this machine is at that moment. */
function computingThread() {
  const worker = new Worker(
    `const { parentPort } = require('node:worker_threads'); parentPort.on('message', (rounds) => parentPort.postMessage((${WORK})(rounds)))`,
    {
      eval: true,
    },
  )
  const compute = (work) =>
    new Promise((resolve, reject) => {
      worker.once('error', reject)
      worker.once('message', () => {
        worker.off('error', reject)
        resolve()
      })
      worker.postMessage(work)
    })
  return { compute, end: () => worker.terminate() }
}

export async function throughput({ rounds, guest }) {
  const threads = [computingThread(), computingThread()]
  const found = await withGateway({ guest }, async (gateway) => {
    const code = `const work = ${WORK}; export const handler = ({ rounds }) => work(rounds)`
    const sandboxes = [await gateway.sandbox(), await gateway.sandbox()]
    const guests = sandboxes.map((sandbox) => (work) => sandbox.run(code, { input: { rounds: work } }))
    const plain = threads.map(({ compute }) => compute)
    const [guestWork, plainWork] = [await enough(guests[0]), await enough(plain[0])]
    return alternate(
      rounds,
      async () => ({ guest: await oneAndTwo(guests, guestWork) }),
      async () => ({ plain: await oneAndTwo(plain, plainWork) }),
    )
  })
  await Promise.all(threads.map(({ end }) => end()))
  return {
    throughput: {
      rounds: found.map(({ guest }) => ({ value: 2 / guest.two, reference: 1 / guest.one })),
      details: [beside('the machine itself: two threads of Node to one', 'times', found, ({ plain }) => (2 * plain.one) / plain.two)],
    },
  }
}

const SMALL_RUN = `
  import { wait } from "host:gate";
  export const handler = () => {
    const records = Array.from({ length: 1000 }, (_, id) => ({ id, name: "name " + id }));
    const { length } = JSON.stringify(records.filter(({ id }) => id % 3 === 0));
    wait();
    return length;
  }`

function deferred() {
  const made = {}
  made.promise = new Promise((resolve) => {
    made.resolve = resolve
  })
  return made
}

/** Returns the memory while each sandbox is at the end of a small run, when its VM still exists. */
async function heldMemory(sandboxes) {
  let waiting = 0
  const [everyone, released] = [deferred(), deferred()]
  const wait = () => {
    waiting += 1
    if (waiting === sandboxes.length) everyone.resolve()
    return released.promise
  }
  const pending = sandboxes.map((sandbox) => {
    sandbox.hostModule('gate', { wait })
    return sandbox.run(SMALL_RUN)
  })
  await Promise.race([everyone.promise, Promise.all(pending)])
  const memory = await settledMemory()
  released.resolve()
  await Promise.all(pending)
  return memory
}

/** Runs `work` with a gateway that keeps this number of VMs ready. A build without the option `warm` runs with its own default. */
async function withWarm(vms, options, work) {
  const warm = { vms, maxBytes: 2 ** 30, idleMs: 600_000 }
  try {
    return await withGateway({ ...options, warm }, work)
  } catch (error) {
    if (error.code !== 'ERR_INVALID_OPTION' || !error.message.includes('warm')) throw error
    return withGateway(options, work)
  }
}

/** Returns the private memory of this process at several moments in the life of this number of sandboxes, in MiB. */
export async function memory({ guest, count, vms }) {
  return withWarm(vms, { guest }, async (gateway) => {
    const before = await settledMemory()
    const sandboxes = [await gateway.sandbox()]
    await gateway.hypervisor()
    const booted = await settledMemory()
    while (sandboxes.length < count) sandboxes.push(await gateway.sandbox())
    const idle = await settledMemory()
    const held = await heldMemory(sandboxes)
    return { before, booted, idle, held, after: await settledMemory() }
  })
}

const LONG = `
  import { echo_text } from "host:mcp-fixture";
  const call = () => { if (echo_text({ text: "hello" }) !== "hello") throw new Error("another answer"); };
  const batches = (count) => {
    const times = [];
    for (let batch = 0; batch < count / 20; batch += 1) {
      const started = performance.now();
      for (let index = 0; index < 20; index += 1) call();
      times.push((performance.now() - started) * 1000 / 20);
    }
    return times;
  };
  export const handler = ({ calls }) => {
    batches(100);
    const early = batches(1000);
    for (let index = 2000; index < calls; index += 1) call();
    return { early, late: batches(1000) };
  }`

/** Returns the microseconds of the first and of the last thousand calls, with this number of tools. */
export async function growth({ guest, server, tools, calls }) {
  const servers = { fixture: entry(server, '--tools', 'echo_text', '--many-tools', String(tools - 1)) }
  // All calls are made in one run, whose own work takes longer than the limit for endless loops.
  const limits = { runTimeoutMs: 3_600_000, computeTimeoutMs: 3_600_000 }
  return withGateway({ servers, guest, limits }, async (gateway) => {
    const sandbox = await gateway.sandbox()
    const { early, late } = (await sandbox.run(LONG, { input: { calls } })).value
    return { early: median(early), late: median(late) }
  })
}
