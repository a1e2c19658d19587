// The tools of a gateway with Anthropic's own package.
//
//   npm install @anthropic-ai/sdk
//   ANTHROPIC_API_KEY=… node examples/agents/anthropic.mjs
import Anthropic from '@anthropic-ai/sdk'
import { answerAnthropic, forAnthropic } from 'hyperlight-mcp/adapters'
import { openGateway, question } from './gateway.mjs'

const client = new Anthropic()
const model = process.env.MODEL ?? 'claude-sonnet-4-5'

const gateway = await openGateway()
try {
  const tools = gateway.agentTools()
  const messages = [{ role: 'user', content: question }]
  const system = await gateway.systemMessage()
  for (;;) {
    const message = await client.messages.create({ model, max_tokens: 4000, system, messages, tools: forAnthropic(tools) })
    const answers = await answerAnthropic(tools, message)
    if (answers.length === 0) {
      for (const block of message.content) if (block.type === 'text') console.log(block.text)
      break
    }
    messages.push({ role: 'assistant', content: message.content }, ...answers)
  }
} finally {
  await gateway.close()
}
