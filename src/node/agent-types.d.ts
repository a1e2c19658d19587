/** Options of `Gateway.agentTools`. */
export interface AgentToolsOptions {
  /** The sandbox in which code runs. Default: a new sandbox, which is made when it is first needed. */
  sandbox?: Sandbox
  /**
   * The maximum size of one answer in tokens. The number of tokens is estimated. The estimate is usually higher than the real number.
   * Default 8,000, at least 100.
   */
  maxResultTokens?: number
  /** The names of the tools to return. Default: all. */
  include?: AgentToolName[]
  /**
   * Adds a description of the tools that the servers offer now to the description of `run_javascript`. The number is the maximum size of
   * the added description in tokens. Default: no description is added.
   */
  describeServers?: number
  /** The maximum number of runs that execute or wait in the queue. Any run above this number gets `ERR_BUSY`. Default 8, at most 1,000. */
  maxPendingRuns?: number
  /**
   * Adds the tools `add_mcp_server`, `update_mcp_server` and `remove_mcp_server`. With these tools, the model adds, changes and removes
   * servers of its own agent. The tools approve nothing. Default false.
   */
  manage?: boolean
  /**
   * The form in which the model's code gets errors of calls, and in which the model reads about these errors. It also applies to a given
   * `sandbox`, and overrides the setting of that sandbox. Default `throw`.
   */
  toolErrors?: ToolErrors
}

/** The names of the tools for a model. */
export type AgentToolName =
  | 'run_javascript'
  | 'search_mcp_tools'
  | 'describe_mcp_tools'
  | 'list_mcp_servers'
  | 'mcp_server_info'
  | 'manage_mcp'
  | 'add_mcp_server'
  | 'update_mcp_server'
  | 'remove_mcp_server'

/** A tool for a model. */
export interface AgentTool {
  name: AgentToolName
  /** The description for the model, with one example. */
  description: string
  /** A JSON Schema that is valid in OpenAI's strict mode: every property is required, and optional properties accept `null`. */
  inputSchema: { type: 'object'; properties: Record<string, object>; required: string[]; additionalProperties: false }
  /**
   * Executes the tool. `args` is an object, or the JSON text of an object, as the model wrote it. If the tool fails, the promise resolves
   * with `{ error }`. It rejects only after an abort or for an invalid option. The callbacks in `options` are used only for this call: if
   * one set of tools serves several conversations, a question of one conversation never reaches the person of another.
   */
  execute(args?: unknown, options?: AgentCallOptions): Promise<AgentToolResult>
}

/** Options of one call: of a model's tool, or of a function of `createHostFunctions()`. */
export interface AgentCallOptions extends CallerCallbacks {
  /** A signal that ends the call. The call rejects with `name: 'AbortError'`, `code: 'ERR_ABORTED'`, `cause: signal.reason`. */
  signal?: AbortSignal
}

/** An image or a sound. `data` is base64. */
export interface AgentToolContent {
  type: 'image' | 'audio'
  mimeType: string
  data: string
}

/** The answer of a tool: plain JSON for the model, within `maxResultTokens`. */
export interface AgentToolResult {
  error?: AgentToolError
  /**
   * The images and sounds in the value of `run_javascript`. Missing if there are none. The property is not enumerable, so `JSON.stringify`
   * leaves it out. In the JSON, a short text replaces each image and sound.
   */
  readonly content?: AgentToolContent[]
  [key: string]: unknown
}

/** The error of a failed tool call. */
export interface AgentToolError {
  /** The stable error code; see docs/ERRORS.md. */
  code: ErrorCode
  message: string
  /** A hint for the model about what to do next. */
  hint?: string
  /** The line in the model's code, counted from 1. `column` is counted from 1 as well. */
  line?: number
  column?: number
  excerpt?: string
  [key: string]: unknown
}

/** An event: a model requests that a person approve a server (`manage_mcp`, action `propose`). The event itself approves nothing. */
export interface ApprovalProposedEvent {
  type: 'approval-proposed'
  /** Everything that the person must see. `approve(request.server, request.digest)` approves exactly this request. */
  request: ApprovalRequest
}

