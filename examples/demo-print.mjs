// The output of demo.mjs. It has colours only on a terminal, and only if NO_COLOR is not set.
import { sep } from 'node:path'

const colours = process.stdout.isTTY && !process.env.NO_COLOR
const CODES = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 }
const LEVELS = { debug: 'dim', log: undefined, info: 'cyan', warn: 'yellow', error: 'red' }
const NAME_WIDTH = 24

export function paint(style, text) {
  return colours && CODES[style] ? `\u001b[${CODES[style]}m${text}\u001b[0m` : text
}

export const heading = (text) => console.log(`\n${paint('bold', `== ${text}`)}`)
export const note = (text, style) => console.log(`  ${paint(style, text)}`)
export const agentLine = (level, text) => note(`[guest ${level}]`.padEnd(15) + text, LEVELS[level])

/** Prints a name and its text. A long text is wrapped. */
export function field(name, text, style) {
  const width = Math.max(60, (process.stdout.columns ?? 120) - NAME_WIDTH - 4)
  const lines = ['']
  for (const word of text.split(' ')) {
    const line = lines.at(-1)
    if (line && line.length + 1 + word.length > width) lines.push(word)
    else lines[lines.length - 1] = line ? `${line} ${word}` : word
  }
  const painted = lines.map((line) => paint(style, line))
  console.log(`  ${name.padEnd(NAME_WIDTH)} ${painted.join(`\n${' '.repeat(NAME_WIDTH + 3)}`)}`)
}

/** The first column is text, the others are numbers. */
export function table(head, rows) {
  const widths = head.map((_, column) => Math.max(...[head, ...rows].map((row) => String(row[column]).length)))
  const line = (row) =>
    row.map((cell, column) => (column === 0 ? String(cell).padEnd(widths[0]) : String(cell).padStart(widths[column] + 2))).join('')
  console.log(`  ${paint('dim', line(head))}`)
  for (const row of rows) console.log(`  ${line(row)}`)
  console.log()
}

export const ms = (value) => (value < 1000 ? `${value.toPrecision(3)} ms` : `${(value / 1000).toFixed(1)} s`)
export const bytes = (count) => (count < 10_000 ? `${count} bytes` : `${Math.round(count / 1024)} KiB`)

/** Paths beneath a folder, by their end. */
export function shorten(path, folder) {
  return path.startsWith(folder + sep) ? `./${path.slice(folder.length + 1)}` : path
}

/** The beginning of a long text. */
export function shortened(text, length) {
  return text.length > length ? `${text.slice(0, length)}…` : text
}
