// The tools of `gateway.agentTools()` in the forms of others, as plain data: none of their packages is needed for it.
import type { AgentTool } from './index.js'

/** Options for answering the calls of a model. */
export interface AnswerOptions {
  /** A signal that ends the work. The promise then rejects with `ERR_ABORTED`. */
  signal?: AbortSignal
  /**
   * Called for a tool that is not among the given tools. Returns the answer as plain JSON, or `undefined` for none. `args` are as the
   * provider gave them (OpenAI: JSON text). Without this function, such a call is answered with `ERR_UNKNOWN_TOOL`.
   */
  others?: (name: string, args: unknown, options: { signal?: AbortSignal }) => unknown
}

/** A tool as the AI SDK takes it (`ai` 5 and newer). */
export interface AiSdkTool {
  description: string
  inputSchema: any
  execute(args: any, options: { abortSignal?: AbortSignal; [key: string]: any }): Promise<any>
  /** Images and sounds of a result go to the model as `media` says. */
  toModelOutput(given: any): any
}

/** The images and sounds that an adapter passes on. */
export interface AiSdkOptions {
  /**
   * The kinds that the model's provider takes in the result of a tool, for example `['image']` for Anthropic and for OpenAI's Responses.
   * Default: none; a sentence then tells the model. Name only kinds that the provider takes: OpenAI's chat models write others into the
   * text.
   */
  media?: readonly ('image' | 'audio')[]
}

/** Returns tools for the AI SDK's `generateText` and `streamText`: `generateText({ model, tools: forAiSdk(tools), … })`. */
export function forAiSdk(tools: AgentTool[], options?: AiSdkOptions): Record<string, AiSdkTool>

/** A tool of OpenAI's Chat Completions. */
export interface OpenAiChatTool {
  type: 'function'
  function: { name: string; description: string; parameters: Record<string, unknown>; strict: boolean }
}

/** A tool of OpenAI's Responses. */
export interface OpenAiResponsesTool {
  type: 'function'
  name: string
  description: string
  parameters: Record<string, unknown>
  strict: boolean
}

/** Returns tools for OpenAI's Chat Completions. With `strict` (default true), the model follows the schema. */
export function forOpenAi(tools: AgentTool[], options?: { api?: 'chat'; strict?: boolean }): OpenAiChatTool[]
/** Returns tools for OpenAI's Responses. */
export function forOpenAi(tools: AgentTool[], options: { api: 'responses'; strict?: boolean }): OpenAiResponsesTool[]

/** A part of a call's output in Responses, if the output has images. */
export type OpenAiOutputPart = { type: 'input_text'; text: string } | { type: 'input_image'; image_url: string; detail: 'auto' }

/** A part of the user's message that follows the answers in Chat Completions, if they have images or sounds. */
export type OpenAiChatPart =
  | { type: 'text'; text: string }
  | { type: 'image_url'; image_url: { url: string } }
  | { type: 'input_audio'; input_audio: { data: string; format: 'wav' | 'mp3' } }

/** A part of a result in Messages, if it has images. */
export type AnthropicPart =
  | { type: 'text'; text: string }
  | { type: 'image'; source: { type: 'base64'; media_type: 'image/png' | 'image/jpeg' | 'image/gif' | 'image/webp'; data: string } }

/**
 * Executes the calls in `response.output`; returns the items to send next, or none if nothing is called. Rejects with `ERR_INVALID_OPTION`
 * if the argument is neither such a list nor a message.
 */
export function answerOpenAi(
  tools: AgentTool[],
  output: readonly { type: string }[],
  options?: AnswerOptions,
): Promise<{ type: 'function_call_output'; call_id: string; output: string | OpenAiOutputPart[] }[]>
/** Executes the calls of `completion.choices[0].message`; returns the messages to append after it, or none if nothing is called. */
export function answerOpenAi(
  tools: AgentTool[],
  message: { role: 'assistant'; tool_calls?: readonly { id: string; type: string }[] },
  options?: AnswerOptions,
): Promise<({ role: 'tool'; tool_call_id: string; content: string } | { role: 'user'; content: OpenAiChatPart[] })[]>

/** Returns tools for Anthropic's Messages. */
export function forAnthropic(
  tools: AgentTool[],
): { name: string; description: string; input_schema: { type: 'object'; properties: Record<string, object>; required: string[] } }[]

/**
 * Executes the calls of a message; returns the messages to append after it: one with all results, or none if nothing is called. Rejects
 * with `ERR_INVALID_OPTION` if the argument is not a message.
 */
export function answerAnthropic(
  tools: AgentTool[],
  message: { content: readonly { type: string }[] },
  options?: AnswerOptions,
): Promise<{ role: 'user'; content: { type: 'tool_result'; tool_use_id: string; content: string | AnthropicPart[]; is_error?: boolean }[] }[]>

/** The way in which images and sounds of tools reach a chat model of LangChain. */
export interface LangChainOptions<T> {
  /** The function of `@langchain/core/tools`. */
  tool: (func: any, fields: any) => T
  /**
   * `none` (default): images and sounds do not reach the model, and a sentence tells it so. `chat`: for Chat Completions of OpenAI and
   * others, in a message of the user that `withMedia` adds. `responses`: images in the output of the call, for OpenAI's Responses.
   * `blocks`: images as `image_url` in the tool's message, for packages that take them there, such as `@langchain/anthropic`. In each case,
   * images and sounds are in `artifact.media` of the tool's message.
   */
  media?: 'none' | 'chat' | 'responses' | 'blocks'
}

/** Returns tools for LangChain. `tool` is the function of `@langchain/core/tools`. */
export function forLangChain<T>(tools: AgentTool[], options: LangChainOptions<T>): T[]

/**
 * Returns the messages for a chat model of LangChain, with the images and sounds of tools that `forLangChain` made with `media: 'chat'`.
 * They are in messages of the user, after those of the tools: `model.invoke(withMedia(messages))`.
 */
export function withMedia<M>(messages: readonly M[]): (M | { role: 'user'; content: OpenAiChatPart[] })[]
