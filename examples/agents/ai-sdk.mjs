// The tools of a gateway with the Vercel AI SDK: it calls them by itself.
//
//   npm install ai
//   AI_GATEWAY_API_KEY=… node examples/agents/ai-sdk.mjs
import { createGateway, generateText, stepCountIs } from 'ai'
import { forAiSdk } from 'hyperlight-mcp/adapters'
import { openGateway, question } from './gateway.mjs'

// Any other model of the AI SDK will do: `import { openai } from '@ai-sdk/openai'`, `openai('gpt-5-mini')`.
const model = createGateway({ baseURL: process.env.AI_GATEWAY_BASE_URL })(process.env.MODEL ?? 'openai/gpt-5-mini')

const gateway = await openGateway()
try {
  const { text } = await generateText({
    model,
    tools: forAiSdk(gateway.agentTools()),
    stopWhen: stepCountIs(10),
    system: await gateway.systemMessage(),
    prompt: question,
  })
  console.log(text)
} finally {
  await gateway.close()
}
