// Measures the tokens (of OpenAI's o200k_base) that a model needs to know its tools: the plain JSON of all tools, the declarations of all
// tools, and three tools found by search and describe. `node benches/tokens.mjs [--json FILE] [--search PROGRAM]`: PROGRAM is the example `search`, of any build.
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { encode } from 'gpt-tokenizer/encoding/o200k_base'
import { Gateway } from '../index.mjs'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const SIZES = [10, 50, 150, 1000]
const BUDGETS = [300, 1000, 2000, 8000]
/** The token limit of the prompt if tools are found by search. */
const SEARCH_BUDGET = 300
const GOAL_PERCENT = 2
const { values } = parseArgs({
  options: {
    json: { type: 'string', default: join(root, 'bench-results/tokens.json') },
    search: { type: 'string', default: join(root, 'target/x86_64-unknown-linux-gnu/release/examples/search') },
  },
})

const tokens = (text) => encode(text).length
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0)

/** Returns the first `size` tools of the catalogue, spread over its servers. */
function cut(catalogue, size) {
  const picked = catalogue.map(({ server, manifest }) => ({ server, manifest: { ...manifest, tools: [] } }))
  let left = size
  for (let index = 0; left > 0; index++) {
    const before = left
    catalogue.forEach(({ manifest }, place) => {
      if (left > 0 && index < manifest.tools.length) {
        picked[place].manifest.tools.push(manifest.tools[index])
        left--
      }
    })
    if (left === before) throw new Error(`the catalogue has fewer than ${size} tools`)
  }
  return picked.filter(({ manifest }) => manifest.tools.length > 0)
}

/** Returns three tools that are far apart, each with a query that consists of its own first words. */
function task(catalogue) {
  const all = catalogue.flatMap(({ server, manifest }) => manifest.tools.map((tool) => ({ server, tool })))
  return [0.2, 0.5, 0.8].map((part) => {
    const { server, tool } = all[Math.floor(part * all.length)]
    return { server, tool: tool.name, query: `${server} ${tool.description}`.split(/\s+/).slice(0, 8).join(' ') }
  })
}

async function measure(catalogue, folder) {
  const file = join(folder, 'catalogue.json')
  writeFileSync(file, JSON.stringify(catalogue))
  const program = join(root, 'benches/catalogue-server.mjs')
  const mcpServers = Object.fromEntries(
    catalogue.map(({ server }) => [server, { command: process.execPath, args: [program, file, server] }]),
  )
  const limits = { maxServers: 100 }
  const gateway = await Gateway.open({
    config: { mcpServers },
    stateDir: join(folder, `state-${catalogue.length}-${Math.random()}`),
    limits,
  })
  try {
    for (const { server } of catalogue) {
      await gateway.approve(server)
      await gateway.enable(server)
    }
    const wanted = task(catalogue)
    const found = await Promise.all(wanted.map(({ query }) => gateway.searchTools(query, { limit: 3 })))
    const missed = wanted.filter(({ server, tool }, index) => !found[index].some((match) => match.server === server && match.tool === tool))
    if (missed.length > 0) throw new Error(`not found: ${JSON.stringify(missed)}`)
    const described = await Promise.all(wanted.map(({ server, tool }) => gateway.toolInfo(server, tool)))
    const messages = {}
    for (const budget of BUDGETS) {
      messages[budget] = tokens(await gateway.systemMessage({ budgetTokens: budget }))
      if (messages[budget] > budget) throw new Error(`a message for ${budget} tokens has ${messages[budget]}`)
    }
    const plain = catalogue.flatMap(({ server, manifest }) =>
      manifest.tools.map(({ name, description, inputSchema }) => ({ name: `${server}__${name}`, description, input_schema: inputSchema })),
    )
    return {
      tools: plain.length,
      servers: catalogue.length,
      plain: tokens(JSON.stringify(plain)),
      declarations: tokens(await gateway.declarations()),
      search: sum([
        tokens(await gateway.systemMessage({ budgetTokens: SEARCH_BUDGET })),
        ...found.map((matches) => tokens(JSON.stringify(matches))),
        ...described.map(({ declaration }) => tokens(declaration)),
      ]),
      messages,
    }
  } finally {
    await gateway.close()
  }
}

const whole = JSON.parse(execFileSync(resolve(values.search), ['--catalogue'], { maxBuffer: 2 ** 28, encoding: 'utf8' }))
const folder = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-tokens-'))
try {
  const rows = []
  for (const size of SIZES) rows.push(await measure(cut(whole, size), folder))
  const percent = (part, of) => `${((100 * part) / of).toFixed(1)} %`
  console.log('tools  servers  plain JSON  declarations       search + describe of three   system message, by budget')
  for (const row of rows) {
    const messages = BUDGETS.map((budget) => `${budget}: ${row.messages[budget]}`).join(', ')
    console.log(
      `${String(row.tools).padStart(5)}  ${String(row.servers).padStart(7)}  ${String(row.plain).padStart(10)}  ` +
        `${`${row.declarations} (${percent(row.declarations, row.plain)})`.padStart(17)}  ${`${row.search} (${percent(row.search, row.plain)})`.padStart(26)}   ${messages}`,
    )
  }
  const last = rows.at(-1)
  const met = (100 * last.search) / last.plain <= GOAL_PERCENT
  console.log(`goal: at ${last.tools} tools at most ${GOAL_PERCENT} % of plain JSON: ${met ? 'met' : 'MISSED'}`)
  mkdirSync(dirname(resolve(values.json)), { recursive: true })
  writeFileSync(values.json, JSON.stringify(rows, null, 2))
} finally {
  rmSync(folder, { recursive: true, force: true })
}
