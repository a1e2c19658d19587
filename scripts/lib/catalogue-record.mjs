// The record of the servers of the catalogue that were started, because they need no key: for each the package with its version, and the
// names of its tools.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const registry = fileURLToPath(new URL('../../src/registry', import.meta.url))
const RECORD = join(registry, 'catalogue-started.json')
const DAY_MS = 86_400_000

const read = (file) => JSON.parse(readFileSync(file, 'utf8'))

/** The catalogue's definitions of servers that need no key. */
export const keyless = () => read(join(registry, 'catalogue.json')).filter(({ envRequired }) => envRequired.length === 0)

/** Returns the record: `{ package, tools }` by the name of the server. */
export const recorded = () => read(RECORD)

/** Replaces the entries of these servers in the record. Servers that the catalogue does not have any more are removed. */
export function record(started) {
  const all = { ...recorded(), ...started }
  const kept = keyless().flatMap(({ name }) => (all[name] ? [[name, all[name]]] : []))
  const lines = kept.map(([name, entry]) => `  ${JSON.stringify(name)}: ${JSON.stringify(entry)}`)
  writeFileSync(RECORD, `{\n${lines.join(',\n')}\n}\n`)
}

/** Returns, in one line, how a started server differs from its record. Returns `undefined` if it does not. */
export function difference(entry, { package: version, tools }) {
  if (entry === undefined) return 'was not recorded'
  if (entry.package !== version) return `${entry.package} was recorded, and not ${version}`
  const missing = entry.tools.filter((tool) => !tools.includes(tool))
  const added = tools.filter((tool) => !entry.tools.includes(tool))
  const words = [...missing.map((tool) => `${tool} is missing`), ...added.map((tool) => `${tool} is new`)]
  return words.length > 0 ? words.join(', ') : undefined
}

/** Returns `count` of the servers: others every day, until each has had its turn. */
export function sampled(servers, count, now) {
  const first = (Math.floor(now / DAY_MS) * count) % servers.length
  return [...servers, ...servers].slice(first, first + Math.min(count, servers.length))
}
