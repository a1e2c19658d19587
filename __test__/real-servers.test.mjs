// Tests with published servers of other authors: three in TypeScript (one of them also over HTTP), and one in Python that speaks the
// protocol of before 2026-07-28 and of since then. Each is approved, lists its tools, answers as its documentation says, and is gone after
// its gateway has closed.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { describe, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { recorded } from '../scripts/lib/catalogue-record.mjs'
import { gitServer } from '../scripts/lib/tools.mjs'
import { NO_CODE } from './registries.mjs'
import { children, compiled, folder, ms, openApproved, openGateway, outputOf, root, start, waitFor } from './support.mjs'

const TIMEOUT = { timeout: ms(60_000) }
const program = (name) => join(root, `node_modules/@modelcontextprotocol/server-${name}/dist/index.js`)
const node = (name, ...args) => ({ command: process.execPath, args: [program(name), ...args], confirm: 'never' })
/** In the emulated machine, Python needs more time to start than the default limit allows. */
// A server in Python takes long to start while other work runs.
const limits = { connectTimeoutMs: ms(60_000) }

/** Opens a gateway with one server, named `it`, and returns it with helper functions. After close(), none of its processes may be left. */
async function open(t, server, options) {
  const before = children().map(({ pid }) => pid)
  const gateway = await openApproved(t, { it: server }, { limits, ...options })
  t.after(() => {
    const left = children().filter(({ pid }) => !before.includes(pid))
    assert.deepEqual(left, [], 'left after close()')
  })
  return {
    gateway,
    report: await gateway.test('it'),
    call: (tool, args, callOptions) => gateway.callTool('it', tool, args, callOptions),
    text: async (tool, args, callOptions) => textOf(await gateway.callTool('it', tool, args, callOptions)),
  }
}

function textOf({ content, isError }) {
  const text = content.map((block) => block.text ?? `(${block.type})`).join('\n')
  assert.equal(isError, false, text)
  return text
}

/** Returns the folders of a package that package.json installs, and of everything that it needs. */
function closure(name) {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
  const found = new Set()
  const parentOf = (path) => path.slice(0, Math.max(0, path.lastIndexOf('/node_modules/')))
  const add = (path) => {
    if (found.has(path)) return
    found.add(path)
    for (const needed of Object.keys(packages[path].dependencies ?? {})) {
      let at = path
      while (at !== '' && !packages[`${at}/node_modules/${needed}`]) at = parentOf(at)
      const there = at === '' ? `node_modules/${needed}` : `${at}/node_modules/${needed}`
      if (packages[there]) add(there)
    }
  }
  add(`node_modules/${name}`)
  return [...found]
}

/** Starts a registry that has one package, with all that it needs within it, as package.json has installed it. Returns its URL. */
async function registryOf(t, name) {
  const path = folder(t)
  const own = `node_modules/${name}`
  const places = [`s,^${own},package,`, 's,^node_modules,package/node_modules,'].map((place) => `--transform=${place}`)
  outputOf('tar', ['-C', root, '-I', 'gzip -1', '-cf', join(path, 'package.tgz'), ...NO_CODE, ...places, ...closure(name)])
  const tarball = readFileSync(join(path, 'package.tgz'))
  const {
    dependencies: _,
    devDependencies: __,
    scripts: ___,
    ...manifest
  } = JSON.parse(readFileSync(join(root, own, 'package.json'), 'utf8'))
  const server = createHttpServer((request, response) => {
    if (request.url.endsWith('.tgz')) return response.end(tarball)
    if (decodeURIComponent(request.url) !== `/${name}`) return response.writeHead(404).end()
    const versions = { [manifest.version]: { ...manifest, dist: { tarball: `http://${request.headers.host}/package.tgz` } } }
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ name, 'dist-tags': { latest: manifest.version }, versions }))
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.after(() => server.close())
  return `http://127.0.0.1:${server.address().port}/`
}

describe('servers of the catalogue that package.json installs', () => {
  for (const name of ['everything', 'filesystem', 'memory'])
    test(`${name} starts by its definition, with the version and the tools of the record`, { timeout: ms(180_000) }, async (t) => {
      const { package: spec, tools } = recorded()[name]
      const { name: id, version } = JSON.parse(readFileSync(join(program(name), '../../package.json'), 'utf8'))
      assert.equal(`${id}@${version}`, spec)
      const before = process.env.npm_config_registry
      process.env.npm_config_registry = await registryOf(t, id)
      t.after(() => {
        if (before === undefined) delete process.env.npm_config_registry
        else process.env.npm_config_registry = before
      })
      const options = { config: { catalogue: true, mcpServers: {} }, workspaceFolder: realpathSync(folder(t)), limits }
      const gateway = await openGateway(t, {}, options)
      const request = await gateway.approvalRequest(name)
      assert.deepEqual([request.command, request.args.slice(0, 2)], ['npx', ['-y', spec]])
      await gateway.approve(name)
      const report = await gateway.test(name)
      assert.deepEqual(report.tools.toSorted(), tools.toSorted())
    })
})

