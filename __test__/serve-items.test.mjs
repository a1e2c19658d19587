// Tests of how hosts get the resources and prompts of servers: fields for hosts, stable names, and links that lead to the right server.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { approved, LIMIT, place, run } from './command-line.mjs'
import { ERAS, overHttp, served } from './serving.mjs'
import { answering, waitFor } from './support.mjs'

const ICONS = [{ src: 'https://icons.example/i.png', mimeType: 'image/png', sizes: ['48x48'] }]
const IMAGE = { src: 'data:image/png;base64,iVBORw0KGgo=' }
const UI = { ui: { csp: { connectDomains: ['https://api.example'] } } }
const ANNOTATIONS = { audience: ['user'], priority: 0.5 }

/** A server whose items have the same names and URIs as those of any other such server, and whose texts have its own name. */
const server = (name, more = '') => ({
  command: process.execPath,
  box: 'off',
  confirm: 'never',
  args: answering(`const icons = [...${JSON.stringify(ICONS)}, { src: 'javascript:alert(1)' }, { src: 'http://icons.example/i.png' }]
    const host = { icons, annotations: { ...${JSON.stringify(ANNOTATIONS)}, lastModified: '2026-01-01T00:00:00Z' }, _meta: ${JSON.stringify(UI)} }
    const link = { type: 'resource_link', uri: 'note://1', name: 'n', icons: [...icons, ${JSON.stringify(IMAGE)}] }
    const _meta = { 'io.modelcontextprotocol/related-task': { taskId: '1' }, progressToken: 1, 'io.hyperlight-mcp/source': 'x', 'vendor/x': 1 }
    const embedded = { type: 'resource', resource: { uri: 'note://1', text: '${name}' } }
    const answers = {
      initialize: ({ protocolVersion }) => ({
        protocolVersion, capabilities: { tools: {}, resources: {}, prompts: {}, completions: {} }, serverInfo: { name: '${name}', version: '1' },
      }),
      'tools/list': () => ({ tools: [{ name: 'link', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true }, icons }] }),
      'resources/list': () => ({ resources: [{ uri: 'note://1', name: 'n', mimeType: 'text/plain', size: 5, ...host }] }),
      'resources/templates/list': () => ({ resourceTemplates: [{ uriTemplate: 'item://{id}', name: 't', ...host }] }),
      'prompts/list': () => ({ prompts: [{ name: 'plan', description: '${name}', icons }${more}] }),
      'prompts/get': () => ({ messages: [{ role: 'user', content: link }, { role: 'assistant', content: embedded }] }),
      'resources/read': ({ uri }) => ({ contents: [{ uri, mimeType: 'text/plain', text: '${name} ' + uri, _meta }, { uri: 'note://1', text: '${name}' }], _meta }),
      'tools/call': () => ({ content: [{ ...link, _meta }, embedded], _meta }),
      'completion/complete': ({ ref }) => ({ completion: { values: ['${name} ' + ref.uri] } }),
    }`),
})

async function approve(at, name) {
  for (const stage of ['command', 'manifest']) {
    const { request } = JSON.parse((await run(at, ['approve', name, '--json'])).stdout).servers[0]
    assert.equal(request.stage, stage)
    await run(at, ['approve', name, '--digest', request.digest])
  }
}

for (const era of Object.keys(ERAS)) {
  test(`A host of ${era} gets icons, annotations, sizes and _meta as a person approved them`, async (t) => {
    const at = place(t, { a: server('a') })
    await run(at, ['approve', 'a', '--digest', JSON.parse((await run(at, ['approve', 'a', '--json'])).stdout).servers[0].request.digest])
    const { request } = JSON.parse((await run(at, ['approve', 'a', '--json'])).stdout).servers[0]
    const [resource] = request.resources
    assert.deepEqual([resource.icons, resource.annotations, resource.size, resource.meta], [ICONS, ANNOTATIONS, 5, UI])
    assert.deepEqual([request.tools[0].icons, request.prompts[0].icons], [ICONS, ICONS])
    const { stdout } = await run(at, ['approve', 'a'], { input: 'n\n' })
    assert.match(stdout.replaceAll(/\s+/g, ''), /https:\/\/icons\.example\/i\.png/, 'the address that a host would fetch is shown')
    await run(at, ['approve', 'a', '--digest', request.digest])
    const { url } = await served(t, at, ['--direct'])
    const client = await overHttp(t, url, { era })
    const note = (await client.listResources()).resources.find(({ uri }) => uri === 'note://1')
    assert.deepEqual(note, {
      uri: 'note://1',
      name: 'n',
      mimeType: 'text/plain',
      size: 5,
      icons: ICONS,
      annotations: ANNOTATIONS,
      _meta: UI,
    })
    const [template] = (await client.listResourceTemplates()).resourceTemplates
    assert.deepEqual([template.icons, template.annotations, template._meta], [ICONS, ANNOTATIONS, UI])
    const [prompt] = (await client.listPrompts()).prompts
    assert.deepEqual([prompt.name, prompt.icons], ['plan', ICONS])
    const tool = (await client.listTools()).tools.find(({ name }) => name === 'mcp_a_link')
    assert.deepEqual(tool.icons, ICONS)
  })
}