/** Options of `Gateway.plugin`: the options of its tools, and `approved`. */
export interface PluginOptions extends AgentToolsOptions {
  /** The digest of a manifest that was approved earlier. If the manifest still has this digest, `enable()` needs no further approval. */
  approved?: string
}

/** A plugin with the features of a gateway. An agent's author can approve, enable and disable it. It is disabled at first. */
export interface Plugin {
  readonly name: string
  readonly version: string
  readonly description: string
  /** True while the plugin is enabled. */
  readonly enabled: boolean
  /** True if the present manifest is approved. Throws `ERR_APPROVAL_STORE`, `ERR_CLOSED`. */
  readonly approved: boolean
  /** Returns everything that the plugin provides, for review. Throws `ERR_APPROVAL_STORE`, `ERR_CLOSED`. */
  manifest(): PluginManifest
  /** Approves the manifest with this digest. Throws `ERR_PLUGIN_NOT_APPROVED` if the manifest has changed since. */
  approve(digest: string): void
  /**
   * Enables the plugin, and the servers that were enabled before and whose approval is still valid. Resolves with the names of these
   * servers. Rejects with `ERR_PLUGIN_NOT_APPROVED`. If both `enable` and `disable` are called, the last call takes effect.
   */
  enable(): Promise<string[]>
  /** Disables the plugin. Runs and calls end with `ERR_PLUGIN_OFF`. Resolves when no server has a connection or a process any more. */
  disable(): Promise<void>
  /**
   * Returns the tools for a model. Returns none while the plugin is disabled. At that time, tools that were returned earlier answer
   * `ERR_PLUGIN_OFF`.
   */
  tools(): AgentTool[]
  /** Returns the commands that a person can type. Returns none while the plugin is disabled. */
  commands(): PluginCommand[]
  /** Returns the modules that code can import. Returns none while the plugin is disabled. */
  modules(): ModuleSummary[]
}

/** Everything that a plugin provides. */
export interface PluginManifest {
  name: string
  version: string
  description: string
  tools: { name: AgentToolName; description: string; may: string }[]
  commands: { name: string; description: string; may: string }[]
  /** The modules of all approved servers, whether they are enabled or not. */
  modules: { specifier: string; server: string; functions: string[]; may: string; digest: string }[]
  limits: Limits
  /** The SHA-256 of the manifest. It changes if any part of the manifest changes. */
  digest: string
}

/** A command that a person can type. It can approve servers, so it must never get text that a model wrote. */
export interface PluginCommand {
  /** The name, like `/mcp`. */
  name: string
  description: string
  /** Executes a typed line. If the line has an error, the promise still resolves, and `ok` is false in the result. */
  execute(line: string, options?: CommandOptions): Promise<CommandOutcome>
}

/** A server for an agent with its own sandbox, in the form of a HyperAgent plugin. */
export interface PluginRegistration {
  /** The name `mcp-<server>`. */
  name: string
  declaredModules: string[]
  config: Record<string, never>
  /**
   * Returns the functions of the server's approved tools, by module and identifier. Each function resolves with the value that a guest
   * would get. If a call fails, the function resolves with `{ error, code }`, or rejects if `toolErrors` is `'throw'`. The callbacks in
   * `config` are used for all calls of these functions. The second argument of a function contains a signal and callbacks for that call
   * only. It must never come from a guest. Throws `ERR_NOT_APPROVED`.
   */
  createHostFunctions(config?: HostFunctionsOptions): Record<string, Record<string, HostFunction>>
}

/** Options of `createHostFunctions`. */
export interface HostFunctionsOptions extends CallerCallbacks {
  /** The form in which failed calls are returned. Default `return`. */
  toolErrors?: ToolErrors
}

/** A function that calls a tool, for an agent with its own sandbox. */
export type HostFunction = (args?: Record<string, any>, options?: AgentCallOptions) => Promise<any>
