/** Options of `Gateway.boot`. */
export interface BootOptions {
  /** Describes the tools, with the URLs of their documentation. At most 200,000 characters. */
  prompt: string
  /**
   * Asks the agent's own model, and resolves with its text. Needed unless `locked` is true. An error that it throws ends the boot with `ERR_BOOT_MODEL`, or with
   * `ERR_BOOT_REFUSED` if the error has `refused: true`. `signal` is aborted when the boot ends.
   */
  generate?: (request: { system: string; user: string; maxTokens: number; signal: AbortSignal }) => string | Promise<string>
  /** The name of the server. Default: `boot-` and the beginning of the prompt's digest, so that each prompt has its own server. */
  name?: string
  /** The folder of made tools, created with mode 0700. Default: `.mcpboot-cache` in the working directory. */
  cacheDir?: string
  /** False: no tools are taken from a cache or kept in one. Default: true. */
  cache?: boolean
  /** True: takes the newest tools of the prompt from the cache, without network and without a model. Default: false. */
  locked?: boolean
  /** True: ends with the plan, writes no code and adds no server. Default: false. */
  dryRun?: boolean
  /**
   * API keys of the documented services, as `NAME@HOST`, or as `NAME` if the prompt's URLs have a single host. The value of the variable
   * NAME is sent only to that host, in headers and in the URL; with `:body` at the end, also in bodies. Model and code have a placeholder.
   * Default: none.
   */
  secrets?: string[]
  /** Hosts that may have private addresses and need no TLS, such as `127.0.0.1:8080`. They do not widen what the prompt allows. Default: none. */
  allowHosts?: string[]
  /** Called with each step. */
  onProgress?: (step: BootProgress) => void
  /** Ends the boot with `ERR_ABORTED`. */
  signal?: AbortSignal
}

/** Tools that were made from a prompt. */
export interface Booted {
  /** The name of the server. It can be used after its approval. */
  name: string
  /** The digest for the approval of the code, as in `approvalRequest(name)` before it is approved. Missing with `dryRun`. */
  digest?: string
  plan: BootPlan
  /** The hosts that the tools may reach. */
  hosts: string[]
  /** The secrets that the tools may use, and the only host that gets the value of each. */
  secrets: { name: string; host: string; inBody?: boolean }[]
  origin: BootOrigin
  /** The moment at which the model made the tools, in milliseconds since 1970. */
  createdAt: number
  /** Warnings: problems that did not stop the making of the tools, but that a person should know. */
  warnings: string[]
}

/**
 * The source of the tools: a model has made them now; they are from the cache and the pages have not changed; or they are from the cache
 * and the pages were not read (`locked`).
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
  /** Instructions for the code of the tool. */
  implementationNotes: string
  /** True if the code gets `fetch`. */
  needsNetwork: boolean
  /** True if the tool changes nothing. Its requests can only be GET and HEAD then. */
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

/** A step of `Gateway.boot`, with counts and times. Times are in milliseconds. URLs are without query. */
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
