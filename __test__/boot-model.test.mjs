// The model client of `boot`: what it sends to both kinds of provider, and what it says when one fails. The provider is a server of this test.
import assert from 'node:assert/strict'
import { chmodSync, chownSync, copyFileSync, mkdirSync, renameSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
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
  /** A folder with the client as npx has it, without the packages that it needs, and a working folder of a person. */
  function installed(t) {
    const [cache, work] = [folder(t), folder(t)]
    mkdirSync(join(cache, 'bin'))
    for (const file of ['bin/model.mjs', 'package.json']) copyFileSync(join(root, file), join(cache, file))
    const ask = (baseUrl) => {
      const settings = { provider: 'anthropic', apiKey: KEY, baseUrl, retries: 0 }
      const code = `import { model } from ${JSON.stringify(join(cache, 'bin/model.mjs'))}
        const generate = await model(${JSON.stringify(settings)}, (text) => console.error(text))
        console.log(await generate({ system: 'the rules', user: 'the task', maxTokens: 10 }))`
      return run(t, process.execPath, ['--input-type=module', '--eval', code], { cwd: work })
    }
    return { work, ask }
  }

  /** Writes a package to the modules of a folder. */
  function write(work, name, version, code = 'throw new Error("it was loaded")') {
    const at = join(work, 'node_modules', name)
    mkdirSync(at, { recursive: true })
    writeFileSync(join(at, 'package.json'), JSON.stringify({ name, version, main: 'index.js' }))
    writeFileSync(join(at, 'index.js'), code)
    return at
  }

  test('that does not have its packages beside it says how to get them', async (t) => {
    const { ask } = installed(t)
    const { stderr } = await ask('http://127.0.0.1:1/v1')
    assert.match(
      stderr,
      /the package ai is not installed\. In this folder: npm install ai@6 @ai-sdk\/anthropic@3\. Or start with: npx -p hyperlight-mcp -p ai@6 -p @ai-sdk\/anthropic@3 hyperlight-mcp boot/,
    )
  })

  test('takes them from the working folder, and says from where', async (t) => {
    const local = await provider(t, [{ body: messages.anthropic('an answer') }])
    const { work, ask } = installed(t)
    symlinkSync(join(root, 'node_modules'), join(work, 'node_modules'))
    const { stdout, stderr } = await ask(local.baseUrl)
    assert.equal(stdout, 'an answer\n', stderr)
    assert.match(stderr, /^ai is loaded from the working folder: \/.*\n@ai-sdk\/anthropic is loaded from the working folder: \/.*\n$/)
  })

  test('loads neither a version for which it was not written nor a package of another user', async (t) => {
    const { work, ask } = installed(t)
    const at = write(work, 'ai', '4.3.0')
    const old = await ask('http://127.0.0.1:1/v1')
    assert.match(old.stderr, /the package ai in .* has version 4\.3\.0, which cannot be used\. In this folder: npm install ai@6 /)
    write(work, 'ai', '6.0.0')
    if (process.getuid() === 0) {
      chownSync(at, 12_345, 12_345)
      assert.match((await ask('http://127.0.0.1:1/v1')).stderr, /is not loaded: .*ai belongs to another user\. In this folder/)
      chownSync(at, 0, 0)
    }
    assert.match((await ask('http://127.0.0.1:1/v1')).stderr, /it was loaded/)
  })

  test('loads no package that another user can change, wherever its files and folders are', async (t) => {
    const { work, ask } = installed(t)
    const at = write(work, 'ai', '6.0.0')
    const modules = join(work, 'node_modules')
    const asked = async () => (await ask('http://127.0.0.1:1/v1')).stderr
    for (const [place, mode] of [
      [at, 0o1777],
      [join(at, 'index.js'), 0o666],
      [join(at, 'package.json'), 0o666],
      [modules, 0o1777],
      [work, 0o777],
    ]) {
      const before = statSync(place).mode
      chmodSync(place, mode)
      assert.match(await asked(), /is not loaded: .* can be written by other users/, `${place} ${mode.toString(8)}`)
      chmodSync(place, before)
    }
    chmodSync(work, 0o1777)
    assert.match(await asked(), /it was loaded/, 'nobody else can replace what lies in a folder such as /tmp')
    if (process.getuid() !== 0) return
    for (const place of [join(at, 'index.js'), join(at, 'package.json'), modules]) {
      chownSync(place, 12_345, 12_345)
      assert.match(await asked(), /is not loaded: .* belongs to another user/, place)
      chownSync(place, 0, 0)
    }
    assert.match(await asked(), /it was loaded/)
  })

  test('takes no folder above node_modules for the package', async (t) => {
    const { work, ask } = installed(t)
    const at = write(work, 'ai', '6.0.0')
    writeFileSync(join(at, 'package.json'), JSON.stringify({ name: 'x', main: 'index.js' }))
    writeFileSync(join(work, 'package.json'), JSON.stringify({ name: 'ai', version: '6.0.0' }))
    assert.match((await ask('http://127.0.0.1:1/v1')).stderr, /has no package\.json with its name/)
    // A linked package is in another folder, and is loaded from there.
    const linked = join(folder(t), 'ai')
    renameSync(at, linked)
    symlinkSync(linked, at)
    writeFileSync(join(at, 'package.json'), JSON.stringify({ name: 'ai', version: '6.0.0', main: 'index.js' }))
    assert.match((await ask('http://127.0.0.1:1/v1')).stderr, /it was loaded/)
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
