// A process that needs one result. It prints `result` as soon as it has it, and then the times of its steps and of a warm run. It loads
// nothing else, because the time for that would count.
//
//   node first.cjs STATE_DIR GUEST
const { writeSync } = require('node:fs')

const marks = [performance.now()]
const mark = () => marks.push(performance.now())
const { Gateway } = require('../..')
const [stateDir, guest] = process.argv.slice(2)
const ONE = 'export const handler = () => 1'
const RUNS = 20

async function main() {
  mark()
  const gateway = await Gateway.open({ config: {}, stateDir, guest })
  mark()
  const sandbox = await gateway.sandbox()
  mark()
  await sandbox.run(ONE)
  mark()
  writeSync(1, 'result\n')
  const times = []
  for (let index = 0; index < RUNS; index += 1) {
    await new Promise((resolve) => setTimeout(resolve, 100))
    const started = performance.now()
    await sandbox.run(ONE)
    times.push(performance.now() - started)
  }
  await gateway.close()
  const [load, open, start, run] = marks.slice(1).map((at, index) => at - marks[index])
  const warm = times.sort((a, b) => a - b)[RUNS / 2]
  writeSync(1, `${JSON.stringify({ load, open, start, run, warm })}\n`)
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
