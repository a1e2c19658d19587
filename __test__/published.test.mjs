// Tests with published servers of other authors, from npm and PyPI, as the README uses them: an entry, approve, enable, agent code. Each is in a
// box, does what its agent code asks (a read and a write), and is gone after its gateway has closed.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, readFileSync, realpathSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, test } from 'node:test'
import { approved, run as command, write } from './command-line.mjs'
import { published } from './published.mjs'
import { children, compiled, folder, ms, openGateway, root, waitFor, wholeFile } from './support.mjs'

/** Of one server. All of them together take as long as the machine needs. */
const TIMEOUT = { timeout: ms(120_000) }
/** The number of servers that start at once. More would only wait for the processors. */
const AT_ONCE = 3
const names = Object.keys(published)

/** Makes the folder of a server, and what the server expects there. */
function prepared(at, name) {
  const path = join(at, name)
  mkdirSync(path)
  published[name].prepare?.(path)
  return path
}

const codeOf = (name) => `import * as it from "host:mcp-${name}"; export const handler = (path) => (${published[name].code})(it, path)`

/** Returns a function that finds a file in the private homes of a state folder. */
const homesOf = (state) => (file) => {
  const homes = readdirSync(join(state, 'boxes')).map((home) => join(state, 'boxes', home, file))
  return homes.find(existsSync) ?? assert.fail(`${file} is in no private home`)
}