describe('server-filesystem', TIMEOUT, () => {
  test('reads, writes and edits within its folder, in structured content too, and nowhere else', async (t) => {
    const path = realpathSync(folder(t))
    writeFileSync(join(path, 'a.txt'), 'first\nsecond\n')
    const { report, call, text } = await open(t, node('filesystem', path))
    assert.equal(report.tools.length, 14)
    assert.equal(report.serverName, 'secure-filesystem-server')
    const { content, structuredContent } = await call('read_text_file', { path: join(path, 'a.txt'), head: 1 })
    assert.deepEqual(content, [{ type: 'text', text: 'first' }])
    assert.deepEqual(structuredContent, { content: 'first' })
    await text('write_file', { path: join(path, 'b.txt'), content: 'ä€😀' })
    assert.equal(readFileSync(join(path, 'b.txt'), 'utf8'), 'ä€😀')
    const edited = await text('edit_file', { path: join(path, 'a.txt'), edits: [{ oldText: 'second', newText: 'third' }] })
    assert.match(edited, /-second\n\+third/)
    assert.equal(await text('list_directory', { path }), '[FILE] a.txt\n[FILE] b.txt')
    const refused = await call('read_text_file', { path: '/etc/hostname' })
    assert.equal(refused.isError, true)
    assert.match(refused.content[0].text, /^Access denied/)
  })
})

describe('server-memory', TIMEOUT, () => {
  test('keeps a graph from one connection to the next', async (t) => {
    const path = realpathSync(folder(t))
    const env = { MEMORY_FILE_PATH: join(path, 'memory.jsonl') }
    const { gateway, report, call } = await open(t, { ...node('memory'), env, box: { write: [path] } })
    assert.equal(report.tools.length, 9)
    const entities = [
      { name: 'Ada', entityType: 'person', observations: ['counts'] },
      { name: 'Engine', entityType: 'machine', observations: [] },
    ]
    const relations = [{ from: 'Ada', to: 'Engine', relationType: 'programs' }]
    assert.deepEqual((await call('create_entities', { entities })).structuredContent, { entities })
    await call('create_relations', { relations })
    await call('add_observations', { observations: [{ entityName: 'Engine', contents: ['was never built'] }] })
    await gateway.test('it') // connects anew
    const { structuredContent } = await call('search_nodes', { query: 'never built' })
    assert.deepEqual(structuredContent.entities, [{ ...entities[1], observations: ['was never built'] }])
    assert.deepEqual((await call('read_graph')).structuredContent.relations, relations)
    assert.equal((await call('add_observations', { observations: [{ entityName: 'Nobody', contents: ['x'] }] })).isError, true)
  })
})

