/** A resource, or a template of resources, that may be read. */
export interface ResourceEntry {
  server: string
  /** The server's own, for `readResource` and `read`. */
  uri?: string
  /** In the place of `uri`: what follows it may be read. */
  uriTemplate?: string
  name: string
  title?: string
  description?: string
  mimeType?: string
}

/** The result of `readResource`. */
export interface ReadResult {
  contents: ResourceContents[]
  meta?: unknown
}

/** A content of a resource: `text`, or `blob` in base64. */
export interface ResourceContents {
  uri: string
  mimeType?: string
  text?: string
  blob?: string
}

/** A prompt that may be filled in. */
export interface PromptEntry {
  server: string
  /** The server's own, for `getPrompt` and `prompt`. */
  name: string
  title?: string
  description?: string
  arguments: PromptArgument[]
}

/** A prompt that was filled in. */
export interface PromptResult {
  description?: string
  messages: { role: string; content: unknown }[]
  meta?: unknown
}

/** The thing that is completed: an argument of a prompt, or a variable of a template (`uri` is the template's text). */
export type CompletionReference = { type: 'ref/prompt'; name: string } | { type: 'ref/resource'; uri: string }

/** Values that an argument could have, at most 100. */
export interface Completion {
  values: string[]
  total?: number
  hasMore?: boolean
  meta?: unknown
}