/** Returns the files of a folder, with what they contain. */
function contentsOf(path) {
  const files = readdirSync(path, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  return files.map(({ parentPath, name }) => [join(parentPath, name), readFileSync(join(parentPath, name), 'latin1')]).toSorted()
}

const before = children().map(({ pid }) => pid)
const files = realpathSync(folder(wholeFile))
const stateDir = join(realpathSync(folder(wholeFile)), 'state')
const paths = Object.fromEntries(names.map((name) => [name, prepared(files, name)]))
const mcpServers = Object.fromEntries(names.map((name) => [name, published[name].entry(paths[name])]))
const asked = []
const called = []
const gateway = await openGateway(wholeFile, mcpServers, {
  stateDir,
  trace: true,
  // A server in Python takes long to start while other work runs.
  limits: { connectTimeoutMs: ms(60_000), maxServers: names.length },
  onApproval: ({ server, tool }) => {
    asked.push(`${server}.${tool}`)
    return 'run'
  },
  onEvent: (event) => event.type === 'call' && called.push(`${event.server}.${event.tool}`),
})
const sandbox = await gateway.sandbox()
const [runTool] = gateway.agentTools()

/** Runs the agent's code of a server. If its value has an image, a model runs it, who gets the image beside the value. */
async function runCode(name) {
  const { image } = published[name]
  if (!image) return (await sandbox.run(codeOf(name), { input: paths[name] })).value
  const answer = await runTool.execute({ code: codeOf(name), input: JSON.stringify(paths[name]), timeoutMs: null })
  assert.ok(answer.content, JSON.stringify(answer))
  assert.deepEqual(
    answer.content.map(({ type, mimeType }) => [type, mimeType]),
    [['image', image]],
  )
  assert.match(Buffer.from(answer.content[0].data, 'base64').toString('latin1'), /^\x89PNG/)
  return answer.value
}

const calledOf = (name) => [...new Set(called.filter((entry) => entry.startsWith(`${name}.`)))].toSorted()

describe('In a box, agent code reads and writes with', { concurrency: AT_ONCE }, () => {
  for (const name of names) {
    const { package: packageName, python, reads, writes, check } = published[name]
    test(`${packageName} from ${python ? 'PyPI' : 'npm'}`, TIMEOUT, async () => {
      const request = await gateway.approvalRequest(name)
      assert.equal(request.stage, 'command')
      assert.match(JSON.stringify(request), /reaches no network/)
      await gateway.approve(name)
      await gateway.enable(name)
      const { errors } = await sandbox.check(codeOf(name))
      assert.deepEqual(errors ?? [], [])
      check(await runCode(name), { path: paths[name], home: homesOf(stateDir) })
      const exact = (tools) => [...tools].map((tool) => `${name}.${tool}`).toSorted()
      const expected = exact(new Set([...reads, ...writes]))
      await waitFor('the events of all calls', () => calledOf(name).length === expected.length)
      assert.deepEqual(calledOf(name), expected)
      // A person is asked about each tool that writes.
      const unasked = exact(writes).filter((tool) => !asked.includes(tool))
      assert.deepEqual(unasked, [])
    })
  }
})

test('TypeScript takes the declarations of all of them', TIMEOUT, async (t) => {
  const imports = names.map((name, index) => `import * as module${index} from "host:mcp-${name}";`)
  const uses = `export const modules = [${names.map((_, index) => `module${index}`).join()}];`
  assert.equal(compiled(t, { 'modules.d.ts': await gateway.declarations(), 'agent.ts': [...imports, uses].join('\n') }), '')
})

test('after close(), none of their processes is left', TIMEOUT, async () => {
  await gateway.close()
  const left = children().filter(({ pid }) => !before.includes(pid))
  assert.deepEqual(left, [])
})

describe('On the command line, approve and run work with', () => {
  for (const name of ['tasks', 'draw']) {
    test(published[name].package, TIMEOUT, async (t) => {
      const path = prepared(realpathSync(folder(t)), name)
      const at = await approved(t, { [name]: published[name].entry(path) })
      write(at, 'script.js', codeOf(name))
      const words = ['run', 'script.js', '--input', JSON.stringify(path), '--tool-errors', 'throw']
      const refused = await command(at, words)
      assert.equal(refused.code, 1, refused.stdout)
      assert.match(refused.stderr, /allow-writes/)
      const { code, stdout, stderr } = await command(at, [...words, '--allow-writes', name])
      assert.equal(code, 0, stderr)
      published[name].check(JSON.parse(stdout), { path, home: homesOf(join(at.home, '.hyperagent/hyperlight-mcp')) })
    })
  }
})

describe('Without its line', { concurrency: AT_ONCE }, () => {
  // Servers in Python need the same line for the same reason, and take longer.
  for (const name of names.filter((name) => published[name].needs.startsWith('`write`') && !published[name].python)) {
    test(`${published[name].package} writes nothing there`, TIMEOUT, async (t) => {
      const path = prepared(realpathSync(folder(t)), name)
      const there = contentsOf(path)
      const state = join(folder(t), 'state')
      const { box: _, ...entry } = published[name].entry(path)
      const told = []
      const onEvent = (event) => event.type === 'warning' && told.push(event.message)
      const closed = await openGateway(t, { [name]: entry }, { stateDir: state, onApproval: () => 'run', onEvent })
      const attempt = async () => {
        await closed.approve(name)
        await closed.enable(name)
        const { value } = await (await closed.sandbox()).run(codeOf(name), { input: path })
        published[name].check(value, { path, home: homesOf(state) })
      }
      // A file in the arguments that does not exist yet cannot be given, and a warning tells the author of the entry.
      const absent = entry.args.filter((argument) => argument.startsWith(path) && !existsSync(argument))
      await assert.rejects(attempt)
      assert.deepEqual(contentsOf(path), there)
      // Events shorten a path to its end.
      const warned = (file) => told.some((text) => text.includes(`${name}/${basename(file)}, an argument of`) && text.includes('box.write'))
      assert.deepEqual(absent.filter(warned), absent)
      // Neither can a path in a variable.
      const variables = Object.keys(entry.env ?? {}).filter((name) => entry.env[name].includes(path))
      const namedBy = (name) => told.some((text) => text.startsWith(`the variable ${name} of server`) && text.includes('box.write'))
      assert.deepEqual(variables.filter(namedBy), variables)
      assert.equal(
        told.some((text) => text.startsWith('nothing exists')),
        absent.length > 0,
      )
    })
  }
})

test('docs/BOXES.md says what each server needs', () => {
  const cell = (tools) => tools.map((tool) => `\`${tool}\``).join(', ')
  const expected = names.map((name) => {
    const { package: packageName, python, needs, reads, writes, only } = published[name]
    return `| \`${packageName}\` | ${python ? 'PyPI' : 'npm'} | ${needs} | ${cell(reads)} | ${only ?? cell(writes)} |`
  })
  const lines = readFileSync(join(root, 'docs/BOXES.md'), 'utf8').split('\n')
  const start = lines.indexOf('| server | from | needs beside `standard` | reads | writes |')
  assert.ok(start > 0, 'the table of servers')
  const end = lines.findIndex((line, index) => index > start && !line.startsWith('|'))
  assert.deepEqual(lines.slice(start + 2, end), expected)
  for (const name of names) {
    const { box, cwd } = mcpServers[name]
    assert.deepEqual([box, cwd], [published[name].needs.startsWith('`write`') ? { write: [paths[name]] } : undefined, undefined], name)
  }
  const both = names.filter((name) => published[name].reads.length > 0 && published[name].writes.length > 0)
  assert.ok(both.length >= 20, `${both.length} servers that read and write`)
})
