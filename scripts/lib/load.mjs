// Runs a command while other processes keep this machine busy: each allocates memory and computes. They end with the command,
// or with the process that started them.
//
//   node scripts/lib/load.mjs [--processes 6] -- COMMAND…
import { fork, spawn } from 'node:child_process'
import { constants } from 'node:os'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

/** Duration of one computation, after which a process checks whether its parent has ended. */
const SLICE_MS = 20

function busy() {
  const until = performance.now() + SLICE_MS
  while (performance.now() < until) {
    const items = Array.from({ length: 20_000 }, (_, index) => ({ key: (index * 7919) % 20_011, text: `item ${index}` }))
    JSON.parse(JSON.stringify(items.sort((one, other) => one.key - other.key)))
  }
  setImmediate(busy)
}

async function main() {
  const { values, positionals } = parseArgs({ options: { processes: { type: 'string', default: '6' } }, allowPositionals: true })
  const [command, ...args] = positionals
  if (command === undefined || !(Number(values.processes) >= 1))
    throw new Error('usage: node scripts/lib/load.mjs [--processes 6] -- COMMAND…')
  const others = Array.from({ length: Number(values.processes) }, () => fork(fileURLToPath(import.meta.url), ['--busy']))
  const child = spawn(command, args, { stdio: 'inherit' })
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal))
  try {
    process.exitCode = await new Promise((resolve, reject) => {
      child.on('error', reject).on('close', (code, signal) => resolve(code ?? 128 + constants.signals[signal]))
    })
  } finally {
    for (const other of others) other.kill()
  }
}

if (process.argv[2] === '--busy') {
  process.on('disconnect', () => process.exit())
  busy()
} else {
  await main()
}
