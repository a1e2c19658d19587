// What others wrote, read: a list of copies, instruction counts.

const KINDS = ['text', 'bytes']

/**
 * How often a large result is copied, by the table below the heading "Copies" of docs/PERFORMANCE.md: a line a place, `| place | text | bytes |`, with
 * the number of copies there. Nothing where there is no such line.
 */
export function copies(markdown) {
  const section = /^## Copies$([\s\S]*?)(?=^## |(?![\s\S]))/m.exec(markdown)?.[1] ?? ''
  const lines = [...section.matchAll(/^\|[^|\n]+\| *(\d+) *\| *(\d+) *\|$/gm)]
  if (lines.length === 0) return undefined
  return Object.fromEntries(KINDS.map((kind, at) => [kind, lines.reduce((sum, line) => sum + Number(line[at + 1]), 0)]))
}

/** The instructions that callgrind says it collected. */
export function instructions(output) {
  const found = /Collected *: *(\d+)/.exec(output)
  if (found === null) throw new Error(`callgrind told no count: ${output.slice(-300)}`)
  return Number(found[1])
}

/** What a call costs between two counts of calls, in instructions of whole processes. */
export const perCall = ([fewCalls, few], [manyCalls, many]) => (many - few) / (manyCalls - fewCalls)
