// Tests of authorization: who is asked to authorize at a server, which clocks stop in the meantime, and that an authorization ends with the
// approval. The MCP server and its authorization server run in this process. `fetch` acts as the person's browser.
import assert from 'node:assert/strict'
import { readdirSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { Gateway } from '../index.mjs'
import { afterwards, deferred, failure, folder, guest, ms, waitFor } from './support.mjs'

const TIMEOUT = { timeout: ms(60_000) }

/**
 * Starts an MCP server with the tools `plain` and `more` (`more` needs the scope `more`), and its authorization server, which grants every
 * requested scope.
 */
async function remote(t) {
  const known = { tokens: new Map(), codes: new Map(), grants: [], requests: [], begun: [], ended: [] }
  const metadata = (base) => ({
    '/.well-known/oauth-protected-resource/mcp': { resource: `${base}/mcp`, authorization_servers: [base], scopes_supported: ['plain'] },
    '/.well-known/oauth-authorization-server': {
      issuer: base,
      authorization_endpoint: `${base}/authorize`,
      token_endpoint: `${base}/token`,
      registration_endpoint: `${base}/register`,
      code_challenge_methods_supported: ['S256'],
      response_types_supported: ['code'],
      token_endpoint_auth_methods_supported: ['none'],
    },
  })
  const results = {
    initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'remote', version: '1' } }),
    'tools/list': () => ({
      tools: ['plain', 'more'].map((name) => ({ name, inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } })),
    }),
    'tools/call': ({ name }) => ({ content: [{ type: 'text', text: name }] }),
    ping: () => ({}),
  }
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const base = `http://${request.headers.host}`
    const url = new URL(request.url, base)
    const give = (value, status = 200, headers = {}) => {
      response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value))
    }
    const document = metadata(base)[url.pathname]
    if (document) return give(document)
    if (url.pathname === '/register') return give({ client_id: 'c1', ...JSON.parse(body) }, 201)
    if (url.pathname === '/authorize') {
      const code = `code-${known.codes.size}`
      known.codes.set(code, url.searchParams.get('scope') ?? '')
      const back = new URL(url.searchParams.get('redirect_uri'))
      back.search = new URLSearchParams({ code, state: url.searchParams.get('state') })
      return response.writeHead(302, { location: back.href }).end()
    }
    if (url.pathname === '/token') {
      const form = new URLSearchParams(body)
      known.grants.push(form.get('grant_type'))
      const scope = known.codes.get(form.get('code')) ?? 'plain'
      const token = `acc3ss-t0ken-${known.grants.length}-of-remote`
      known.tokens.set(token, scope.split(' '))
      return give({ access_token: token, token_type: 'Bearer', scope, expires_in: 3600, refresh_token: `r3fresh-${token}` })
    }
    if (request.method === 'DELETE') known.ended.push(request.headers['mcp-session-id'])
    if (request.method !== 'POST') return give({}, request.method === 'DELETE' ? 200 : 405)
    const scopes = known.tokens.get((request.headers.authorization ?? '').replace('Bearer ', ''))
    const challenge = `Bearer resource_metadata="${base}/.well-known/oauth-protected-resource/mcp"`
    const { id, method, params } = JSON.parse(body)
    known.requests.push(method)
    if (!scopes) return give({}, 401, { 'www-authenticate': challenge })
    if (params?.name === 'more' && !scopes.includes('more')) {
      return give({}, 403, { 'www-authenticate': `${challenge}, error="insufficient_scope", scope="more"` })
    }
    if (id === undefined) return response.writeHead(202).end()
    if (!results[method]) return give({ jsonrpc: '2.0', id, error: { code: -32601, message: 'no' } })
    if (method === 'initialize') known.begun.push(`session-${known.begun.length}`)
    const headers = method === 'initialize' ? { 'mcp-session-id': known.begun.at(-1) } : {}
    give({ jsonrpc: '2.0', id, result: results[method](params) }, 200, headers)
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  afterwards(t, () => new Promise((resolve) => server.close(resolve).closeAllConnections()))
  return { ...known, entry: { url: `http://127.0.0.1:${server.address().port}/mcp`, confirm: 'never' } }
}

/**
 * Returns the callback of a person who opens each page `wait()` later in a browser on this machine. The callback itself returns
 * immediately, and returns nothing.
 */
function person(wait = async () => {}) {
  const asked = []
  const onAuthorize = (url) => {
    asked.push(url)
    wait()
      .then(() => fetch(url))
      .catch(() => {})
  }
  return { asked, onAuthorize }
}

/** Opens a gateway with one server, named `remote`. A gateway with the same state folder acts as another process. */
async function open(t, stateDir, entry, options = {}) {
  const gateway = await Gateway.open({ config: { mcpServers: { remote: entry } }, stateDir, guest, ...options })
  afterwards(t, () => gateway.close())
  return gateway
}

async function approved(t, entry, options, stateDir = join(folder(t), 'state')) {
  const gateway = await open(t, stateDir, entry, options)
  await gateway.approve('remote')
  await gateway.enable('remote')
  return gateway
}

/** Waits for longer than a limit in milliseconds. That the wait exceeds the limit is the subject of the test. */
const longerThan = (limit) => new Promise((resolve) => setTimeout(resolve, limit * 1.1))
const code = (tool) => `import * as remote from "host:mcp-remote"; export const handler = () => remote.${tool}({})`
const tokens = (stateDir) => readdirSync(join(stateDir, 'tokens')).filter((name) => name.endsWith('.json'))