/** Defines the tests of server-everything, which are the same for both transports. */
function everything(server) {
  test('lists its tools; text, numbers, structured content, images, links and annotations arrive as they were sent', async (t) => {
    // Here, the server itself must complain about arguments that violate a schema.
    const { report, call, text } = await open(t, await server(t), { argumentChecks: 'off' })
    assert.equal(report.serverName, 'mcp-servers/everything')
    assert.ok(report.tools.length >= 12, report.tools.join())
    assert.equal(await text('echo', { message: 'ä€😀' }), 'Echo: ä€😀')
    assert.equal(await text('get-sum', { a: 2, b: 3 }), 'The sum of 2 and 3 is 5.')
    const structured = await call('get-structured-content', { location: 'New York' })
    assert.deepEqual(structured.structuredContent, { temperature: 33, conditions: 'Cloudy', humidity: 82 })
    const [, image] = (await call('get-tiny-image')).content
    assert.equal(image.mimeType, 'image/png')
    assert.match(Buffer.from(image.data, 'base64').toString('latin1'), /^\x89PNG/)
    const [, link] = (await call('get-resource-links', { count: 1 })).content
    assert.deepEqual([link.type, link.mimeType], ['resource_link', 'text/plain'])
    const [, { resource }] = (await call('get-resource-reference', { resourceType: 'Text', resourceId: 7 })).content
    assert.equal(resource.uri, 'demo://resource/dynamic/text/7')
    const [annotated] = (await call('get-annotated-message', { messageType: 'error', includeImage: false })).content
    assert.deepEqual(annotated.annotations, { priority: 1, audience: ['user', 'assistant'] })
    const bad = await call('get-sum', { a: 'two', b: 3 })
    assert.equal(bad.isError, true, 'its own complaint about an argument is a result')
  })

  test('reports the progress of a long call, in order', async (t) => {
    const events = []
    const { text } = await open(t, await server(t), { onEvent: (event) => event.type === 'progress' && events.push(event) })
    await text('trigger-long-running-operation', { duration: 0.3, steps: 6 })
    // Answers and events come through separate queues.
    await waitFor('all steps', () => events.length >= 6)
    assert.deepEqual(
      events.map(({ server, tool, progress, total }) => [server, tool, progress, total]),
      [1, 2, 3, 4, 5, 6].map((step) => ['it', 'trigger-long-running-operation', step, 6]),
    )
  })

  test('asks a person (form, address), a model, and for the folder, and hears their answers', async (t) => {
    const asked = []
    const onElicit = (request) => {
      asked.push(request)
      return request.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: { name: 'Ada', check: true } }
    }
    const onSample = ({ params }) => {
      const { text } = [params.messages[0].content].flat()[0]
      return { role: 'assistant', content: { type: 'text', text: `to "${text}": 42` }, model: 'a-model', stopReason: 'endTurn' }
    }
    const shared = folder(t)
    const { text } = await open(t, { ...(await server(t)), roots: [shared] }, { onElicit, onSample })
    const form = await text('trigger-elicitation-request')
    assert.match(form, /Name: Ada\n- Agreed to terms: true\n/)
    assert.match(form, /Favorite Integer: 42\n- Favorite Number: 3\.14/, 'the defaults of what was left out')
    assert.deepEqual([asked[0].server, asked[0].tool, asked[0].mode], ['it', 'trigger-elicitation-request', 'form'])
    await text('trigger-url-elicitation', { url: 'https://example.com/pay', elicitationId: 'e1' })
    assert.deepEqual([asked[1].mode, asked[1].url, asked[1].elicitationId], ['url', 'https://example.com/pay', 'e1'])
    assert.match(await text('trigger-sampling-request', { prompt: 'six times seven' }), /to \\?".*six times seven\\?": 42/)
    assert.ok((await text('get-roots-list')).includes(pathToFileURL(shared).href))
  })

  test('has its tasks polled to their end', async (t) => {
    const { report, text } = await open(t, await server(t))
    assert.ok(report.tools.includes('simulate-research-query'))
    assert.match(await text('simulate-research-query', { topic: 'tides' }), /^# Research Report: tides/)
  })

  test('gives resources, templates, prompts and completions', async (t) => {
    const { gateway } = await open(t, await server(t))
    const resources = await gateway.resources('it')
    assert.ok(resources.length > 0)
    const read = await gateway.readResource('it', 'demo://resource/dynamic/text/3')
    assert.match(read.contents[0].text, /^Resource 3: This is a plaintext resource/)
    const blob = await gateway.readResource('it', 'demo://resource/dynamic/blob/3')
    assert.match(Buffer.from(blob.contents[0].blob, 'base64').toString(), /^Resource 3: This is a base64 blob/)
    const prompts = (await gateway.prompts('it')).map(({ name }) => name)
    assert.deepEqual(prompts.toSorted(), ['args-prompt', 'completable-prompt', 'resource-prompt', 'simple-prompt'])
    const { messages } = await gateway.getPrompt('it', 'args-prompt', { city: 'Austin', state: 'Texas' })
    assert.deepEqual(messages, [{ role: 'user', content: { type: 'text', text: "What's weather in Austin, Texas?" } }])
    const ref = { type: 'ref/prompt', name: 'completable-prompt' }
    const completion = await gateway.complete('it', ref, { name: 'department', value: 'E' })
    assert.deepEqual(completion.values, ['Engineering'])
  })
}

describe('server-everything over stdio', TIMEOUT, () => everything(() => node('everything')))

describe('server-everything over HTTP', TIMEOUT, () => {
  everything(async (t) => (await startHttp(t)).config)

  test('has its session ended by us, and outlives the gateway', async (t) => {
    const { config, child, said } = await startHttp(t)
    const { gateway, text } = await open(t, config)
    assert.equal(await text('echo', { message: 'hi' }), 'Echo: hi')
    await gateway.close()
    await waitFor('the end of the session', () => said().includes('Received session termination request'))
    assert.equal(child.exitCode, null)
  })
})

