// The model client of `boot`: what it sends to both kinds of provider, and what it says when one fails. The provider is a server of this test.
import assert from 'node:assert/strict'
import { copyFileSync, mkdirSync, symlinkSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { model, PROVIDERS } from '../bin/model.mjs'
import { afterwards, folder, root, run } from './support.mjs'

const KEY = 'sk-test-0123456789abcdef'
const messages = {
  anthropic: (text, stop_reason = 'end_turn') => ({
    type: 'message',
    id: '1',
    model: 'm',
    role: 'assistant',
    content: [{ type: 'text', text }],
    stop_reason,
    usage: { input_tokens: 1, output_tokens: 1 },
  }),
  openai: (content, finish_reason = 'stop') => ({
    id: '1',
    created: 1,
    model: 'm',
    object: 'chat.completion',
    choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  }),
}

/** A provider that answers each request with the next of `answers`: a status, headers, and a body. Returns its address and what it was sent. */
async function provider(t, answers) {
  const requests = []
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    requests.push({ url: request.url, headers: request.headers, body: JSON.parse(body) })
    const { status = 200, headers = {}, body: answer, hangUp } = answers[Math.min(requests.length, answers.length) - 1]
    response.writeHead(status, { 'content-type': 'application/json', ...headers })
    if (hangUp) return response.write('{"type":"mess', () => response.destroy())
    response.end(typeof answer === 'string' ? answer : JSON.stringify(answer))
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  afterwards(t, () => server.close())
  return { baseUrl: `http://127.0.0.1:${server.address().port}/v1`, requests }
}

const ask = async (kind, { baseUrl }, more = {}) => {
  const generate = await model({ provider: kind, apiKey: KEY, baseUrl, ...more })
  return generate({ system: 'the rules', user: 'the task', maxTokens: 16_384 })
}

for (const kind of Object.keys(PROVIDERS)) {
  describe(`a model of ${kind}`, () => {
    const message = messages[kind]

    test('is sent the system text, the task, the limit and the key, and its text comes back', async (t) => {
      const local = await provider(t, [{ body: message('an answer') }])
      assert.equal(await ask(kind, local, { model: 'a-model' }), 'an answer')
      const [{ body, headers }] = local.requests
      assert.equal(body.model, 'a-model')
      assert.equal(body.max_tokens ?? body.max_completion_tokens, 16_384)
      assert.match(JSON.stringify(body), /the rules.*the task|the task.*the rules/)
      assert.ok((headers['x-api-key'] ?? headers.authorization).includes(KEY))
    })

    test('is the default one unless another is named', async (t) => {
      const local = await provider(t, [{ body: message('x') }])
      await ask(kind, local)
      assert.equal(local.requests[0].body.model, PROVIDERS[kind].model)
    })

    test('that is busy is asked again after the time that it names', async (t) => {
      const local = await provider(t, [
        { status: 429, headers: { 'retry-after-ms': '1' }, body: { error: { message: 'slow down' } } },
        { body: message('later') },
      ])
      assert.equal(await ask(kind, local), 'later')
      assert.equal(local.requests.length, 2)
    })

    test('that fails is an error with its words and its status, without the key', async (t) => {
      const wrong = await provider(t, [{ status: 401, body: { type: 'error', error: { type: 'x', message: `the key ${KEY} is wrong` } } }])
      await assert.rejects(ask(kind, wrong), { message: 'the key *** is wrong (status 401)' })
      const page = await provider(t, [{ headers: { 'content-type': 'text/html' }, body: '<html>Welcome</html>' }])
      await assert.rejects(ask(kind, page), ({ message }) => !message.includes(KEY) && message.length < 400)
      const broken = await provider(t, [{ hangUp: true }])
      await assert.rejects(ask(kind, broken, { retries: 0 }), ({ message }) => message.length < 400)
    })

    test('is no longer asked when the caller aborts', async (t) => {
      const local = await provider(t, [{ body: message('x') }])
      const generate = await model({ provider: kind, apiKey: KEY, baseUrl: local.baseUrl })
      await assert.rejects(generate({ system: '', user: 'x', maxTokens: 10, signal: AbortSignal.abort() }), Error)
    })
  })
}

test('OpenAI itself is asked by its responses, and any other server by chat completions', async (t) => {
  const body = {
    id: 'r',
    object: 'response',
    created_at: 1,
    status: 'completed',
    model: 'm',
    output: [
      {
        type: 'message',
        id: 'm',
        role: 'assistant',
        status: 'completed',
        content: [{ type: 'output_text', text: 'an answer', annotations: [] }],
      },
    ],
    usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 },
  }
  const local = await provider(t, [{ body }, { body }, { body: messages.openai('another') }])
  // Requests to OpenAI go to the server of this test.
  const { fetch } = globalThis
  afterwards(t, () => Object.assign(globalThis, { fetch }))
  globalThis.fetch = (url, options) => fetch(String(url).replace('https://api.openai.com/v1', local.baseUrl), options)
  assert.equal(await ask('openai', {}), 'an answer')
  assert.equal(await ask('openai', { baseUrl: 'https://api.openai.com/v1' }), 'an answer')
  assert.equal(await ask('openai', local), 'another')
  assert.deepEqual(
    local.requests.map(({ url }) => url),
    ['/v1/responses', '/v1/responses', '/v1/chat/completions'],
  )
  const [{ body: sent, headers }] = local.requests
  assert.equal(sent.max_output_tokens, 16_384)
  assert.match(JSON.stringify(sent.input), /the rules.*the task/)
  assert.ok(headers.authorization.includes(KEY))
})

