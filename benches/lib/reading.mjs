// Reads what other programs and people wrote: a list of copies, and instruction counts.

const KINDS = ['text', 'bytes']

/**
 * Returns how often a large result is copied, according to the table below the heading "Copies" of docs/PERFORMANCE.md. The table has a
 * line for each place, `| place | text | bytes |`, with the number of copies there. Returns undefined if there is no such line.
 */
export function copies(markdown) {
  const section = /^## Copies$([\s\S]*?)(?=^## |(?![\s\S]))/m.exec(markdown)?.[1] ?? ''
  const lines = [...section.matchAll(/^\|[^|\n]+\| *(\d+) *\| *(\d+) *\|$/gm)]
  if (lines.length === 0) return undefined
  return Object.fromEntries(KINDS.map((kind, at) => [kind, lines.reduce((sum, line) => sum + Number(line[at + 1]), 0)]))
}

/** Returns the number of instructions that callgrind reports. */
export function instructions(output) {
  const found = /Collected *: *(\d+)/.exec(output)
  if (found === null) throw new Error(`callgrind told no count: ${output.slice(-300)}`)
  return Number(found[1])
}

/** Returns the instructions of one call: the difference of two whole processes, divided by the difference of their calls. */
export const perCall = ([fewCalls, few], [manyCalls, many]) => (many - few) / (manyCalls - fewCalls)
