// Approves MCP servers from a terminal: shows all that a person must see, at both stages, and asks.
//
//   node examples/approve.mjs CONFIG [--state FOLDER] [--yes] [SERVER…]
//
//   --state FOLDER   where approvals are kept (default: ~/.hyperagent/hyperlight-mcp)
//   --yes            says yes to all that is shown, for scripts; then what is shown belongs in their log
//   SERVER…          only these (default: all that are not approved yet)
//
// Exit code 0: all of them are approved; 1: not all; 2: it could not be tried.
import { createInterface } from 'node:readline/promises'
import { parseArgs, stripVTControlCharacters } from 'node:util'
import { Gateway } from 'hyperlight-mcp'

// A server's own texts are not trusted: colours, cursor movements and line breaks are removed.
// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are removed
const plain = (text) => stripVTControlCharacters(String(text)).replace(/[\u0000-\u001f\u007f-\u009f]+/g, ' ')
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : JSON.stringify(word))

function showCommand(request) {
  if (request.lapsed) console.log(`  asked again     ${plain(request.lapsed)}`)
  if (request.url) console.log(`  connects to     ${plain(request.url)}${request.unicodeHost ? ` (${plain(request.unicodeHost)})` : ''}`)
  else console.log(`  runs            ${plain([request.command, ...request.args].map(quoted).join(' '))}`)
  if (request.cwd) console.log(`  in the folder   ${plain(request.cwd)}`)
  if (request.workspaceFolder) console.log(`  a yes holds in  ${plain(request.workspaceFolder)}`)
  if (request.executable)
    console.log(`  the program     ${plain(request.executable.path)} (SHA-256 ${request.executable.sha256.slice(0, 16)}…)`)
  if (request.envFile) console.log(`  variables from  ${plain(request.envFile)}`)
  if (request.headers.length > 0) console.log(`  headers         ${request.headers.map(plain).join(', ')}`)
  console.log(`  environment     ${request.environment.map(plain).join(', ') || '(nothing of yours)'}`)
  for (const name of request.loaders) console.log(`  LOOK            ${plain(name)} can make a program load other code`)
  if (request.inputDefaults) console.log(`  if not asked    ${request.inputDefaults.map(plain).join(', ')}`)
  if (request.allowTools) console.log(`  only its tools  ${request.allowTools.map(plain).join(', ')}`)
  if (request.denyTools.length > 0) console.log(`  never its tools ${request.denyTools.map(plain).join(', ')}`)
  console.log(`  asks            ${{ never: 'never', writes: 'before writes', always: 'before every call' }[request.confirm]}`)
  console.log(`  warning         ${request.warning}`)
  // The box's rights, and what other servers can change of this one.
  for (const sentence of [...(request.box?.allows ?? []), ...(request.changeableBy ?? [])])
    console.log(`                  ${plain(sentence)}`)
}

function showManifest(request) {
  console.log(`  calls itself    ${plain(request.serverName)} ${plain(request.serverVersion)}`)
  if (request.instructions) console.log(`  tells the model ${plain(request.instructions)}`)
  for (const tool of request.tools) {
    const kind = tool.annotations?.readOnlyHint ? 'reads ' : 'WRITES' // what it does not say of itself is taken for a write
    console.log(`  ${kind} ${plain(tool.name)}: ${plain(tool.description ?? '(no description)')}`)
  }
  for (const warning of request.warnings) console.log(`  note            ${plain(warning)}`)
  for (const { severity, reason, tool, field, excerpt } of request.findings) {
    console.log(`  LOOK (${severity})   ${plain(reason)} ${plain(tool ?? 'the server')}, ${plain(field)}: ${plain(excerpt)}`)
  }
  if (!request.changes) return
  const { differences, ...changes } = request.changes
  for (const [change, names] of Object.entries(changes)) {
    if (names.length > 0) console.log(`  ${change} since you last said yes: ${names.map(plain).join(', ')}`)
  }
  for (const { tool, field, before, after } of differences) {
    console.log(`  ${plain(tool)}, ${plain(field)}: was ${plain(JSON.stringify(before))}, is ${plain(JSON.stringify(after))}`)
  }
}

/** Both stages of one server; whether it is approved at the end. */
async function review(gateway, name, ask) {
  const seen = new Set()
  for (;;) {
    const request = await gateway.approvalRequest(name)
    if (request.approved) return true
    // If a request was approved a moment ago and is not valid, it is not shown again.
    if (seen.has(request.digest)) throw new Error(`its approval is not valid: ${request.lapsed ?? 'no reason is known'}`)
    seen.add(request.digest)
    const isCommand = request.stage === 'command'
    console.log(`\n${name}: ${isCommand ? 'may this run?' : 'may a model read and call this?'}`)
    if (isCommand) showCommand(request)
    else showManifest(request)
    if (!(await ask(`approve the ${isCommand ? 'command' : 'tools'} of ${name}? [y/N] `))) return false
    // The digest approves exactly the shown request. If the request has changed since, this fails.
    await gateway.approve(name, request.digest)
  }
}

async function main() {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { state: { type: 'string' }, yes: { type: 'boolean' } } })
  const [configPath, ...wanted] = positionals
  if (!configPath) throw new Error('usage: approve.mjs CONFIG [--state FOLDER] [--yes] [SERVER…]')
  if (!values.yes && !process.stdin.isTTY) throw new Error('nobody to ask: stdin is not a terminal (--yes approves everything)')
  const terminal = values.yes ? undefined : createInterface({ input: process.stdin, output: process.stdout })
  // The end of the input (Ctrl+D) counts as no.
  const answer = (question) => terminal.question(question).catch(() => 'no')
  const ask = async (question) => !terminal || /^y(es)?$/i.test((await answer(question)).trim())

  const gateway = await Gateway.open({ configPath, ...(values.state && { stateDir: values.state }) })
  let all = true
  try {
    const names = wanted.length > 0 ? wanted : gateway.servers().map(({ name }) => name)
    for (const name of names) {
      try {
        const approved = await review(gateway, name, ask)
        console.log(`${name}: ${approved ? 'approved' : 'not approved'}`)
        all &&= approved
      } catch (error) {
        console.log(`${name}: ${error.code ? `${error.code}: ` : ''}${plain(error.message)}`)
        all = false
      }
    }
  } finally {
    terminal?.close()
    await gateway.close()
  }
  return all ? 0 : 1
}

try {
  process.exitCode = await main()
} catch (error) {
  console.error(`approve: ${error.message}`)
  process.exitCode = 2
}
