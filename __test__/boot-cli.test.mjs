// The command `boot`: from a prompt to a served tool server, with a provider of this test that speaks both wire formats.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { request } from 'node:https'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { stripVTControlCharacters } from 'node:util'
import { code, MODEL_KEY, model, plan, planned, provider, SERVICE_KEY, service } from './booting.mjs'
import { atTerminal, environment, LIMIT, place, program, run, write } from './command-line.mjs'
import { overHttp } from './serving.mjs'
import { afterwards, endOf, listenTo, root, waitFor } from './support.mjs'

const number = { type: 'number' }
const add = planned('add', { properties: { a: number, b: number } })
const adding = () => model({ plans: [plan(add)], handlers: { add: [code('console.log("adding")\nreturn { sum: args.a + args.b }')] } })
const variables = { anthropic: 'ANTHROPIC_API_KEY', openai: 'OPENAI_API_KEY' }
const text = (result) => result.content.map((block) => block.text).join()

/** The words of a command with a provider of the test. */
const words = (kind, { baseUrl }, ...more) => ['boot', '--prompt', 'Add two numbers', '--provider', kind, '--base-url', baseUrl, ...more]
const withKey = (kind) => ({ env: { [variables[kind]]: MODEL_KEY } })
const digestIn = ({ stderr }) => /--digest ([0-9a-f]{64})/.exec(stderr)?.[1]

/** Starts the command, and gives the URL at which it serves. */
async function serving(t, at, args, env = {}) {
  const child = listenTo(t, process.execPath, [program, ...args], { cwd: at.work, env: environment(at, env), limit: LIMIT })
  const ended = endOf(child)
  await waitFor('an address', () => /serving .* at (http\S+)/.test(child.output.stderr) || child.exitCode !== null, LIMIT)
  const url = /serving .* at (http\S+)/.exec(child.output.stderr)?.[1]
  assert.ok(url, child.output.stderr)
  return { url, child, ended }
}

/** A certificate for 127.0.0.1 that signs itself, and its key, as files of the working folder. Nobody trusts it but this test. */
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

