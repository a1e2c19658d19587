// Compiled, never run: the results of the adapters are valid input for the providers' own packages.
import Anthropic from '@anthropic-ai/sdk'
import type { BaseMessage } from '@langchain/core/messages'
import { tool } from '@langchain/core/tools'
import { ChatOpenAI } from '@langchain/openai'
import { generateText, type LanguageModel } from 'ai'
import type { AgentTool } from 'hyperlight-mcp'
import { answerAnthropic, answerOpenAi, forAiSdk, forAnthropic, forLangChain, forOpenAi, withMedia } from 'hyperlight-mcp/adapters'
import OpenAI from 'openai'

export async function aiSdk(tools: AgentTool[], model: LanguageModel): Promise<string> {
  const { text } = await generateText({ model, tools: forAiSdk(tools, { media: ['image'] }), prompt: '' })
  return text
}

export async function openAi(tools: AgentTool[], client: OpenAI): Promise<void> {
  const messages: OpenAI.ChatCompletionMessageParam[] = []
  const completion = await client.chat.completions.create({ model: '', messages, tools: forOpenAi(tools) })
  messages.push(completion.choices[0].message, ...(await answerOpenAi(tools, completion.choices[0].message)))
  const input: OpenAI.Responses.ResponseInput = []
  const response = await client.responses.create({ model: '', input, tools: forOpenAi(tools, { api: 'responses' }) })
  // OpenAI's own types do not take its output as input; its API does.
  const output = response.output as OpenAI.Responses.ResponseInputItem[]
  input.push(...output, ...(await answerOpenAi(tools, response.output)))
}

export async function anthropic(tools: AgentTool[], client: Anthropic): Promise<void> {
  const messages: Anthropic.MessageParam[] = []
  const message = await client.messages.create({ model: '', max_tokens: 1, messages, tools: forAnthropic(tools) })
  messages.push({ role: 'assistant', content: message.content }, ...(await answerAnthropic(tools, message)))
}

export async function langChainWithMedia(tools: AgentTool[], messages: BaseMessage[]): Promise<unknown> {
  const model = new ChatOpenAI({ model: '' }).bindTools(forLangChain(tools, { tool, media: 'chat' }))
  return model.invoke(withMedia(messages))
}

export function langChain(tools: AgentTool[]): unknown {
  return new ChatOpenAI({ model: '' }).bindTools(forLangChain(tools, { tool }))
}