describe('while a person is at the browser', () => {
  test('connecting takes as long as they need', TIMEOUT, async (t) => {
    const limit = ms(5_000)
    const { entry } = await remote(t)
    const slow = person(() => longerThan(limit))
    const gateway = await approved(t, entry, { onAuthorize: slow.onAuthorize, limits: { connectTimeoutMs: limit } })
    assert.equal((await gateway.callTool('remote', 'plain', {})).content[0].text, 'plain')
    assert.equal(slow.asked.length, 1)
  })

  test('neither the clock of a call nor that of a run goes on', TIMEOUT, async (t) => {
    const limit = ms(5_000)
    const { entry } = await remote(t)
    for (const via of ['callTool', 'run']) {
      let wait = async () => {}
      const slow = person(() => wait())
      const limits = { callTimeoutMs: limit, runTimeoutMs: limit, connectTimeoutMs: limit }
      const gateway = await approved(t, entry, { onAuthorize: slow.onAuthorize, limits })
      await gateway.callTool('remote', 'plain', {})
      wait = () => longerThan(limit)
      if (via === 'run') {
        const sandbox = await gateway.sandbox()
        assert.equal((await sandbox.run(code('more'), { timeoutMs: limit })).value, 'more')
      } else {
        assert.equal((await gateway.callTool('remote', 'more', {})).content[0].text, 'more')
      }
      assert.equal(slow.asked.length, 2, via)
    }
  })

  test('the clock of a run that connects does not go on either', TIMEOUT, async (t) => {
    const limit = ms(5_000)
    const { entry } = await remote(t)
    const state = join(folder(t), 'state')
    await (await approved(t, entry, { onAuthorize: person().onAuthorize }, state)).close()
    for (const name of tokens(state)) rmSync(join(state, 'tokens', name))
    const gateway = await open(t, state, entry, { enable: 'approved', limits: { connectTimeoutMs: limit } })
    const [sandbox, slow] = [await gateway.sandbox(), person(() => longerThan(limit))]
    assert.equal((await sandbox.run(code('plain'), { timeoutMs: limit, onAuthorize: slow.onAuthorize })).value, 'plain')
    assert.equal(slow.asked.length, 1)
  })
})

describe('the person of a request', () => {
  test('is the one of its run, not of the run that connected', TIMEOUT, async (t) => {
    const { entry } = await remote(t)
    const state = join(folder(t), 'state')
    await (await approved(t, entry, { onAuthorize: person().onAuthorize }, state)).close()
    const gateway = await open(t, state, entry, { enable: 'approved' })
    const sandbox = await gateway.sandbox()
    const [first, second] = [person(), person()]
    assert.equal((await sandbox.run(code('plain'), { onAuthorize: first.onAuthorize })).value, 'plain')
    assert.equal((await sandbox.run(code('more'), { onAuthorize: second.onAuthorize })).value, 'more')
    assert.deepEqual([first.asked.length, second.asked.length], [0, 1])
  })

  test('is asked even if the connection was made by a call without anybody', TIMEOUT, async (t) => {
    const { entry } = await remote(t)
    const state = join(folder(t), 'state')
    await (await approved(t, entry, { onAuthorize: person().onAuthorize }, state)).close()
    const gateway = await open(t, state, entry, { enable: 'approved' })
    await gateway.callTool('remote', 'plain', {})
    await failure(gateway.callTool('remote', 'more', {}), 'ERR_AUTHORIZATION_REQUIRED')
    const asked = person()
    await gateway.callTool('remote', 'more', {}, { onAuthorize: asked.onAuthorize })
    assert.equal(asked.asked.length, 1)
  })
})

describe('a revocation by another process', () => {
  test('ends a login in progress: no token is requested or kept, and nothing stays connected', TIMEOUT, async (t) => {
    const { entry, grants, begun } = await remote(t)
    const state = join(folder(t), 'state')
    const [atPage, back] = [deferred(), deferred()]
    const here = await open(t, state, entry, {
      onAuthorize: async (url) => {
        atPage.resolve()
        await back.promise
        await fetch(url)
      },
    })
    const approving = failure(here.approve('remote'), 'ERR_NOT_APPROVED')
    await atPage.promise
    await (await open(t, state, entry)).revoke('remote')
    back.resolve()
    await approving
    assert.deepEqual([grants, tokens(state), begun], [[], [], []])
  })

  test('ends the connection that keepAliveMs keeps, without a renewal', TIMEOUT, async (t) => {
    const { entry, grants, tokens: given, requests, begun, ended } = await remote(t)
    const state = join(folder(t), 'state')
    const kept = { ...entry, keepAliveMs: 1_000 }
    const here = await approved(t, kept, { onAuthorize: person().onAuthorize }, state)
    await here.callTool('remote', 'plain', {})
    await (await open(t, state, kept)).revoke('remote')
    given.clear()
    const before = requests.length
    await waitFor('the end of the connection', () => ended.includes(begun.at(-1)))
    assert.deepEqual([grants, tokens(state), requests.slice(before).includes('ping')], [['authorization_code'], [], false])
  })
})