for (const kind of ['anthropic', 'openai']) {
  describe(`boot with a model of ${kind}`, () => {
    test('asks for a digest without a terminal, serves the approved tools, and needs no model for the next start', async (t) => {
      const at = place(t)
      const { generate, asked } = adding()
      const local = await provider(t, kind, { generate })
      const first = await run(at, words(kind, local, '--port', '0', '--verbose'), withKey(kind))
      assert.equal(first.code, 1)
      assert.equal(first.stdout, '')
      for (const part of [
        /planned 1 tool, .*bytes from the model/,
        /wrote add \(1 of 1\): 2 lines/,
        /1 \| console\.log\("adding"\)/,
        /These tools are new/,
      ])
        assert.match(first.stderr, part)
      assert.equal(asked.length, 2)
      const { url, child, ended } = await serving(t, at, words(kind, local, '--port', '0', '--digest', digestIn(first)))
      const client = await overHttp(t, url)
      const { tools } = await client.listTools()
      assert.deepEqual(
        tools.map(({ name }) => name),
        ['add'],
      )
      assert.deepEqual((await client.callTool({ name: 'add', arguments: { a: 2, b: 40 } })).structuredContent, { sum: 42 })
      assert.equal((await fetch(new URL('/health', url))).status, 200)
      const [entry] = Object.values(JSON.parse(child.output.stdout).mcpServers)
      assert.deepEqual(entry, { type: 'http', url })
      await waitFor('the line that the code logs', () => /log: add log: adding/.test(child.output.stderr), LIMIT)
      child.kill('SIGTERM')
      assert.equal((await ended).code, 130)
      assert.equal(asked.length, 2)
      // A hit that is approved asks nobody, and needs neither a key nor a provider.
      const again = await serving(t, at, ['boot', '--prompt', 'Add two numbers', '--port', '0', '--locked'])
      assert.match(again.child.output.stderr, /1 tool from the cache/)
      again.child.kill('SIGINT')
      await again.ended
      const kept = readdirSync(join(at.work, '.mcpboot-cache')).map((file) => readFileSync(join(at.work, '.mcpboot-cache', file), 'utf8'))
      for (const seen of [first.stdout, first.stderr, child.output.stdout, child.output.stderr, ...kept])
        assert.ok(!seen.includes(MODEL_KEY))
      assert.ok(local.requests.every(({ headers }) => JSON.stringify(headers).includes(MODEL_KEY)))
    })

    test('tells in one line why it got no answer', async (t) => {
      const answers = {
        'a wrong key': [
          { status: 401, raw: JSON.stringify({ type: 'error', error: { type: 'x', message: `the key ${MODEL_KEY} is wrong` } }) },
          /is wrong/,
        ],
        HTML: [{ type: 'text/html', raw: '<html>Welcome</html>' }, /the model that makes the tools gave no answer/],
        '10 MiB': ['x'.repeat(10 * 1024 * 1024), /the model's plan of the tools cannot be used|gave no answer/],
        prose: ['Here are some tools: add, subtract.', /the model's plan of the tools cannot be used, asked twice/],
        'an empty plan': ['{"tools": []}', /the model planned no tool, asked twice/],
        'a refusal': ['{"refusal": "I would rather not"}', /the model refused to plan/],
        'two fences with a wrong schema': [
          `\`\`\`json\n{"tools":[{"name":"A B"}]}\n\`\`\`\n\`\`\`json\n{"tools":[]}\n\`\`\``,
          /the model planned no tool|the model's plan of the tools cannot be used/,
        ],
      }
      for (const [what, [answer, expected]] of Object.entries(answers)) {
        const at = place(t)
        const local = await provider(t, kind, { generate: () => answer })
        const { code, stderr } = await run(at, words(kind, local, '--port', '0'), withKey(kind))
        assert.equal(code, 1, what)
        assert.match(stderr, expected, what)
        assert.equal(stderr.split('\n').filter((line) => line.startsWith('hyperlight-mcp:')).length, 1, what)
        assert.ok(!stderr.includes(MODEL_KEY), what)
      }
    })
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
    // The second start has neither a key nor a question.
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
  const { url, child, ended } = await serving(t, at, [...line, '--digest', digestIn(first)])
  assert.match(url, /^https:/)
  const [entry] = Object.values(JSON.parse(child.output.stdout).mcpServers)
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
  // A connection to either is a failed test, and an address of no host is no help.
  const [toPages, toModel] = [books.requests.length, local.requests.length]
  const env = { HTTP_PROXY: 'http://127.0.0.1:1', HTTPS_PROXY: 'http://127.0.0.1:1' }
  const { child, ended } = await serving(t, at, [...prompt, '--locked', '--digest', digestIn(first)], env)
  assert.match(child.output.stderr, /1 tool from the cache/)
  child.kill('SIGTERM')
  await ended
  assert.deepEqual([books.requests.length, local.requests.length], [toPages, toModel])
  // Without the word, the page is asked for again.
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

test('over standard input and output a host that starts it gets the tools', async (t) => {
  const at = place(t)
  const local = await provider(t, 'anthropic', { generate: adding().generate })
  const first = await run(at, words('anthropic', local, '--stdio'), withKey('anthropic'))
  assert.equal(first.stdout, '')
  const args = ['boot', '--prompt', 'Add two numbers', '--stdio', '--locked', '--digest', digestIn(first)]
  const messages = [
    {
      id: 1,
      method: 'initialize',
      params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'host', version: '1' } },
    },
    { method: 'notifications/initialized' },
    { id: 2, method: 'tools/call', params: { name: 'add', arguments: { a: 2, b: 3 } } },
  ]
  const child = listenTo(t, process.execPath, [program, ...args], { cwd: at.work, env: environment(at), limit: LIMIT })
  const ended = endOf(child)
  for (const message of messages) child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
  await waitFor('the answer', () => /"sum":5/.test(child.output.stdout) || child.exitCode !== null, LIMIT)
  const lines = child.output.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  assert.deepEqual(lines.find(({ id }) => id === 2).result.structuredContent, { sum: 5 })
  child.stdin.end()
  assert.equal((await ended).code, 0)
})

test('a key of a documented service reaches its host alone, and no text', async (t) => {
  const at = place(t)
  const books = await service(t)
  const list = planned('list_books', { url: books.url('/api/books') })
  const body = `const response = await fetch('${books.url('/api/books')}', { headers: { 'x-api-key': secrets.BOOKS_KEY } })
return await response.json()`
  const { generate, asked } = model({ plans: [plan(list)], handlers: { list_books: [code(body)] } })
  const local = await provider(t, 'openai', { generate })
  const args = ['boot', '--prompt', `Books, as in ${books.url('/rest.json')}`, '--provider', 'openai', '--base-url', local.baseUrl]
  args.push('--port', '0', '--secret', 'BOOKS_KEY', '--allow-host', books.host)
  const env = { BOOKS_KEY: SERVICE_KEY, OPENAI_API_KEY: MODEL_KEY }
  const first = await run(at, args, { env })
  assert.match(first.stderr, new RegExp(`the value of BOOKS_KEY to ${books.origin}`))
  const { url, child, ended } = await serving(t, at, [...args, '--digest', digestIn(first)], env)
  const client = await overHttp(t, url)
  const result = await client.callTool({ name: 'list_books', arguments: {} })
  assert.match(text(result), /Book 1/)
  child.kill('SIGTERM')
  await ended
  for (const seen of [
    text(result),
    first.stderr,
    child.output.stderr,
    child.output.stdout,
    JSON.stringify(asked),
    JSON.stringify(local.requests),
  ])
    assert.ok(!seen.includes(SERVICE_KEY))
  const missing = await run(at, args, { env: { OPENAI_API_KEY: MODEL_KEY } })
  assert.equal(missing.code, 1)
  assert.match(missing.stderr, /the secret BOOKS_KEY cannot be used: the environment variable BOOKS_KEY is not set/)
})

test('a dry run prints the plan and keeps nothing; a cached plan needs no key', async (t) => {
  const at = place(t)
  const local = await provider(t, 'anthropic', { generate: adding().generate })
  const dry = await run(at, words('anthropic', local, '--dry-run'), withKey('anthropic'))
  assert.equal(dry.code, 0)
  assert.match(dry.stdout, /add \(no network\)\n {2}Does add\.\n {2}arguments: \{.*\nmay reach: nothing/)
  assert.deepEqual(readdirSync(join(at.work, '.mcpboot-cache')), [])
  await run(at, words('anthropic', local, '--port', '0'), withKey('anthropic'))
  const cached = await run(at, ['boot', '--prompt', 'Add two numbers', '--dry-run'])
  assert.deepEqual([cached.code, cached.stdout], [0, dry.stdout])
  const without = await run(at, words('anthropic', local, '--dry-run', '--no-cache', '--json'), withKey('anthropic'))
  assert.equal(JSON.parse(without.stdout).plan.tools[0].name, 'add')
})

test('wrong words are told in one line, before anything is made', async (t) => {
  const at = place(t)
  write(at, 'empty.txt', ' \n')
  const used = createServer()
  await new Promise((resolve) => used.listen(0, '127.0.0.1', resolve))
  afterwards(t, () => used.close())
  const { port } = used.address()
  const prompt = ['--prompt', 'Add']
  for (const [args, exit, expected] of [
    [[], 2, /--prompt/],
    [[...prompt, '--prompt-file', 'empty.txt'], 2, /cannot be used with/],
    [['--prompt', ' '], 2, /--prompt is empty/],
    [['--prompt-file', 'empty.txt'], 2, /empty\.txt is empty/],
    [['--prompt-file', 'none.txt'], 1, /there is no file none\.txt/],
    [[...prompt, '--provider', 'acme'], 2, /invalid value 'acme'.*anthropic, openai/],
    [[...prompt, '--port', '70000'], 2, /invalid value '70000'/],
    [[...prompt, '--port', 'x'], 2, /invalid value 'x'/],
    [[...prompt, '--port', String(port)], 1, new RegExp(`port ${port} of 127\\.0\\.0\\.1 is in use`)],
    [[...prompt, '--host', 'example.com'], 2, /--host: /],
    [[...prompt, '--port', '0'], 2, /no key for the model: set ANTHROPIC_API_KEY/],
    [[...prompt, '--port', '0', '--provider', 'openai'], 2, /no key for the model: set OPENAI_API_KEY/],
    [[...prompt, '--locked', '--no-cache'], 2, /cannot be used with/],
    [[...prompt, '--stdio', '--token-file', 'x'], 2, /cannot be used with/],
    [[...prompt, '--tls-cert', 'x'], 2, /--tls-key/],
    [[...prompt, '--port', '0', '--locked'], 1, /has no tools of this prompt/],
    [[...prompt, '--port', '0', '--secret', 'A-B'], 2, /--secret: each must be NAME or NAME@HOST/],
    [[...prompt, '--port', '0', '--allow-host', 'a/b'], 2, /--allow-host: /],
    [[...prompt, '--port', '0', '--base-url', 'http://127.0.0.1:1/v1'], 1, /the model that makes the tools gave no answer/],
  ]) {
    const { code, stderr, stdout } = await run(at, ['boot', ...args])
    assert.equal(code, exit, `${args.join(' ')}: ${stderr}`)
    assert.match(stderr, expected)
    const told = stderr.split('\n').filter((line) => line && !line.startsWith('the tools may reach'))
    assert.equal(told.length, 1, stderr)
    assert.equal(stdout, '')
  }
  assert.ok(!existsSync(join(at.work, 'empty.txt.bad')))
})