/** server-everything in its HTTP mode, on a free port, ended after the test. */
async function startHttp(t) {
  const port = await freePort()
  const env = { ...process.env, PORT: String(port) }
  const child = start(t, process.execPath, [program('everything'), 'streamableHttp'], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  child.stdout.on('data', (text) => {
    said += text
  })
  for await (const line of createInterface({ input: child.stderr })) if (line.includes('listening')) break
  child.stderr.resume()
  return { config: { type: 'http', url: `http://127.0.0.1:${port}/mcp`, confirm: 'never' }, child, said: () => said }
}

async function freePort() {
  const server = createServer().listen(0)
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  await once(server, 'close')
  return port
}

describe('mcp-server-git', TIMEOUT, () => {
  for (const protocolVersion of ['2025-11-25', '2026-07-28']) {
    test(`works on a repository, in the era of ${protocolVersion}`, async (t) => {
      const repo = join(realpathSync(folder(t)), 'repo')
      mkdirSync(repo)
      const identity = {
        GIT_AUTHOR_NAME: 'Ada',
        GIT_AUTHOR_EMAIL: 'ada@example.com',
        GIT_COMMITTER_NAME: 'Ada',
        GIT_COMMITTER_EMAIL: 'ada@example.com',
      }
      const git = (...args) => outputOf('git', ['-C', repo, ...args], { env: { ...process.env, ...identity } })
      git('init', '--quiet', '--initial-branch', 'main')
      writeFileSync(join(repo, 'a.txt'), 'first\n')
      const server = { command: gitServer(), args: ['--repository', repo], env: identity, protocolVersion, confirm: 'never' }
      const { report, call, text } = await open(t, server)
      assert.deepEqual([report.serverName, report.era, report.tools.length], ['mcp-git', protocolVersion, 12])
      const repo_path = repo
      assert.match(await text('git_status', { repo_path }), /Untracked files:\n.*\n\ta\.txt/s)
      await text('git_add', { repo_path, files: ['a.txt'] })
      assert.match(await text('git_diff_staged', { repo_path }), /\+first/)
      assert.match(await text('git_commit', { repo_path, message: 'Begin' }), /committed/i)
      assert.equal(git('log', '--format=%an: %s'), 'Ada: Begin\n')
      assert.match(await text('git_log', { repo_path }), /Message: ['"]?Begin/)
      await text('git_create_branch', { repo_path, branch_name: 'next' })
      assert.equal(await text('git_branch', { repo_path, branch_type: 'local' }), '* main\n  next')
      const elsewhere = await call('git_status', { repo_path: '/' })
      assert.equal(elsewhere.isError, true)
    })
  }
})

test('what was recorded of these servers is what they say, and TypeScript takes the declarations of all of them', TIMEOUT, async (t) => {
  const path = realpathSync(folder(t))
  outputOf('git', ['init', '--quiet', path])
  const git = { command: gitServer(), args: ['--repository', path] }
  const memory = { ...node('memory'), env: { MEMORY_FILE_PATH: join(path, 'memory.jsonl') } }
  const gateway = await openApproved(t, { filesystem: node('filesystem', path), memory, everything: node('everything'), git }, { limits })
  for (const server of ['filesystem', 'memory', 'everything', 'git']) {
    const { tools } = JSON.parse(readFileSync(join(root, `tests/manifests/${server}.json`), 'utf8'))
    const { functions } = (await gateway.serverInfo(server)).offer
    assert.deepEqual(
      functions.map(({ tool }) => tool),
      tools.map(({ name }) => name),
      'scripts/record-manifests',
    )
    for (const { name, inputSchema, outputSchema } of tools) {
      const live = await gateway.toolInfo(server, name)
      assert.deepEqual([live.inputSchema, live.outputSchema], [inputSchema, outputSchema], `${server}.${name}: scripts/record-manifests`)
    }
  }
  const agent = `import { read_text_file } from "host:mcp-filesystem";
    import { create_entities } from "host:mcp-memory";
    import { git_status } from "host:mcp-git";
    import { get_sum } from "host:mcp-everything";
    const read = read_text_file({ path: "a.txt", head: 1 });
    export const content: string = "error" in read ? read.error : read.content;
    create_entities({ entities: [{ name: "Ada", entityType: "person", observations: [] }] });
    git_status({ repo_path: "." });
    // @ts-expect-error: a number
    get_sum({ a: "2", b: 3 });
    // @ts-expect-error: misspelt
    git_status({ repo_pth: "." });`
  assert.equal(compiled(t, { 'modules.d.ts': await gateway.declarations(), 'agent.ts': agent }), '')
})
