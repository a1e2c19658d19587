// Runs the server scenarios of the official conformance suite on `hyperlight-mcp serve --http`, with a server behind it that has everything
// that the suite names (conformance-inner.mjs). The suite calls tools by fixed names. Scenarios that do so run through a proxy that only
// changes names (renaming-proxy.mjs). All others run at the product's own address.
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { list, REVISIONS, required, results, suite } from './conformance-suite.mjs'
import { startProxy } from './renaming-proxy.mjs'

const { Gateway } = createRequire(import.meta.url)('../..')
const PROGRAM = resolve('bin/hyperlight-mcp.mjs')
const INNER = resolve('scripts/lib/conformance-inner.mjs')
/** Servers whose approval is revoked while the suite listens. This changes the lists of tools and prompts. */
const SPARE = ['spare1', 'spare2', 'spare3', 'spare4']
/** The scenarios that call tools by the suite's names, or look for them in the list. */
const BY_NAME = /^(tools-call-|elicitation-|json-schema-|input-required-result-|server-stateless$|http-custom-header-)/
const NAMES = {
  prefix: 'mcp_suite_',
  keys: { test_input_required_result_elicitation: { q1: 'user_name' } },
}

/** The product, with an approved server, until `close`. */
class Product {
  #folder = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-conformance-server-'))
  #spare = [...SPARE]
  #child
  /** The person who approves: a separate gateway with the same folder of approvals. */
  #person

  async start() {
    // The suite's client has roots. The server is told only of those that lie within the roots of its own entry.
    const inner = { command: process.execPath, args: [INNER], confirm: 'never', roots: [this.#folder] }
    const spare = { command: process.execPath, args: [INNER, '--spare'], confirm: 'never' }
    const servers = { suite: inner, ...Object.fromEntries(SPARE.map((name) => [name, spare])) }
    writeFileSync(join(this.#folder, 'config.json'), JSON.stringify({ mcpServers: servers }))
    this.#person = await Gateway.open({ config: { mcpServers: servers }, stateDir: join(this.#folder, 'state') })
    for (const name of Object.keys(servers)) await this.#person.approve(name)
    const words = ['serve', '--http', '0', '--direct', 'suite', ...this.#place]
    this.#child = spawn(process.execPath, [PROGRAM, ...words], { stdio: ['ignore', 'ignore', 'pipe'] })
    let said = ''
    for await (const part of this.#child.stderr.setEncoding('utf8').iterator({ destroyOnReturn: false })) {
      said += part
      const url = /serving (http\S+)/.exec(said)?.[1]
      if (!url) continue
      this.#child.stderr.resume()
      return url
    }
    throw new Error(`serve has ended: ${said}`)
  }

  /** Changes what is served, as a person does while the program runs. The suite waits for 1.5 s, and the program checks each second. */
  async change() {
    const name = this.#spare.shift()
    if (name) await this.#person.revoke(name)
  }

  async close() {
    if (this.#child?.exitCode === null) {
      const ended = new Promise((end) => this.#child.once('exit', end))
      this.#child.kill('SIGTERM')
      await ended
    }
    await this.#person?.close()
    rmSync(this.#folder, { recursive: true, force: true })
  }

  get #place() {
    return ['--config', join(this.#folder, 'config.json'), '--state', join(this.#folder, 'state')]
  }
}

/** Runs a revision's scenarios at the product and through the proxy. Takes each scenario's result from the address where it belongs. */
async function runRevision(folder, revision, addresses) {
  const found = {}
  for (const [way, url] of Object.entries(addresses)) {
    const into = join(folder, revision, way)
    mkdirSync(into, { recursive: true })
    await suite(['server', '--url', url, '--requirements', revision, '-o', into])
    found[way] = results(into, 'server-')
  }
  return (name) => found[BY_NAME.test(name) ? 'renamed' : 'own'].get(name)
}

/** Returns each scenario's result, by revision, and which scenarios each revision requires. */
export async function runServer(folder) {
  const known = await list('--server')
  const product = new Product()
  let proxy
  try {
    const own = await product.start()
    const change = () => product.change()
    proxy = await startProxy(own, { ...NAMES, hooks: { test_trigger_tool_change: change, test_trigger_prompt_change: change } })
    const found = []
    const sets = new Map()
    for (const revision of REVISIONS) {
      const set = await required(revision, 'server', known)
      sets.set(revision, set)
      const result = await runRevision(folder, revision, { own, renamed: proxy.url })
      for (const name of [...set.scored, ...set.besides])
        found.push({ revision, name, result: result(name), scored: set.scored.includes(name) })
    }
    const covered = new Set(found.map(({ name }) => name))
    const others = known.filter(({ name }) => !covered.has(name))
    const into = join(folder, 'others')
    mkdirSync(into, { recursive: true })
    await Promise.all(others.map(({ name }) => suite(['server', '--url', own, '--scenario', name, '-o', into])))
    const written = results(into, 'server-')
    for (const { name, note } of others) found.push({ revision: 'others', name, result: written.get(name), note })
    return { found, sets }
  } finally {
    proxy?.close()
    await product.close()
  }
}
