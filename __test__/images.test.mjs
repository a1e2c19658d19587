// Tests that images and sounds in a run's value reach a model as images and sounds: in the answers of the tools, over MCP, and in the
// requests of the real packages.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import Anthropic from '@anthropic-ai/sdk'
import { ChatAnthropic } from '@langchain/anthropic'
import { HumanMessage } from '@langchain/core/messages'
import { tool } from '@langchain/core/tools'
import { ChatOpenAI } from '@langchain/openai'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { generateText, stepCountIs } from 'ai'
import OpenAI from 'openai'
import { answerAnthropic, answerOpenAi, forAiSdk, forAnthropic, forLangChain, forOpenAi, withMedia } from '../adapters.mjs'
import { startProviders } from './fixtures/providers.mjs'
import { folder, openApproved, openGateway, root, wholeFile } from './support.mjs'

/** An image of one pixel. */
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
/** A sound without samples. */
const WAV = Buffer.from('RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\0\0\0\0', 'latin1').toString(
  'base64',
)
const backwards = (text) => [...text].reverse().join('')
/**
 * Code that returns the image and the sound. It contains their bytes in reverse order, so that a request has the bytes only in a result.
 */
const code = `const bytes = (text) => Uint8Array.fromBase64([...text].reverse().join(''))
export const handler = () => ({
  title: 'a dot',
  dot: { mimeType: 'image/png', data: bytes('${backwards(PNG)}') },
  beep: [{ mimeType: 'audio/x-wav', data: bytes('${backwards(WAV)}') }],
})`
const args = { code, input: null, timeoutMs: null }
const image = { type: 'image', mimeType: 'image/png', data: PNG }
const audio = { type: 'audio', mimeType: 'audio/wav', data: WAV }
const value = {
  title: 'a dot',
  dot: { mimeType: 'image/png', data: '[image 1, 70 bytes: beside this text]' },
  beep: [{ mimeType: 'audio/x-wav', data: '[audio 1, 44 bytes: beside this text]' }],
}
const JSON_TEXT = JSON.stringify({ value })
const PNG_URL = `data:image/png;base64,${PNG}`

const gateway = await openGateway(wholeFile)
const tools = gateway.agentTools()
const [run] = tools
const script = [[{ name: 'run_javascript', args }]]

describe('agentTools', () => {
  test('give them as content beside the JSON, where each leaves a mark', async () => {
    const answer = await run.execute(args)
    assert.deepEqual({ ...answer }, { value })
    assert.equal(JSON.stringify(answer), JSON_TEXT)
    assert.deepEqual(answer.content, [image, audio])
    assert.equal('content' in (await run.execute({ code: 'export const handler = () => 1' })), false)
    const own = await run.execute({ code: 'export const handler = () => ({ content: [1] })' })
    assert.deepEqual(own, { value: { content: [1] } })
  })

  test('count them in the budget, and leave out what does not fit, is too large, or is another thing', async () => {
    const many = `Array.from({ length: 30 }, () => ({ mimeType: 'image/png', data: Uint8Array.fromBase64('${PNG}') }))`
    const of = async (expression, maxResultTokens) =>
      gateway.agentTools({ maxResultTokens })[0].execute({ code: `export const handler = () => (${expression})` })
    assert.equal((await of(many, 100_000)).content.length, 10)
    const some = await of(many, 400)
    assert.ok(some.content.length > 0 && some.content.length <= 3, `${some.content.length}`)
    assert.equal((await of(many, 100)).content, undefined)
    for (const wrong of [
      `{ mimeType: 'image/svg+xml', data: '<svg/>' }`,
      `{ mimeType: 'image/png', data: new Uint8Array(4) }`,
      `{ mimeType: 'image/png', data: Uint8Array.fromBase64('${PNG}').slice(0, 4) }`,
    ])
      assert.equal((await of(wrong, 4000)).content, undefined, wrong)
  })
})