test('A prompt keeps its name when another server has the same, and equal URIs and templates lead to the server that gave them', async (t) => {
  const long = 'p'.repeat(80)
  const at = place(t, { a: server('a'), b: server('b', `, { name: '${long}' }`) })
  await approve(at, 'a')
  const { url } = await served(t, at, ['--direct'])
  const client = await overHttp(t, url)
  let changes = 0
  client.setNotificationHandler('notifications/prompts/list_changed', () => {
    changes += 1
  })
  const prompts = async () => (await client.listPrompts()).prompts.map(({ name, description }) => [name, description])
  assert.deepEqual(await prompts(), [['plan', 'a']])
  await approve(at, 'b')
  await waitFor('the change', () => changes > 0, LIMIT)
  const [first, second, third] = await prompts()
  assert.deepEqual(
    [first, second],
    [
      ['plan', 'a'],
      ['b_plan', 'b'],
    ],
    'the prompt of the first server has its name still',
  )
  assert.match(third[0], /^b_p{55}_[0-9a-f]{6}$/)
  const MINE = { 'vendor/x': 1 }
  /** Reads a resource of a server. The server gives another content beside it, with a URI that the other server has too. */
  const read = async (uri, server) => {
    const { contents, _meta } = await client.readResource({ uri })
    assert.deepEqual([contents[0]._meta, _meta], [MINE, MINE], 'keys of the protocol and of this program are not for servers')
    assert.equal(contents[1].uri, `mcp-resource://${server}/note%3A%2F%2F1`)
    return contents[0]
  }
  const links = {}
  for (const name of ['a', 'b']) {
    const { content, _meta } = await client.callTool({ name: `mcp_${name}_link`, arguments: {} })
    assert.deepEqual([_meta, content[0]._meta], [MINE, MINE])
    const prompt = await client.getPrompt({ name: { a: 'plan', b: 'b_plan' }[name] })
    const [one, two] = [content, prompt.messages.map(({ content }) => content)].map(([link, embedded]) => [link.uri, embedded.resource.uri])
    assert.deepEqual(one, two)
    const icons = [content[0], prompt.messages[0].content].map((link) => link.icons)
    assert.deepEqual(icons, [[IMAGE], [IMAGE]], 'nobody has approved the address of an icon in an answer')
    assert.equal(one[0], one[1])
    const contents = await read(one[0], name)
    assert.deepEqual([contents.text, contents.uri], [`${name} note://1`, one[0]], 'a link leads to its own server')
    links[name] = one[0]
  }
  assert.notEqual(links.a, links.b)
  const templates = (await client.listResourceTemplates()).resourceTemplates.map(({ uriTemplate }) => uriTemplate)
  assert.deepEqual(templates, ['mcp-resource://a/-/item://{id}', 'mcp-resource://b/-/item://{id}'])
  for (const [index, name] of ['a', 'b'].entries()) {
    const uri = templates[index].replace('{id}', 'x%20y')
    const contents = await read(uri, name)
    assert.deepEqual([contents.text, contents.uri], [`${name} item://x%20y`, uri])
    const ref = { type: 'ref/resource', uri: templates[index] }
    const { completion } = await client.complete({ ref, argument: { name: 'id', value: '' } })
    assert.deepEqual(completion.values, [`${name} item://{id}`])
  }
  await assert.rejects(client.readResource({ uri: 'item://7' }), 'no server is meant')
})

test('Names of prompts are the same in another process, and after the server that had the name first is gone', async (t) => {
  const at = await approved(t, { a: server('a'), b: server('b') })
  const names = async () => {
    const { url, child, ended } = await served(t, at)
    const client = await overHttp(t, url)
    const { prompts } = await client.listPrompts()
    await client.close()
    child.kill('SIGTERM')
    await ended
    return prompts.map(({ name }) => name)
  }
  assert.deepEqual(await names(), ['plan', 'b_plan'])
  await run(at, ['revoke', 'a'])
  assert.deepEqual(await names(), ['b_plan'])
})
