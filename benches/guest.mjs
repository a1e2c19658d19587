// Measures what the guest costs: its size, its boot time, a first and a next run, private memory, and the time of its globals in a run.
//
//   node --expose-gc benches/guest.mjs [--against CHECKOUT] [--repetitions 7] [--guest auto|standard|ring3]
//
// `--against` names another checkout of this repository that is built. Its figures are printed beside these, for a comparison of before and
// after. Each repetition is a separate process, because a guest boots once in a process. The two builds take turns. The results are
// medians.
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parseArgs, promisify } from 'node:util'

const RUNS = 30
const SANDBOXES = 8

const ROWS = {
  size: ['size of the guest', 'KiB'],
  boot: ['first sandbox (boots the guest)', 'ms'],
  runFirst: ['first run', 'ms'],
  runNext: ['next run', 'ms'],
  memoryBooted: ['private memory after the boot', 'MiB'],
  memoryRunning: ['private memory of each sandbox that is running', 'MiB'],
  now: ['performance.now()', 'us'],
  random: ['Math.random()', 'us'],
  uuid: ['crypto.randomUUID()', 'us'],
  url: ['new URL() of 60 characters', 'us'],
  encode: ['TextEncoder and TextDecoder, 100 KiB', 'us'],
  clone: ['structuredClone of 100 records', 'us'],
  sleep: ['sleep(0)', 'us'],
}

/** Code in the guest that measures the microseconds of each global, as the median of batches. Globals that do not exist are left out. */
const GLOBALS = `
  import * as mcp from "host:mcp";
  const text = "aß€😀".repeat(10_240);
  const records = Array.from({ length: 100 }, (_, id) => ({ id, name: "name " + id, tags: ["a", "b"], at: new Date(id) }));
  const WORK = {
    now: [() => performance.now(), 200],
    random: [() => Math.random(), 1000],
    uuid: [() => crypto.randomUUID(), 200],
    url: [() => new URL("https://user@example.org:8080/a/b/../c?x=1&y=2#fragment-of-it"), 200],
    encode: [() => new TextDecoder().decode(new TextEncoder().encode(text)), 10],
    clone: [() => structuredClone(records), 10],
    sleep: [() => mcp.sleep(0), 50],
  };
  export async function handler() {
    const found = {};
    for (const [name, [work, size]] of Object.entries(WORK)) {
      try {
        await work();
        const times = [];
        for (let batch = 0; batch < 11; batch += 1) {
          const begun = performance.now();
          for (let index = 0; index < size; index += 1) await work();
          times.push((performance.now() - begun) * 1000 / size);
        }
        found[name] = times.sort((a, b) => a - b)[5];
      } catch {}
    }
    return found;
  }`

function privateMemory() {
  globalThis.gc()
  const found = readFileSync('/proc/self/smaps_rollup', 'utf8').matchAll(/^Private_(?:Clean|Dirty):\s+(\d+) kB/gm)
  return [...found].reduce((sum, [, size]) => sum + Number(size), 0) / 1024
}

async function milliseconds(work) {
  const begun = performance.now()
  await work()
  return performance.now() - begun
}

/** Returns the memory that a running sandbox adds, while several wait in a call. */
async function runningMemory(gateway) {
  const before = privateMemory()
  let release
  let arrived
  const released = new Promise((resolve) => {
    release = resolve
  })
  const everyone = new Promise((resolve) => {
    arrived = resolve
  })
  let waiting = 0
  const wait = () => {
    waiting += 1
    if (waiting === SANDBOXES) arrived()
    return released
  }
  const runs = []
  for (let index = 0; index < SANDBOXES; index += 1) {
    const sandbox = await gateway.sandbox()
    sandbox.hostModule('gate', { wait })
    runs.push(sandbox.run('import { wait } from "host:gate"; export const handler = () => { wait() }'))
  }
  await Promise.race([everyone, Promise.all(runs)])
  const memory = (privateMemory() - before) / SANDBOXES
  release()
  await Promise.all(runs)
  return memory
}

async function measure({ checkout, guest }) {
  const { Gateway } = await import(pathToFileURL(join(checkout, 'index.mjs')))
  const folder = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-bench-'))
  const gateway = await Gateway.open({ config: {}, stateDir: join(folder, 'state'), guest })
  try {
    const one = 'export const handler = () => 1'
    const values = {}
    let sandbox
    const before = privateMemory()
    values.boot = await milliseconds(async () => {
      sandbox = await gateway.sandbox()
      await gateway.hypervisor()
    })
    values.memoryBooted = privateMemory() - before
    values.runFirst = await milliseconds(() => sandbox.run(one))
    const next = []
    for (let index = 0; index < RUNS; index += 1) next.push(await milliseconds(() => sandbox.run(one)))
    values.runNext = median(next)
    values.memoryRunning = await runningMemory(gateway)
    const kind = (await gateway.hypervisor()).guest
    values.size = JSON.parse(readFileSync(join(checkout, 'guest/out/guest.json'), 'utf8'))[kind].bytes / 1024
    return { kind, values: { ...values, ...(await sandbox.run(GLOBALS)).value } }
  } finally {
    await gateway.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]

async function main() {
  const { values: given } = parseArgs({
    options: { against: { type: 'string' }, repetitions: { type: 'string', default: '7' }, guest: { type: 'string', default: 'auto' } },
  })
  const here = dirname(dirname(fileURLToPath(import.meta.url)))
  const checkouts = [...(given.against === undefined ? [] : [resolve(given.against)]), here]
  const found = checkouts.map(() => [])
  for (let repetition = 0; repetition < Number(given.repetitions); repetition += 1) {
    for (const [index, checkout] of checkouts.entries()) {
      const task = JSON.stringify({ checkout, guest: given.guest })
      const { stdout } = await promisify(execFile)(process.execPath, ['--expose-gc', fileURLToPath(import.meta.url), '--task', task])
      found[index].push(JSON.parse(stdout))
    }
  }
  const heads = given.against === undefined ? [found[0][0].kind] : ['before', 'now']
  console.log(`${''.padEnd(50)}${heads.map((head) => head.padStart(12)).join('')}`)
  for (const [key, [title, unit]] of Object.entries(ROWS)) {
    const cells = found.map((all) => {
      const values = all.map(({ values }) => values[key]).filter((value) => value !== undefined)
      return values.length === 0 ? '-' : median(values).toFixed(2)
    })
    console.log(`${`${title} (${unit})`.padEnd(50)}${cells.map((cell) => cell.padStart(12)).join('')}`)
  }
}

if (process.argv[2] === '--task') console.log(JSON.stringify(await measure(JSON.parse(process.argv[3]))))
else await main()
