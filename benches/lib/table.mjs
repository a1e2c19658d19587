// Formats numbers and rows for a reader.

export function figure(value) {
  if (value === undefined) return '-'
  const size = Math.abs(value)
  if (size >= 100_000) return value.toExponential(2)
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 4)
}

export const withUnit = (value, unit) => `${figure(value)}${unit && value !== undefined ? ` ${unit}` : ''}`

/** Aligns the cells of lines. The columns in `right` are aligned to the right. A line with a single cell is a remark of any length. */
export function aligned(lines, right) {
  const widths = []
  for (const cells of lines.filter(({ length }) => length > 1))
    for (const [at, cell] of cells.entries()) widths[at] = Math.max(widths[at] ?? 0, cell.length)
  const padded = (cell, at) => (right.includes(at) ? cell.padStart(widths[at]) : cell.padEnd(widths[at]))
  return lines.map((cells) => (cells.length > 1 ? cells.map(padded) : cells).join('  ').trimEnd())
}

const HEAD = ['', 'figure', 'reference', 'ratio', 'goal', '']

/** Returns the lines of the table: a line for each row, and below it the row's details. */
export function table(rows) {
  const lines = [HEAD]
  for (const row of rows) {
    const found = [withUnit(row.value?.median, row.unit), withUnit(row.reference?.median, row.unit), figure(row.ratio?.median)]
    lines.push([`${row.title} : ${row.referenceTitle}`, ...found, row.goal.text, row.verdict])
    if (row.why) lines.push([`    ${row.why}`])
    for (const { title, value, unit } of row.details) lines.push([`    ${title}`, withUnit(value, unit)])
  }
  return aligned(lines, [1, 2, 3])
}

const COMPARED = ['', 'figure then', 'now', 'now/then', 'ratio then', 'now', 'now/then', '']

/** Returns the lines of a comparison of two runs, row by row. */
export function comparison(rows) {
  const lines = rows.map(({ title, unit, value, ratio, mark }) => [
    title,
    withUnit(value.before, unit),
    withUnit(value.after, unit),
    figure(value.change),
    figure(ratio.before),
    figure(ratio.after),
    figure(ratio.change),
    mark,
  ])
  return aligned([COMPARED, ...lines], [1, 2, 3, 4, 5, 6])
}
