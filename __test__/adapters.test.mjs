// Tests of the adapters with the providers' real packages. The provider here refuses the same requests as the real ones.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import { tool } from '@langchain/core/tools'
import { FakeListChatModel } from '@langchain/core/utils/testing'
import { asSchema, generateText, stepCountIs } from 'ai'
import { MockLanguageModelV3 } from 'ai/test'
import OpenAI from 'openai'
import { answerAnthropic, answerOpenAi, forAiSdk, forAnthropic, forLangChain, forOpenAi } from '../adapters.mjs'
import { assertStrict, startProviders } from './fixtures/providers.mjs'
import { failure, fixture, folder, ms, openApproved, outputOf, root, run as runProgram, wholeFile } from './support.mjs'

const gateway = await openApproved(wholeFile, { fixture: fixture() })
const tools = gateway.agentTools()

const code =
  'import { get_forecast } from "host:mcp-fixture"; export const handler = ({ location }) => get_forecast({ location }).temperature'
const run = { name: 'run_javascript', args: { code, input: '{"location":"Oslo"}', timeoutMs: null } }
/** The model searches, then makes two calls in one turn (one of them of a tool that does not exist), and then runs code. */
const script = [
  [{ name: 'search_mcp_tools', args: { query: 'weather forecast', limit: 1, servers: null } }],
  [
    { name: 'unknown_tool', args: {} },
    { name: 'list_mcp_servers', args: {} },
  ],
  [run],
]
const DEGREES = 'The tool said: {"value":93}'

/** Checks the answers to all calls of the script, as the provider received them. */
function checkAnswers(seen) {
  const [found, unknown, listed, value] = seen.answers.map((answer) => JSON.parse(answer))
  assert.equal(found.tools[0].function, 'get_forecast')
  assert.equal(unknown.error.code, 'ERR_UNKNOWN_TOOL')
  assert.match(unknown.error.message, /unknown_tool.*run_javascript/)
  assert.equal(listed.servers[0].name, 'fixture')
  assert.deepEqual(value, { value: 93 })
  assert.deepEqual(
    seen.tools,
    tools.map(({ name }) => name),
  )
}

test('what the adapters give is what the packages take, as TypeScript sees it', () => {
  outputOf(join(root, 'node_modules/.bin/tsc'), ['-p', join(root, '__test__/types/adapters')])
})

