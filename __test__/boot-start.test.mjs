// Starts of the command `boot`: at a terminal, with a provider that fails, over TLS, without a network, and with the prompt of the documentation.
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:https'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { stripVTControlCharacters } from 'node:util'
import { adding, digestIn, serving, withKey, words } from './boot-command.mjs'
import { code, MODEL_KEY, model, plan, planned, provider, service } from './booting.mjs'
import { atTerminal, place, run } from './command-line.mjs'
import { overHttp } from './serving.mjs'
import { root } from './support.mjs'

/** Writes a self-signed certificate for 127.0.0.1 and its key to the working folder. Only this test trusts the certificate. */
function selfSigned(at) {
  const [, certificate, key] = /^(.+?)(-----BEGIN PRIVATE.+)$/s.exec(readFileSync(join(root, '__test__/fixtures/localhost.pem'), 'utf8'))
  writeFileSync(join(at.work, 'certificate.pem'), certificate)
  writeFileSync(join(at.work, 'key.pem'), key, { mode: 0o600 })
  return { ca: certificate, files: ['--tls-cert', 'certificate.pem', '--tls-key', 'key.pem'] }
}

/** Posts a message of MCP over TLS. */
function posted(url, { ca, body, headers }) {
  const always = { 'content-type': 'application/json', accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-11-25' }
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: 'POST', ca, agent: false, headers: { ...always, ...headers } }, async (response) => {
      let text = ''
      for await (const chunk of response) text += chunk
      resolve({ status: response.statusCode, session: response.headers['mcp-session-id'], text })
    })
    sent.on('error', reject).end(JSON.stringify(body))
  })
}

describe('boot at a terminal', () => {
  const question = 'Approve and serve?'

  test('serves nothing after a no', async (t) => {
    const at = place(t)
    const local = await provider(t, 'anthropic', { generate: adding().generate })
    const { code, text: seen } = await atTerminal(at, words('anthropic', local, '--port', '0'), [[question, 'n\n']], withKey('anthropic'))
    assert.match(seen, /console\.log\("adding"\)/)
    assert.doesNotMatch(seen, /serving/)
    assert.equal(code, 1)
  })

  test('serves after a yes, until Ctrl-C, and does not ask again', async (t) => {
    const at = place(t)
    const { generate, asked } = adding()
    const local = await provider(t, 'anthropic', { generate })
    const line = words('anthropic', local, '--port', '0')
    const first = await atTerminal(
      at,
      line,
      [
        [question, 'y\n'],
        ['mcpServers', '\x03'],
      ],
      withKey('anthropic'),
    )
    const shown = stripVTControlCharacters(first.text)
    assert.match(
      shown,
      /may reach +nothing[\s\S]*1 \| console\.log\("adding"\)[\s\S]*Approve and serve\?[\s\S]*serving the tool add at http/,
    )
    assert.deepEqual([first.unanswered, first.code, asked.length], [0, 130, 2])
    // The terminal's shell returns 130 after Ctrl-C. boot-end.test.mjs tests the exit code of the program itself. The second start has
    // neither a key nor a question.
    const second = await atTerminal(at, line, [['mcpServers', '\x03']])
    assert.match(stripVTControlCharacters(second.text), /serving the tool add at http/)
    assert.ok(!second.text.includes(question))
    assert.deepEqual([second.unanswered, second.code, asked.length], [0, 130, 2])
  })
})

describe('boot and a provider that fails', () => {
  const busy = {
    status: 429,
    headers: { 'retry-after': '1' },
    raw: JSON.stringify({ type: 'error', error: { type: 'x', message: 'slow down' } }),
  }
  for (const kind of ['anthropic', 'openai']) {
    test(`${kind}: the command waits as long as Retry-After says`, async (t) => {
      const at = place(t)
      const { generate } = adding()
      const times = []
      const answer = (request) => (times.push(performance.now()) === 1 ? busy : generate(request))
      const local = await provider(t, kind, { generate: answer })
      const made = await run(at, words(kind, local, '--port', '0'), withKey(kind))
      assert.match(made.stderr, /These tools are new/)
      assert.equal(times.length, 3)
      assert.ok(times[1] - times[0] >= 990, `${times[1] - times[0]} ms`)
    })

    test(`${kind}: the command tells in one line that the answer broke off, or that the provider stays busy`, async (t) => {
      for (const [answer, expected] of [
        [{ hangUp: true }, /the model that makes the tools gave no answer/],
        [{ ...busy, headers: { 'retry-after-ms': '1' } }, /slow down.*429/],
      ]) {
        const at = place(t)
        const local = await provider(t, kind, { generate: () => answer })
        const { code, stderr } = await run(at, words(kind, local, '--port', '0'), withKey(kind))
        assert.equal(code, 1)
        const lines = stderr.split('\n').filter((line) => line.startsWith('hyperlight-mcp:'))
        assert.equal(lines.length, 1, stderr)
        assert.match(lines[0], expected)
        assert.equal(local.requests.length, 3, 'the request was sent again twice')
        assert.ok(!stderr.includes(MODEL_KEY))
      }
    })
  }
})

