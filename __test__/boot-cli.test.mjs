// The command `boot`: from a prompt to a served tool server, with a provider of this test that speaks both wire formats.
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { adding, digestIn, serving, text, withKey, words } from './boot-command.mjs'
import { code, MODEL_KEY, model, plan, planned, provider, SERVICE_KEY, service } from './booting.mjs'
import { environment, LIMIT, place, program, run, write } from './command-line.mjs'
import { overHttp } from './serving.mjs'
import { afterwards, endOf, listenTo, waitFor } from './support.mjs'

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
        /the plan, try 1: \d+ bytes from the model, /,
        /planned 1 tool, /,
        /wrote add \(1 of 1\): 2 lines/,
        /1 \| console\.log\("adding"\)/,
        /These tools are new/,
      ])
        assert.match(first.stderr, part)
      assert.equal(asked.length, 2)
      const { url, entry, child, ended } = await serving(t, at, words(kind, local, '--port', '0', '--digest', digestIn(first)))
      const client = await overHttp(t, url)
      const { tools } = await client.listTools()
      assert.deepEqual(
        tools.map(({ name }) => name),
        ['add'],
      )
      assert.deepEqual((await client.callTool({ name: 'add', arguments: { a: 2, b: 40 } })).structuredContent, { sum: 42 })
      assert.equal((await fetch(new URL('/health', url))).status, 200)
      assert.deepEqual(entry, { type: 'http', url })
      await waitFor('the line that the code logs', () => /log: add log: adding/.test(child.output.stderr), LIMIT)
      child.kill('SIGTERM')
      assert.equal((await ended).code, 0)
      assert.equal(asked.length, 2)
      // If an approved tool is found in the cache, nobody is asked, and neither a key nor a provider is needed.
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
        '10 MiB': ['x'.repeat(10 * 1024 * 1024), /its plan of the tools cannot be used|gave no answer/],
        prose: ['Here are some tools: add, subtract.', /the model was asked twice, and its plan of the tools cannot be used/],
        'an empty plan': ['{"tools": []}', /the model was asked twice and planned no tool/],
        'a refusal': ['{"refusal": "I would rather not"}', /the model refused to plan/],
        'two fences with a wrong schema': [
          `\`\`\`json\n{"tools":[{"name":"A B"}]}\n\`\`\`\n\`\`\`json\n{"tools":[]}\n\`\`\``,
          /planned no tool|its plan of the tools cannot be used/,
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
  assert.match(
    dry.stdout,
    /add \(no network\)\n {2}description: Does add\.\n {2}arguments: \{.*\n {2}notes: Return the JSON\.\nmay reach: nothing/,
  )
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
    [[...prompt, '--port', '0', '--locked'], 1, /has no tools for this prompt/],
    [[...prompt, '--port', '0', '--secret', 'A-B'], 2, /--secret: each must be NAME or NAME@HOST/],
    [[...prompt, '--port', '0', '--allow-host', 'a/b'], 2, /--allow-host: /],
    [[...prompt, '--port', '0', '--base-url', 'http://127.0.0.1:1/v1'], 1, /the model that makes the tools gave no answer/],
  ]) {
    const { code, stderr, stdout } = await run(at, ['boot', ...args])
    assert.equal(code, exit, `${args.join(' ')}: ${stderr}`)
    assert.match(stderr, expected)
    const told = stderr.split('\n').filter((line) => line && !/^(the tools may reach|asking the model for the plan$)/.test(line))
    assert.equal(told.length, 1, stderr)
    assert.equal(stdout, '')
  }
  assert.ok(!existsSync(join(at.work, 'empty.txt.bad')))
})
