// The demo (`npm start`): an agent's script calls three real MCP servers from inside a Hyperlight micro-VM.
//
// Read it from top to bottom: it is what a program of yours would do. The script that the agent "wrote" is in demo-agent.js; it
// is read as text and never runs in this process. Where no guest boots on this machine: scripts/with-hypervisor node examples/demo.mjs
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Gateway } from 'hyperlight-mcp'
import { attempts } from './demo-attempts.mjs'
import { agentLine, bytes, field, heading, ms, note, paint, shorten, shortened, table } from './demo-print.mjs'

const repository = dirname(dirname(fileURLToPath(import.meta.url)))

// 1. The servers, as VS Code, Claude Desktop and HyperAgent write them. `configPath` would name such a file instead.

/** The program of an npm package that is installed here. With `npx` as the command it would be fetched at its first start. */
function program(name) {
  const require = createRequire(import.meta.url)
  try {
    const manifest = require.resolve(`${name}/package.json`)
    return join(dirname(manifest), Object.values(require(manifest).bin)[0])
  } catch (cause) {
    throw new Error(`${name} is not installed; run: npm ci`, { cause })
  }
}

function servers(temporary) {
  const node = process.execPath
  const data = join(temporary, 'data')
  mkdirSync(data)
  return {
    files: { command: node, args: [program('@modelcontextprotocol/server-filesystem'), repository] },
    memory: {
      command: node,
      args: [program('@modelcontextprotocol/server-memory')],
      env: { MEMORY_FILE_PATH: join(data, 'memory.jsonl') },
      // A server can only reach the paths in its arguments, and the files and hosts that its box names.
      box: { write: [data] },
    },
    everything: { command: node, args: [program('@modelcontextprotocol/server-everything')] },
    // This one is in the config as well, but nobody will approve it.
    secrets: { command: node, args: [program('@modelcontextprotocol/server-everything')], env: { API_KEY: 'a-secret' } },
  }
}

/** Those that the demo says yes to. */
const approved = ['files', 'memory', 'everything']

// 2. A person decides which programs may run, and which tools a model may call.

/** Shows a request in short, and says yes for you. A real agent shows it to a person, and waits. (See approve.mjs.) */
async function approve(gateway, name) {
  for (;;) {
    // First the command: nothing has been started for it. After its approval the server is started, and lists its tools.
    const request = await gateway.approvalRequest(name)
    if (request.approved) return
    if (request.stage === 'command') {
      field(`${name}: command`, [request.command, ...request.args].map((word) => shorten(word, repository)).join(' '))
      field('environment', request.environment.map((entry) => entry.split('=')[0]).join(', ') || 'nothing of yours')
      field('warning', request.warning, 'yellow')
      for (const sentence of [...(request.box?.allows ?? []), ...(request.changeableBy ?? [])]) field('', sentence, 'dim')
    } else {
      field(`${name}: tools`, `${request.serverName} ${request.serverVersion} has ${request.tools.length}; * may write`)
      field('', request.tools.map((tool) => tool.name + (tool.annotations?.readOnlyHint ? '' : '*')).join(', '), 'dim')
    }
    // The digest approves exactly the shown request. If the request has changed since, this fails.
    await gateway.approve(name, request.digest)
    field('approved', `digest ${request.digest.slice(0, 12)}…`, 'green')
  }
}

/**
 * Asked before a tool is called that is not approved as read-only. A real agent shows this to a person, and waits: the time until the
 * answer counts towards no limit. After `deny` or an exception, nothing is sent.
 */
function onApproval({ server, tool, args, reason }) {
  const answer = approved.includes(server) ? 'session' : 'deny'
  field('may it be called?', `${server}.${tool} ${shortened(JSON.stringify(args), 60)}: ${reason}`, 'yellow')
  field('answer', `${answer}: ${answer === 'session' ? 'yes, and not asked again of this tool' : 'no'}`, 'green')
  return answer
}

/** Called with each event. The demo prints the lines that the guest writes to its console. */
function onEvent(event) {
  if (event.type === 'log') agentLine(event.level, event.text)
}

// 3. The agent's part: one script, one run.

// The argument of the script's `handler`: the folder to read, and the question to the graph.
const input = {
  root: repository,
  skip: [
    '.git',
    'node_modules',
    'target',
    'guest/out',
    'dist',
    'bench-results',
    '**/*.node',
    '**/hyperlight-mcp-watchdog',
    '**/hyperlight-mcp-reader',
    '**/hyperlight-mcp-box',
  ],
  topic: 'approv',
  room: 'src/sandbox',
}