test('with a certificate and tokens, the tools are served over TLS, and to nobody without a token', async (t) => {
  const at = place(t)
  const local = await provider(t, 'anthropic', { generate: adding().generate })
  const { ca, files } = selfSigned(at)
  const token = '0123456789abcdef0123456789abcdef'
  writeFileSync(join(at.work, 'tokens'), `ci:${token}\n`, { mode: 0o600 })
  const line = words('anthropic', local, '--port', '0', ...files, '--token-file', 'tokens')
  const first = await run(at, line, withKey('anthropic'))
  const { url, entry, child, ended } = await serving(t, at, [...line, '--digest', digestIn(first)])
  assert.match(url, /^https:/)
  assert.deepEqual(entry, { type: 'http', url, headers: { Authorization: 'Bearer <a token of the file>' } })
  const clientInfo = { name: 'host', version: '1' }
  const begin = { id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo } }
  const call = { id: 2, method: 'tools/call', params: { name: 'add', arguments: { a: 2, b: 3 } } }
  const asked = (body, headers, trusted = ca) => posted(url, { ca: trusted, body: { jsonrpc: '2.0', ...body }, headers })
  const authorization = `Bearer ${token}`
  for (const headers of [{}, { authorization: `${authorization}x` }]) assert.equal((await asked(begin, headers)).status, 401)
  const { status, session } = await asked(begin, { authorization })
  assert.equal(status, 200)
  assert.match((await asked(call, { authorization, 'mcp-session-id': session })).text, /"sum":5/)
  assert.equal((await asked(call, { 'mcp-session-id': session })).status, 401)
  await assert.rejects(asked(begin, { authorization }, []), { code: /SELF_SIGNED|UNABLE_TO_VERIFY/ })
  child.kill('SIGTERM')
  await ended
})

test('--locked starts without any network', async (t) => {
  const at = place(t)
  const books = await service(t)
  const get = planned('get', { url: books.url('/rates/latest') })
  const { generate } = model({
    plans: [plan(get)],
    handlers: { get: [code(`return (await fetch('${books.url('/rates/latest')}')).status`)] },
  })
  const local = await provider(t, 'openai', { generate })
  const prompt = ['boot', '--prompt', `Rates, as in ${books.url('/page.html')}`, '--allow-host', books.host, '--port', '0']
  const first = await run(at, [...prompt, '--provider', 'openai', '--base-url', local.baseUrl], withKey('openai'))
  // The test fails if the program connects to one of these servers. Any other connection fails too, because there is no such proxy.
  const [toPages, toModel] = [books.requests.length, local.requests.length]
  const env = { HTTP_PROXY: 'http://127.0.0.1:1', HTTPS_PROXY: 'http://127.0.0.1:1' }
  const { child, ended } = await serving(t, at, [...prompt, '--locked', '--digest', digestIn(first)], env)
  assert.match(child.output.stderr, /1 tool from the cache/)
  child.kill('SIGTERM')
  await ended
  assert.deepEqual([books.requests.length, local.requests.length], [toPages, toModel])
  // Without `--locked`, the page is requested again.
  const again = await serving(t, at, prompt)
  assert.equal(books.requests.length, toPages + 1)
  again.child.kill('SIGTERM')
  await again.ended
})

test('the example prompt of the documentation works as it stands', async (t) => {
  const at = place(t)
  const page = readFileSync(join(root, 'docs/BOOT.md'), 'utf8')
  const [, prompt] = /npx hyperlight-mcp boot --prompt '([^']+)'/.exec(page)
  const n = { type: 'integer' }
  const isPrime =
    'const isPrime = (n) => { if (n < 2) return false; for (let d = 2; d * d <= n; d++) if (n % d === 0) return false; return true }'
  const { generate, asked } = model({
    plans: [plan(planned('is_prime', { properties: { n } }), planned('next_prime', { properties: { n } }))],
    handlers: {
      is_prime: [code(`${isPrime}\nreturn { prime: isPrime(args.n) }`)],
      next_prime: [code(`${isPrime}\nlet next = args.n + 1\nwhile (!isPrime(next)) next++\nreturn { next }`)],
    },
  })
  const local = await provider(t, 'anthropic', { generate })
  const line = ['boot', '--prompt', prompt, '--port', '0']
  const env = { ANTHROPIC_API_KEY: MODEL_KEY, ANTHROPIC_BASE_URL: local.baseUrl }
  const first = await run(at, line, { env })
  assert.ok(asked[0].user.includes(prompt))
  assert.deepEqual([...prompt.matchAll(/\w+_\w+/g)].map(String), ['is_prime', 'next_prime'])
  const { url, child, ended } = await serving(t, at, [...line, '--digest', digestIn(first)])
  const client = await overHttp(t, url)
  const call = async (name, n) => (await client.callTool({ name, arguments: { n } })).structuredContent
  assert.deepEqual(
    [await call('is_prime', 97), await call('is_prime', 91), await call('next_prime', 97)],
    [{ prime: true }, { prime: false }, { next: 101 }],
  )
  child.kill('SIGTERM')
  await ended
})