describe('OpenAI', () => {
  test('Chat Completions: every call of a message is answered', async (t) => {
    const { url, seen } = await startProviders(t, script)
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
    const messages = [{ role: 'user', content: 'how warm is it?' }]
    for (;;) {
      const completion = await client.chat.completions.create({ model: 'fixture', messages, tools: forOpenAi(tools) })
      const [{ message }] = completion.choices
      const answers = await answerOpenAi(tools, message)
      if (answers.length === 0) {
        assert.equal(message.content, DEGREES)
        break
      }
      messages.push(message, ...answers)
    }
    checkAnswers(seen)
  })

  test('Responses: every call of an output is answered', async (t) => {
    const { url, seen } = await startProviders(t, script)
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
    const input = [{ role: 'user', content: 'how warm is it?' }]
    for (;;) {
      const response = await client.responses.create({ model: 'fixture', input, tools: forOpenAi(tools, { api: 'responses' }) })
      const answers = await answerOpenAi(tools, response.output)
      if (answers.length === 0) {
        assert.equal(response.output_text, DEGREES)
        break
      }
      input.push(...response.output, ...answers)
    }
    checkAnswers(seen)
  })

  test('arguments that are not JSON are answered, not thrown', async () => {
    const message = {
      role: 'assistant',
      tool_calls: [{ id: '1', type: 'function', function: { name: 'list_mcp_servers', arguments: '{"a' } }],
    }
    const [answer] = await answerOpenAi(tools, message)
    assert.deepEqual([answer.role, answer.tool_call_id], ['tool', '1'])
    assert.match(JSON.parse(answer.content).error.message, /they are not JSON/)
    assert.throws(() => forOpenAi(tools, { api: 'assistants' }), /'chat' or 'responses'/)
  })

  test('what is no message of the provider is refused, and the right function named', async () => {
    const block = { type: 'tool_use', id: '1', name: 'list_mcp_servers', input: {} }
    const ofAnthropic = { id: 'msg_1', type: 'message', role: 'assistant', content: [block], stop_reason: 'tool_use' }
    const ofOpenAi = { role: 'assistant', content: null, refusal: null, tool_calls: [] }
    const ofResponses = { type: 'message', id: 'msg_1', role: 'assistant', content: [{ type: 'output_text', text: 'hi' }] }
    const ofAiSdk = { role: 'assistant', content: [{ type: 'tool-call', toolCallId: '1', toolName: 'x', input: {} }] }
    const toOpenAi = [
      [ofAnthropic, /which answerAnthropic takes$/],
      [{ ...ofAnthropic, content: [{ type: 'text', text: 'hi' }] }, /which answerAnthropic takes$/],
      [{ role: 'assistant', content: [block] }, /which answerAnthropic takes$/],
      [[block], /give the message to answerAnthropic$/],
      [[{ index: 0, message: ofOpenAi }], /give choices\[0\]\.message$/],
      [{ choices: [{ message: ofOpenAi }] }, /give choices\[0\]\.message$/],
      [[{ role: 'user', content: 'hi' }, ofOpenAi], /a list of messages: give the last one$/],
      [{ output: [ofResponses] }, /a response: give its output$/],
      [ofResponses, /give its whole output$/],
      [ofAiSdk, /by itself$/],
      [[1], /a list of other things$/],
      [[null], /a list of other things$/],
      [['function_call'], /a list of other things$/],
      ...[undefined, null, 'hi', {}, { role: 'user' }, { role: 'assistant', tool_calls: 'x' }].map((wrong) => [wrong, /, not /]),
    ]
    for (const [wrong, told] of toOpenAi) {
      const error = await failure(answerOpenAi(tools, wrong), 'ERR_INVALID_OPTION')
      assert.ok(error instanceof TypeError)
      assert.match(error.message, /^answerOpenAi: expected the message of a chat completion/)
      assert.match(error.message, told)
    }
    const toAnthropic = [
      [ofOpenAi, /which answerOpenAi takes$/],
      [{ role: 'assistant', content: 'hi', refusal: null }, /which answerOpenAi takes$/],
      [{ role: 'assistant', content: 'hi', tool_calls: [] }, /which answerOpenAi takes$/],
      [{ choices: [{ message: ofOpenAi }] }, /to answerOpenAi$/],
      [{ output: [ofResponses] }, /to answerOpenAi$/],
      [ofResponses, /to answerOpenAi$/],
      [ofAiSdk, /by itself$/],
      [{ role: 'user', content: 'hi' }, /role user$/],
      ...[undefined, null, 'hi', [], {}, { role: 'assistant' }, { content: {} }, { content: ['hi'] }].map((wrong) => [wrong, /, not /]),
    ]
    for (const [wrong, told] of toAnthropic) {
      const { message } = await failure(answerAnthropic(tools, wrong), 'ERR_INVALID_OPTION')
      assert.match(message, /^answerAnthropic: expected a message/)
      assert.match(message, told)
    }
  })

  test('what calls nothing has no answer', async () => {
    assert.deepEqual(await answerOpenAi(tools, { role: 'assistant', content: 'hi' }), [])
    assert.deepEqual(await answerOpenAi(tools, { role: 'assistant', content: [{ type: 'text', text: 'hi' }] }), [])
    assert.deepEqual(await answerOpenAi(tools, []), [])
    assert.deepEqual(await answerOpenAi(tools, [{ type: 'reasoning', id: 'rs_1', summary: [] }, { type: 'a_new_item' }]), [])
    assert.deepEqual(await answerAnthropic(tools, { role: 'assistant', content: 'hi' }), [])
    assert.deepEqual(await answerAnthropic(tools, { role: 'assistant', content: [{ type: 'a_new_block' }] }), [])
  })

  test('tools of the agent’s own are asked for by name', async () => {
    const others = async (name, args) => (name === 'mine' ? { got: JSON.parse(args) } : undefined)
    const call = (name) => ({ id: name, type: 'function', function: { name, arguments: '{"n":1}' } })
    const [mine, unknown] = await answerOpenAi(tools, { role: 'assistant', tool_calls: [call('mine'), call('theirs')] }, { others })
    assert.deepEqual(JSON.parse(mine.content), { got: { n: 1 } })
    assert.equal(JSON.parse(unknown.content).error.code, 'ERR_UNKNOWN_TOOL')
  })
})

describe('Anthropic', () => {
  test('every call of a message is answered by the next one', async (t) => {
    const { url, seen } = await startProviders(t, script)
    const client = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 })
    const messages = [{ role: 'user', content: 'how warm is it?' }]
    for (;;) {
      const message = await client.messages.create({ model: 'fixture', max_tokens: 99, messages, tools: forAnthropic(tools) })
      const answers = await answerAnthropic(tools, message)
      if (answers.length === 0) {
        assert.equal(message.content[0].text, DEGREES)
        break
      }
      messages.push({ role: 'assistant', content: message.content }, ...answers)
    }
    checkAnswers(seen)
    for (const { input_schema } of seen.bodies[0].tools) assertStrict(input_schema)
  })

  test('an answer that is an error says so', async () => {
    const call = (id, name, input) => ({ type: 'tool_use', id, name, input })
    const message = {
      role: 'assistant',
      content: [{ type: 'text', text: 'x' }, call('1', 'mcp_server_info', { server: 'no' }), call('2', 'list_mcp_servers', {})],
    }
    const [{ role, content }] = await answerAnthropic(tools, message)
    assert.equal(role, 'user')
    assert.deepEqual(
      content.map(({ tool_use_id, is_error }) => [tool_use_id, is_error]),
      [
        ['1', true],
        ['2', undefined],
      ],
    )
  })

  test('an abort rejects', async () => {
    const message = { content: [{ type: 'tool_use', id: '1', name: 'list_mcp_servers', input: {} }] }
    await failure(answerAnthropic(tools, message, { signal: AbortSignal.abort() }), 'ERR_ABORTED')
  })
})

