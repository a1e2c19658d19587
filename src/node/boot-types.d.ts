/** Options of `Gateway.boot`. */
export interface BootOptions {
  /** The text that describes the tools, with the URLs of their documentation. At most 200,000 characters. */
  prompt: string
  /**
   * Asks the agent's own model, and resolves with the model's text. Required unless `locked` is true. If this function throws an error, the
   * boot ends with `ERR_BOOT_MODEL`, or with `ERR_BOOT_REFUSED` if the error has `refused: true`. `signal` is aborted when the boot ends.
   */
  generate?: (request: { system: string; user: string; maxTokens: number; signal: AbortSignal }) => string | Promise<string>
  /** The name of the server. Default: `boot-` and the beginning of the prompt's digest, so that each prompt has its own server. */
  name?: string
  /** The folder for the tools that were made. It is created with mode 0700. Default: `.mcpboot-cache` in the working directory. */
  cacheDir?: string
  /** If false, tools are neither read from a cache nor stored in one. Default: true. */
  cache?: boolean
  /** If true, the newest tools for the prompt are taken from the cache, without network and without a model. Default: false. */
  locked?: boolean
  /** If true, the boot ends after the plan: no code is written, and no server is added. Default: false. */
  dryRun?: boolean
  /**
   * API keys of the documented services, as `NAME@HOST`, or as `NAME` if the prompt's URLs have a single host. The value of the variable
   * NAME is sent only to that host, in headers and in the URL. If `:body` is appended, the value is also sent in bodies. The model and the
   * code get only a placeholder. Default: none.
   */
  secrets?: string[]
  /**
   * Hosts that may have private addresses and need no TLS, such as `127.0.0.1:8080`. They do not extend the hosts that the prompt allows.
   * Default: none.
   */
  allowHosts?: string[]
  /** A function that is called at each step. */
  onProgress?: (step: BootProgress) => void
  /** A signal that ends the boot with `ERR_ABORTED`. */
  signal?: AbortSignal
}

/** Tools that were made from a prompt. */
export interface Booted {
  /** The name of the server. The server can be used after its approval. */
  name: string
  /** The digest for the approval of the code. It is the digest in `approvalRequest(name)` before the approval. Missing with `dryRun`. */
  digest?: string
  plan: BootPlan
  /** The hosts that the tools can reach. */
  hosts: string[]
  /** The secrets that the tools may use. The value of each is sent only to its `host`. */
  secrets: { name: string; host: string; inBody?: boolean }[]
  origin: BootOrigin
  /** The time at which the model made the tools, in milliseconds since 1970. */
  createdAt: number
  /** Warnings about problems that did not prevent the tools from being made, but that a person should know about. */
  warnings: string[]
}

/**
 * The source of the tools. `model`: a model has just made the tools. `cache`: the tools are from the cache, and the documentation pages
 * have not changed. `locked`: the tools are from the cache, and the pages were not read.
 */
export type BootOrigin = 'model' | 'cache' | 'locked'

/** The tools that a model has planned. */
export interface BootPlan {
  tools: BootTool[]
}

/** A planned tool. */
export interface BootTool {
  name: string
  description: string
  /** The JSON Schema of the arguments. */
  inputSchema: unknown
  endpoints: BootEndpoint[]
  /** Notes of the plan for the code of the tool. */
  implementationNotes: string
  /** True if the code gets `fetch`. */
  needsNetwork: boolean
  /** True if the tool changes nothing. Its requests can then only be GET and HEAD. */
  readOnlyHint: boolean
}

/** An endpoint that a tool uses. */
export interface BootEndpoint {
  method: string
  /** The absolute URL, with parameters in braces. */
  url: string
}

/** The kind of a page of documentation. */
export type BootPageKind = 'json' | 'yaml' | 'markdown' | 'html' | 'text'

/** A step of `Gateway.boot`, with counts and times. Times are in milliseconds. URLs are given without their query. */
export type BootProgress =
  | { type: 'reading'; pages: number }
  | { type: 'page-read'; url: string; kind: BootPageKind; chars: number; ms: number }
  | { type: 'page-unchanged'; url: string; ms: number }
  | { type: 'warning'; text: string }
  | { type: 'page-cut'; url: string; chars: number; keptChars: number }
  | { type: 'hosts'; hosts: string[]; leftOut: number }
  | { type: 'from-cache'; tools: number; createdAtMs: number }
  | { type: 'planning'; attempt: number; requestBytes: number }
  | { type: 'answered'; tool?: string; attempt: number; answerBytes: number; ms: number }
  | { type: 'planned'; tools: number; answerBytes: number; ms: number }
  | { type: 'plan-refused'; problems: string[] }
  | { type: 'compiling'; tools: number }
  | { type: 'writing'; tool: string; attempt: number; requestBytes: number }
  | { type: 'code-refused'; tool: string; problems: string[] }
  | { type: 'written'; tool: string; done: number; tools: number; lines: number; ms: number }
  | { type: 'stored' }
