// Measures what servers that flood cost another server: its calls beside four of them, and beside four that compute as much but write
// nothing.
import { median } from '../lib/statistics.mjs'
import { alternate, beside, entry, milliseconds, withGateway } from './common.mjs'

const BESIDE = 4
/** All of them do the same work. `nothing` does not write its result. */
const FLOODS = ['stderr', 'log', 'notifications', 'progress', 'answers', 'requests']
const SILENT = 'nothing'
/** A measurement ends after this time, even after few calls. The median shows slow calls anyway. */
const MOST_MS = 5000

const name = (kind, number) => `${kind}-${number}`
const numbers = Array.from({ length: BESIDE }, (_, number) => number)

/** Returns the median duration of calls of the other server, in milliseconds. */
async function call(gateway, calls) {
  const times = []
  const until = performance.now() + MOST_MS
  while (times.length < calls && performance.now() < until)
    times.push(await milliseconds(() => gateway.callTool('other', 'echo_text', { text: 'hello' })))
  return median(times)
}

/** Does the same beside four servers of one kind. They begin to flood with their first call, and never answer it. */
async function besideFour(gateway, kind, calls) {
  for (const number of numbers) await gateway.enable(name(kind, number))
  const begun = numbers.map((number) => gateway.callTool(name(kind, number), 'hang', {}, { timeoutMs: 600_000 }).catch(() => {}))
  // After this time, the servers have used up what they may write without a limit.
  await new Promise((resolve) => setTimeout(resolve, 500))
  const [before, started] = [process.cpuUsage(), performance.now()]
  const time = await call(gateway, calls)
  const { user, system } = process.cpuUsage(before)
  const share = (user + system) / 10 / (performance.now() - started)
  for (const number of numbers) await gateway.disable(name(kind, number))
  await Promise.all(begun)
  return { [kind]: time, [`${kind}Share`]: share }
}

export async function floods({ rounds, calls, server, guest }) {
  const kinds = [SILENT, ...FLOODS]
  const flooding = kinds.flatMap((kind) => numbers.map((number) => [name(kind, number), entry(server, '--flood', kind)]))
  const servers = { other: entry(server), ...Object.fromEntries(flooding) }
  const limits = { maxServers: flooding.length + 1, maxConnections: BESIDE + 1 }
  const told = []
  // An agent has a listener too, so messages of servers reach JavaScript.
  const found = await withGateway({ servers, guest, limits, onEvent: ({ type }) => told.push(type) }, async (gateway) => {
    for (const [name] of flooding) await gateway.disable(name)
    await call(gateway, 50)
    const steps = kinds.map((kind) => () => besideFour(gateway, kind, Math.ceil(calls / 5)))
    return alternate(rounds, async () => ({ alone: await call(gateway, calls) }), ...steps)
  })
  const worst = (round) => Math.max(...FLOODS.map((kind) => round[kind]))
  return {
    floods: {
      rounds: found.map((round) => ({ value: worst(round), reference: round[SILENT] })),
      details: [
        beside('alone', 'ms', found, ({ alone }) => alone),
        ...FLOODS.map((kind) => beside(`beside four that flood by ${kind}`, 'ms', found, (round) => round[kind])),
        ...kinds.map((kind) => beside(`processor time of this process, ${kind}`, '%', found, (round) => round[`${kind}Share`])),
        { title: 'events told in a round', unit: '', values: [told.length / rounds] },
      ],
    },
  }
}