describe('the AI SDK', () => {
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } }
  const reply = (content, unified) => ({ content, finishReason: { unified }, usage, warnings: [] })
  const called = ({ name, args }, id) => ({ type: 'tool-call', toolCallId: `${id}`, toolName: name, input: JSON.stringify(args) })

  test('calls the tools by itself, and knows their schemas', async () => {
    const given = forAiSdk(tools)
    assert.deepEqual(
      Object.keys(given),
      tools.map(({ name }) => name),
    )
    assert.equal(asSchema(given.run_javascript.inputSchema).jsonSchema, tools[0].inputSchema, 'taken as it is')
    const model = new MockLanguageModelV3({
      doGenerate: [reply([called(run, 1)], 'tool-calls'), reply([{ type: 'text', text: 'done' }], 'stop')],
    })
    const { text, steps } = await generateText({ model, tools: given, stopWhen: stepCountIs(5), prompt: 'how warm is it?' })
    assert.equal(text, 'done')
    assert.deepEqual(steps[0].toolResults[0].output, { value: 93 })
    const [first, second] = model.doGenerateCalls
    assert.deepEqual(first.tools[0].inputSchema, tools[0].inputSchema)
    assert.deepEqual(second.prompt.at(-1).content[0].output, { type: 'json', value: { value: 93 } })
  })

  test('hands on its abort', async () => {
    const controller = new AbortController()
    const endless = { name: 'run_javascript', args: { code: 'export function handler() { console.log("started"); for (;;); }' } }
    const model = new MockLanguageModelV3({
      doGenerate: async () => {
        setImmediate(() => controller.abort())
        return reply([called(endless, 1)], 'tool-calls')
      },
    })
    const { content } = await generateText({ model, tools: forAiSdk(tools), prompt: 'loop', abortSignal: controller.signal })
    assert.equal(content.find(({ type }) => type === 'tool-error').error.code, 'ERR_ABORTED')
  })
})

describe('LangChain', () => {
  const langchain = forLangChain(tools, { tool })
  const named = (name) => langchain.find((tool) => tool.name === name)

  test('a call of a model becomes a message', async () => {
    const message = await named('run_javascript').invoke({ type: 'tool_call', id: 'call_1', name: 'run_javascript', args: run.args })
    assert.deepEqual([message.getType(), message.tool_call_id, message.content], ['tool', 'call_1', '{"value":93}'])
  })

  test('what may be null may be missing', async () => {
    assert.match(await named('search_mcp_tools').invoke({ query: 'weather forecast' }), /"get_forecast"/)
    await assert.rejects(named('search_mcp_tools').invoke({}), /did not match expected schema/)
  })

  test('hands on its abort', async () => {
    const controller = new AbortController()
    const running = named('run_javascript').invoke({ code: 'export function handler() { for (;;); }' }, { signal: controller.signal })
    setImmediate(() => controller.abort())
    await assert.rejects(running, { name: 'AbortError' })
  })

  test('chat models take them', () => {
    assert.throws(() => forLangChain(tools, {}), /give \{ tool \}/)
    assert.ok(new FakeListChatModel({ responses: ['x'] }).withConfig({ tools: langchain }))
    for (const { name, description, schema } of langchain) {
      assert.ok(name && description)
      assert.equal(schema.type, 'object')
    }
  })
})

describe('the examples', { timeout: ms(120_000) }, () => {
  const sum = 'import { get_sum } from "host:mcp-everything"; export const handler = ({ a, b }) => get_sum({ a, b })'
  const everything = [[{ name: 'run_javascript', args: { code: sum, input: '{"a":20,"b":22}', timeoutMs: null } }]]

  /** Returns the output of an example. */
  async function example(t, program, environment, args = []) {
    const home = folder(t)
    const env = { ...process.env, HOME: home, TMPDIR: home, NO_COLOR: '1', ...environment }
    const { code, stdout, stderr } = await runProgram(t, process.execPath, [join(root, 'examples/agents', program), ...args], {
      cwd: root,
      env,
    })
    assert.equal(code, 0, stdout + stderr)
    return stdout
  }

  const cases = [
    ['ai-sdk.mjs', (url) => ({ AI_GATEWAY_BASE_URL: `${url}/v3/ai`, AI_GATEWAY_API_KEY: 'none' })],
    ['openai.mjs', (url) => ({ OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: 'none' })],
    ['openai.mjs', (url) => ({ OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: 'none' }), ['--responses']],
    ['anthropic.mjs', (url) => ({ ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: 'none' })],
    ['langchain.mjs', (url) => ({ OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: 'none' })],
  ]
  for (const [program, environment, args] of cases) {
    test(`${program} ${args ?? ''}: a model calls a server's tool by code`, async (t) => {
      const { url, seen } = await startProviders(t, everything)
      const printed = await example(t, program, environment(url), args)
      assert.match(printed, /^The tool said: \{"value":"The sum of 20 and 22 is 42\."/m)
      assert.equal(seen.paths.length, 2)
    })
  }
})
