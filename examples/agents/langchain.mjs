// The tools of a gateway with LangChain. `createAgent` of `langchain` takes the same tools; here the loop is written out.
//
//   npm install @langchain/core @langchain/openai
//   OPENAI_API_KEY=… node examples/agents/langchain.mjs
import { HumanMessage, SystemMessage } from '@langchain/core/messages'
import { tool } from '@langchain/core/tools'
import { ChatOpenAI } from '@langchain/openai'
import { forLangChain } from 'hyperlight-mcp/adapters'
import { openGateway, question } from './gateway.mjs'

const gateway = await openGateway()
try {
  const tools = forLangChain(gateway.agentTools(), { tool })
  const model = new ChatOpenAI({ model: process.env.MODEL ?? 'gpt-5-mini' }).bindTools(tools)
  const messages = [new SystemMessage(await gateway.systemMessage()), new HumanMessage(question)]
  for (;;) {
    const answer = await model.invoke(messages)
    messages.push(answer)
    if (answer.tool_calls.length === 0) {
      console.log(answer.text)
      break
    }
    for (const call of answer.tool_calls) messages.push(await tools.find(({ name }) => name === call.name).invoke(call))
  }
} finally {
  await gateway.close()
}
