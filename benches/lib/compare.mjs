// Compares one run with an earlier one.

/** A smaller change is not reported, even if no rounds overlap. Instruction counts have no spread, but are not that exact. */
const LEAST_CHANGE = 0.02

/** Returns whether two spreads do not overlap, and their medians differ by more than `LEAST_CHANGE`. Noise alone does not cause this. */
export function apart(then, now) {
  if (then === undefined || now === undefined) return false
  return (now.min > then.max || now.max < then.min) && Math.abs(now.median / then.median - 1) > LEAST_CHANGE
}

function pair(then, now) {
  const change = then && now ? now.median / then.median : undefined
  return { before: then?.median, after: now?.median, change, beyondNoise: apart(then, now) }
}

const better = ({ kind }, change) => (kind === 'atMost' ? change < 1 : change > 1)

/** Describes how a row has changed. The ratio comes first, because both its sides were measured on the same machine at the same time. */
function mark(row, value, ratio, verdicts) {
  const words = []
  if (ratio.beyondNoise) words.push(better(row.goal, ratio.change) ? 'better' : 'WORSE')
  else if (value.beyondNoise) words.push(better(row.goal, value.change) ? 'figure better' : 'figure worse')
  if (verdicts[0] !== verdicts[1]) words.push(`${verdicts[0] ?? 'not measured'} -> ${verdicts[1] ?? 'not measured'}`)
  return words.join(', ')
}

/** Returns each row of either run. `beyondNoise` is true if the rounds of the two runs do not overlap. */
export function compared(then, now) {
  const keys = new Set([...now.rows, ...then.rows].map(({ key }) => key))
  return [...keys].map((key) => {
    const [before, after] = [then, now].map(({ rows }) => rows.find((row) => row.key === key))
    const row = after ?? before
    const [value, ratio] = [pair(before?.value, after?.value), pair(before?.ratio, after?.ratio)]
    return { key, title: row.title, unit: row.unit, value, ratio, mark: mark(row, value, ratio, [before?.verdict, after?.verdict]) }
  })
}

/** Returns the differences that make two runs hard to compare. They may change the figures even if the code has not changed. */
export function differences(then, now) {
  const names = { cpu: 'processor', cpus: 'number of processors', node: 'Node', guest: 'guest', emulated: 'emulation' }
  return Object.entries(names)
    .filter(([key]) => then.machine[key] !== now.machine[key])
    .map(([key, name]) => `${name}: ${then.machine[key]}, now ${now.machine[key]}`)
}