test('a host gets them over MCP, after the text and outside of the structured content', async (t) => {
  const served = await (await openGateway(t)).serve({ http: 0 })
  const client = new Client({ name: 'host', version: '1' })
  await client.connect(new StreamableHTTPClientTransport(new URL(served.url)))
  t.after(() => client.close())
  const { content, structuredContent } = await client.callTool({ name: 'run_javascript', arguments: args })
  assert.deepEqual(content, [{ type: 'text', text: JSON_TEXT }, image, audio])
  assert.deepEqual(structuredContent, { value })
})

describe('what is sent by', () => {
  test('OpenAI’s Chat Completions: a message of the user after the answers', async (t) => {
    const { url, seen } = await startProviders(t, script)
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
    const messages = [{ role: 'user', content: 'draw' }]
    for (let turn = 0; turn < 2; turn++) {
      const { choices } = await client.chat.completions.create({ model: 'fixture', messages, tools: forOpenAi(tools) })
      messages.push(choices[0].message, ...(await answerOpenAi(tools, choices[0].message)))
    }
    const [answer, shown] = seen.bodies[1].messages.slice(-2)
    assert.deepEqual([answer.role, answer.content], ['tool', JSON_TEXT])
    assert.equal(shown.role, 'user')
    assert.match(shown.content[0].text, /call_0_0/)
    assert.deepEqual(shown.content.slice(1), [
      { type: 'image_url', image_url: { url: PNG_URL } },
      { type: 'input_audio', input_audio: { data: WAV, format: 'wav' } },
    ])
  })

  test('OpenAI’s Responses: the output of the call', async (t) => {
    const { url, seen } = await startProviders(t, script)
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
    const input = [{ role: 'user', content: 'draw' }]
    for (let turn = 0; turn < 2; turn++) {
      const { output } = await client.responses.create({ model: 'fixture', input, tools: forOpenAi(tools, { api: 'responses' }) })
      input.push(...output, ...(await answerOpenAi(tools, output)))
    }
    const [text, shown, sound] = seen.bodies[1].input.at(-1).output
    assert.deepEqual(text, { type: 'input_text', text: JSON_TEXT })
    assert.deepEqual(shown, { type: 'input_image', image_url: PNG_URL, detail: 'auto' })
    assert.match(sound.text, /audio.*cannot be passed on/)
  })

  test('Anthropic: blocks of the result', async (t) => {
    const { url, seen } = await startProviders(t, script)
    const client = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 })
    const messages = [{ role: 'user', content: 'draw' }]
    for (let turn = 0; turn < 2; turn++) {
      const message = await client.messages.create({ model: 'fixture', max_tokens: 9, messages, tools: forAnthropic(tools) })
      messages.push({ role: 'assistant', content: message.content }, ...(await answerAnthropic(tools, message)))
    }
    const [text, shown, sound] = seen.bodies[1].messages.at(-1).content[0].content
    assert.deepEqual(text, { type: 'text', text: JSON_TEXT })
    assert.deepEqual(shown, { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } })
    assert.match(sound.text, /audio.*cannot be passed on/)
  })

  describe('the AI SDK, by', () => {
    const providers = {
      Anthropic: (url) => createAnthropic({ baseURL: `${url}/v1`, apiKey: 'none' })('claude-sonnet-4-5'),
      'OpenAI’s chat models': (url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: 'none' }).chat('gpt-5-mini'),
      'OpenAI’s Responses': (url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: 'none' }).responses('gpt-5-mini'),
    }
    /** The result of the call as the provider received it, and all that it received. */
    async function sent(t, provider, options) {
      const { url, seen } = await startProviders(t, script)
      const given = {
        model: providers[provider](url),
        tools: forAiSdk(tools, options),
        stopWhen: stepCountIs(2),
        maxRetries: 0,
        prompt: 'draw',
      }
      const { warnings } = await generateText(given)
      assert.deepEqual(warnings ?? [], [])
      assert.equal(seen.bodies.length, 2)
      return { result: seen.answers[0], body: JSON.stringify(seen.bodies[1]) }
    }

    for (const provider of Object.keys(providers)) {
      test(`${provider}: none by default, and never as text`, async (t) => {
        const { result, body } = await sent(t, provider)
        const [json, ...sentences] = result.split('\n')
        assert.equal(json, JSON_TEXT)
        assert.deepEqual(
          sentences.map((sentence) => sentence.match(/^\(the (image|audio), .* cannot be passed on/)?.[1]),
          ['image', 'audio'],
        )
        for (const bytes of [PNG, WAV]) assert.ok(!body.includes(bytes))
      })
    }

    test('Anthropic: images where they are asked for, and a sentence for a sound', async (t) => {
      const { result, body } = await sent(t, 'Anthropic', { media: ['image'] })
      const [text, shown, sound] = result
      assert.equal(text.text, JSON_TEXT)
      assert.deepEqual(shown, { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } })
      assert.match(sound.text, /audio.*cannot be passed on/)
      assert.ok(!body.includes(WAV))
    })

    test('OpenAI’s Responses: the same', async (t) => {
      const { result, body } = await sent(t, 'OpenAI’s Responses', { media: ['image'] })
      const [text, shown, sound] = result
      assert.equal(text.text, JSON_TEXT)
      assert.deepEqual([shown.type, shown.image_url], ['input_image', PNG_URL])
      assert.match(sound.text, /audio.*cannot be passed on/)
      assert.ok(!body.includes(WAV))
    })

    test('toModelOutput, in both of its forms', async () => {
      const { run_javascript } = forAiSdk(tools, { media: ['image', 'audio'] })
      const output = await run_javascript.execute(args, {})
      const content = {
        type: 'content',
        value: [
          { type: 'text', text: JSON_TEXT },
          { type: 'media', data: PNG, mediaType: 'image/png' },
          { type: 'media', data: WAV, mediaType: 'audio/wav' },
        ],
      }
      assert.deepEqual(run_javascript.toModelOutput({ toolCallId: '1', input: args, output }), content)
      assert.deepEqual(run_javascript.toModelOutput(output), content)
      assert.deepEqual(run_javascript.toModelOutput({ value: 1 }), { type: 'json', value: { value: 1 } })
      for (const media of ['image', ['video'], [1]]) assert.throws(() => forAiSdk(tools, { media }), { code: 'ERR_INVALID_OPTION' })
    })
  })

  describe('LangChain, by', () => {
    const openAi = (url, more) =>
      new ChatOpenAI({ model: 'fixture', apiKey: 'none', maxRetries: 0, configuration: { baseURL: `${url}/v1` }, ...more })
    const anthropic = (url) => new ChatAnthropic({ model: 'claude-sonnet-4-5', apiKey: 'none', maxRetries: 0, anthropicApiUrl: url })

    /** Calls the tool that the model asks for, and asks it twice more, as a later turn sends the same messages again. */
    async function sent(t, chat, media, prepared = (messages) => messages) {
      const { url, seen } = await startProviders(t, script)
      const langchain = forLangChain(tools, { tool, media })
      const model = chat(url).bindTools(langchain)
      const messages = [new HumanMessage('draw')]
      const called = await model.invoke(messages)
      const [call] = called.tool_calls
      const answer = await langchain.find(({ name }) => name === call.name).invoke(call)
      assert.deepEqual(answer.artifact.media, [image, audio])
      messages.push(called, answer)
      messages.push(await model.invoke(prepared(messages)), new HumanMessage('again'))
      await model.invoke(prepared(messages))
      return { result: seen.answers[0], body: JSON.stringify(seen.bodies.slice(1)), last: seen.bodies.at(-1) }
    }

    const chats = {
      'OpenAI’s Chat Completions': openAi,
      'OpenAI’s Responses': (url) => openAi(url, { useResponsesApi: true }),
      Anthropic: anthropic,
    }
    for (const [name, chat] of Object.entries(chats)) {
      test(`${name}: none by default`, async (t) => {
        const { result, body } = await sent(t, chat)
        assert.equal(result.split('\n')[0], JSON_TEXT)
        assert.match(result, /\n\(the image, image\/png, cannot be passed on.*\n\(the audio, /)
        for (const bytes of [PNG, WAV]) assert.ok(!body.includes(bytes))
      })
    }

    test('OpenAI’s Chat Completions: a message of the user after the tools’', async (t) => {
      const { result, last } = await sent(t, openAi, 'chat', withMedia)
      assert.equal(result, JSON_TEXT)
      assert.deepEqual(
        last.messages.map(({ role }) => role),
        ['user', 'assistant', 'tool', 'user', 'assistant', 'user'],
      )
      const [text, ...shown] = last.messages[3].content
      assert.match(text.text, /call_0_0/)
      assert.deepEqual(shown, [
        { type: 'image_url', image_url: { url: PNG_URL } },
        { type: 'input_audio', input_audio: { data: WAV, format: 'wav' } },
      ])
    })

    test('OpenAI’s Responses: the output of the call', async (t) => {
      const [text, shown, sound] = (await sent(t, chats['OpenAI’s Responses'], 'responses')).result
      assert.deepEqual(text, { type: 'input_text', text: JSON_TEXT })
      assert.deepEqual(shown, { type: 'input_image', image_url: PNG_URL, detail: 'auto' })
      assert.match(sound.text, /audio.*cannot be passed on/)
    })

    test('Anthropic: blocks of the result', async (t) => {
      const [text, shown, sound] = (await sent(t, anthropic, 'blocks')).result
      assert.equal(text.text, JSON_TEXT)
      assert.deepEqual(shown.source, { type: 'base64', media_type: 'image/png', data: PNG })
      assert.match(sound.text, /audio.*cannot be passed on/)
    })

    test('a wrong place is refused', () => {
      assert.throws(() => forLangChain(tools, { tool, media: 'image' }), { code: 'ERR_INVALID_OPTION' })
    })
  })

  test('the fixture refuses what the real API refuses: an image in a message of a tool', async (t) => {
    const { url } = await startProviders(t, script)
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
    const messages = [{ role: 'user', content: 'draw' }]
    const { choices } = await client.chat.completions.create({ model: 'fixture', messages, tools: forOpenAi(tools) })
    const content = [{ type: 'image_url', image_url: { url: PNG_URL } }]
    messages.push(choices[0].message, { role: 'tool', tool_call_id: 'call_0_0', content })
    await assert.rejects(
      client.chat.completions.create({ model: 'fixture', messages, tools: forOpenAi(tools) }),
      /takes text, not image_url/,
    )
  })
})

test('images of real servers reach a model, also where structured content has them as text', async (t) => {
  const files = folder(t)
  writeFileSync(join(files, 'dot.png'), Buffer.from(PNG, 'base64'))
  const server = (name, ...more) => ({
    command: process.execPath,
    args: [join(root, `node_modules/@modelcontextprotocol/server-${name}/dist/index.js`), ...more],
    confirm: 'never',
  })
  const opened = await openApproved(t, { files: server('filesystem', files), everything: server('everything', 'stdio') })
  const [execute] = opened.agentTools()
  const read = `import { read_media_file } from 'host:mcp-files'; export const handler = () => read_media_file({ path: '${join(files, 'dot.png')}' })`
  const dot = await execute.execute({ code: read })
  assert.deepEqual(dot.content, [image])
  assert.doesNotMatch(JSON.stringify(dot), /iVBOR/)
  const tiny = `import { get_tiny_image } from 'host:mcp-everything'; export const handler = () => get_tiny_image()`
  const { content } = await execute.execute({ code: tiny })
  assert.deepEqual(
    content.map(({ type, mimeType }) => [type, mimeType]),
    [['image', 'image/png']],
  )
})
