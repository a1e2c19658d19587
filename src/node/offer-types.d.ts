/** A resource, or a resource template, that may be read. */
export interface ResourceEntry {
  server: string
  /** The server's own URI of the resource, for `readResource` and `read`. */
  uri?: string
  /** The server's URI template, in place of `uri`. Resources whose URIs match the template may be read. */
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

/** One content of a resource: either `text`, or `blob`, which is base64 text. */
export interface ResourceContents {
  uri: string
  mimeType?: string
  text?: string
  blob?: string
}

/** A prompt that `getPrompt` can return with its arguments inserted. */
export interface PromptEntry {
  server: string
  /** The server's own name of the prompt, for `getPrompt` and `prompt`. */
  name: string
  title?: string
  description?: string
  arguments: PromptArgument[]
}

/** A prompt with its arguments inserted. */
export interface PromptResult {
  description?: string
  messages: { role: string; content: unknown }[]
  meta?: unknown
}

/** The subject of a completion: a prompt's argument, or a variable of a resource template. `uri` is the URI template. */
export type CompletionReference = { type: 'ref/prompt'; name: string } | { type: 'ref/resource'; uri: string }

/** Possible values of an argument, at most 100. */
export interface Completion {
  values: string[]
  total?: number
  hasMore?: boolean
  meta?: unknown
}
