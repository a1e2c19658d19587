// What servers that flood cost another one: its calls beside four of them, and beside four that compute as much and say nothing.
import { median } from '../lib/statistics.mjs'
import { alternate, beside, entry, milliseconds, withGateway } from './common.mjs'

const BESIDE = 4
/** All the same work; `nothing` writes none of it. */
const FLOODS = ['stderr', 'log', 'notifications', 'progress', 'answers', 'requests']
const SILENT = 'nothing'
/** A measurement ends after so long, however few calls it has made: what is slow shows in the median. */
const MOST_MS = 5000

const name = (kind, number) => `${kind}-${number}`
const numbers = Array.from({ length: BESIDE }, (_, number) => number)

/** Milliseconds of a call of the other server: the median. */
async function call(gateway, calls) {
  const times = []
  const until = performance.now() + MOST_MS
  while (times.length < calls && performance.now() < until)
    times.push(await milliseconds(() => gateway.callTool('other', 'echo_text', { text: 'hello' })))
  return median(times)
}

/** The same beside four servers of a kind, which begin with their first call and never answer it. */
async function besideFour(gateway, kind, calls) {
  for (const number of numbers) await gateway.enable(name(kind, number))
  const begun = numbers.map((number) => gateway.callTool(name(kind, number), 'hang', {}, { timeoutMs: 600_000 }).catch(() => {}))
  // What may be said at once, before it is too much, is said.
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
  // As an agent has it: what servers say reaches JavaScript.
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
