// The tools of a gateway with OpenAI's own package: Chat Completions, or with --responses the Responses API.
//
//   npm install openai
//   OPENAI_API_KEY=… node examples/agents/openai.mjs [--responses]
import { answerOpenAi, forOpenAi } from 'hyperlight-mcp/adapters'
import OpenAI from 'openai'
import { openGateway, question } from './gateway.mjs'

const client = new OpenAI()
const model = process.env.MODEL ?? 'gpt-5-mini'

async function chat(tools, system) {
  const messages = [
    { role: 'system', content: system },
    { role: 'user', content: question },
  ]
  for (;;) {
    const completion = await client.chat.completions.create({ model, messages, tools: forOpenAi(tools) })
    const [{ message }] = completion.choices
    const answers = await answerOpenAi(tools, message)
    if (answers.length === 0) return message.content
    messages.push(message, ...answers)
  }
}

async function responses(tools, instructions) {
  const input = [{ role: 'user', content: question }]
  for (;;) {
    const response = await client.responses.create({ model, instructions, input, tools: forOpenAi(tools, { api: 'responses' }) })
    const answers = await answerOpenAi(tools, response.output)
    if (answers.length === 0) return response.output_text
    input.push(...response.output, ...answers)
  }
}

const gateway = await openGateway()
try {
  const ask = process.argv.includes('--responses') ? responses : chat
  console.log(await ask(gateway.agentTools(), await gateway.systemMessage()))
} finally {
  await gateway.close()
}