describe('the client of models', () => {
  /** A project within another folder, which has the client as npm installs it, without the packages that it needs, and another working folder. */
  function installed(t) {
    const [above, work] = [folder(t), folder(t)]
    const project = join(above, 'project')
    const own = join(project, 'node_modules/hyperlight-mcp')
    mkdirSync(join(own, 'bin'), { recursive: true })
    for (const file of ['bin/model.mjs', 'package.json']) copyFileSync(join(root, file), join(own, file))
    const ask = (baseUrl) => {
      const settings = { provider: 'anthropic', apiKey: KEY, baseUrl, retries: 0 }
      const code = `import { model } from ${JSON.stringify(join(own, 'bin/model.mjs'))}
        const generate = await model(${JSON.stringify(settings)})
        console.log(await generate({ system: 'the rules', user: 'the task', maxTokens: 10 }))`
      return run(t, process.execPath, ['--input-type=module', '--eval', code], { cwd: work })
    }
    return { above, project, work, ask }
  }

  /** Links the packages of this repository into the modules of a folder. */
  function link(at) {
    mkdirSync(join(at, 'node_modules'), { recursive: true })
    for (const name of ['ai', '@ai-sdk']) symlinkSync(join(root, 'node_modules', name), join(at, 'node_modules', name))
  }

  test('that does not have its packages beside it says how to get them', async (t) => {
    const { ask } = installed(t)
    const { stderr } = await ask('http://127.0.0.1:1/v1')
    assert.match(
      stderr,
      /the package ai is not installed\. Start with: npx -p hyperlight-mcp -p ai@6 -p @ai-sdk\/anthropic@3 hyperlight-mcp boot …, or install them together: npm install hyperlight-mcp ai@6 @ai-sdk\/anthropic@3/,
    )
  })

  test('takes them from where it is installed itself', async (t) => {
    const local = await provider(t, [{ body: messages.anthropic('an answer') }])
    const { project, ask } = installed(t)
    link(project)
    const { stdout, stderr } = await ask(local.baseUrl)
    assert.equal(stdout, 'an answer\n', stderr)
  })

  test('takes them neither from the working folder nor from a folder above, where a server in a box may have made them', async (t) => {
    const { above, work, ask } = installed(t)
    for (const at of [work, above]) link(at)
    const { stdout, stderr } = await ask('http://127.0.0.1:1/v1')
    assert.equal(stdout, '')
    assert.match(stderr, /the package ai is not installed/)
  })
})

test('an error never shows what stands before the host of an address', async (t) => {
  const local = await provider(t, [
    { status: 400, body: { type: 'error', error: { type: 'x', message: 'no http://ada:password@host/v1 here' } } },
  ])
  await assert.rejects(ask('anthropic', local), { message: 'no http://***@host/v1 here (status 400)' })
})

test('a refusal of the model is an error', async (t) => {
  const local = await provider(t, [{ body: messages.openai('', 'content_filter') }])
  await assert.rejects(ask('openai', local), { message: 'the model refused to answer' })
  const other = await provider(t, [{ body: messages.anthropic('', 'refusal') }])
  await assert.rejects(ask('anthropic', other), { message: 'the model refused to answer' })
})

test('a model that cannot be reached is an error that says so', async (t) => {
  const { baseUrl } = await provider(t, [])
  const generate = await model({ provider: 'openai', apiKey: KEY, baseUrl: baseUrl.replace(/:\d+/, ':1'), retries: 0 })
  await assert.rejects(generate({ system: '', user: 'x', maxTokens: 10 }), { message: /Cannot connect|bad port|ECONNREFUSED/ })
})