function printReport(report) {
  heading('What the model gets: the value that the script returned')
  console.log(`  ${report.files} files, ${report.lines} lines, ${report.characters} characters\n`)
  const rows = (totals) => Object.entries(totals).sort(([, a], [, b]) => b.lines - a.lines)
  table(
    ['folder', 'files', 'lines'],
    rows(report.byFolder).map(([name, { files, lines }]) => [name, files, lines]),
  )
  table(
    ['kind', 'files', 'lines'],
    rows(report.byKind).map(([name, { files, lines }]) => [name, files, lines]),
  )
  table(
    ['largest', 'lines'],
    report.largest.map(({ path, lines }) => [path, lines]),
  )
  field('graph', `${report.graph.entities} entities, ${report.graph.relations} relations`)
  for (const [question, answer] of Object.entries(report.answers)) field(question, answer.join(', ') || '(none)')
  const { mimeType, bytes: size, isPng, width, height } = report.image
  field('image', `${mimeType}, ${size} bytes, ${isPng ? 'with' : 'WITHOUT'} PNG's signature, ${width}x${height}`)
}

function printCosts(stats, value, startToResult) {
  heading('What it took')
  const crossed = stats.bytesIn + stats.bytesOut
  const returned = Buffer.byteLength(JSON.stringify(value))
  field('calls', `${stats.calls} calls of tools in ${ms(stats.callMs)}, ${ms(stats.callMs / stats.calls)} each`)
  field('run', `${ms(stats.durationMs)}, of which ${ms(stats.startMs)} to make its micro-VM`)
  field('bridge', `${bytes(crossed)} crossed it: ${bytes(stats.bytesOut)} out of the VM, ${bytes(stats.bytesIn)} into it`)
  field('model', `${bytes(returned)} of it: ${((1 - returned / crossed) * 100).toFixed(1)} % was kept out of its context`, 'green')
  field('start to result', `${ms(startToResult)}, the start of Node and of three servers included`, 'bold')
}

/** Prints attempts that must fail. Each attempt is a separate run, and the printed error is the real one. */
async function printRefusals(sandbox) {
  heading('What the guest cannot do')
  for (const { aim, code } of attempts) {
    // Whoever is asked now says no. What was allowed for the session still is.
    const outcome = await sandbox.run(code, { toolErrors: 'throw', onApproval: () => 'deny' }).catch((error) => error)
    console.log(`  ${paint('bold', aim)}`)
    for (const line of code.split('\n')) console.log(`    ${paint('dim', line)}`)
    if (!(outcome instanceof Error)) throw new Error(`the guest could: ${aim}`)
    console.log(`    ${paint('red', `-> ${outcome.code}`)} ${outcome.message}`)
  }
}

async function main(temporary) {
  heading('A gateway, and a sandbox')
  const gateway = await Gateway.open({
    config: { mcpServers: servers(temporary) },
    stateDir: join(temporary, 'state'), // where approvals are kept: in a demo, only for now
    workspaceFolder: repository,
    guest: process.env.HYPERLIGHT_MCP_GUEST ?? 'auto',
    // Generous, for emulated machines. Every limit has a default: see `Limits` in index.d.ts.
    limits: { connectTimeoutMs: 60_000, runTimeoutMs: 300_000 },
    onApproval,
    onEvent,
  })
  try {
    // The only step that needs a hypervisor. If this machine has none, the error gives the reason and a remedy.
    const sandbox = await gateway.sandbox()
    const { guest, bootMs, warning } = await gateway.hypervisor()
    field('guest', `the ${guest} one, booted in ${ms(bootMs)}; each run gets a micro-VM of its own from that snapshot`)
    if (warning) field('warning', warning, 'yellow')

    heading('Approvals: what a person sees before anything runs')
    for (const name of approved) {
      await approve(gateway, name)
      await gateway.enable(name) // what is not enabled does not exist for a run, approved or not
    }
    for (const { name, state } of gateway.servers()) {
      if (state === 'unapproved') field(name, 'not approved: no process, and no module in the guest', 'dim')
    }

    heading('The agent: one script in the micro-VM (examples/demo-agent.js)')
    const code = readFileSync(join(repository, 'examples/demo-agent.js'), 'utf8')
    const { value, stats, warnings } = await sandbox.run(code, { input, toolErrors: 'throw' })
    const startToResult = performance.now() // counts from the start of this process
    for (const text of warnings) note(`warning: ${text}`, 'yellow')
    printReport(value)
    printCosts(stats, value, startToResult)
    await printRefusals(sandbox)
  } finally {
    await gateway.close() // ends the servers' processes; Node then exits by itself
  }
}

let temporary
try {
  temporary = mkdtempSync(join(tmpdir(), 'hyperlight-mcp-demo-'))
  await main(temporary)
} catch (error) {
  console.error(paint('red', `\ndemo: ${error.code ? `${error.code}: ` : ''}${error.message}`))
  process.exitCode = 1
} finally {
  if (temporary) rmSync(temporary, { recursive: true, force: true })
}
