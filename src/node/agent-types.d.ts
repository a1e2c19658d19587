/** Options of `Gateway.agentTools`. */
export interface AgentToolsOptions {
  /** Where code runs. Default: a sandbox of its own, made when it is first needed. */
  sandbox?: Sandbox
  /** The most that one answer may take, in tokens (an estimate on the safe side). Default 8,000, at least 100. */
  maxResultTokens?: number
  /** Names of the tools that there are. Default: all. */
  include?: AgentToolName[]
  /** Puts what the servers offer now into the description of `run_javascript`, within so many tokens. Default: not. */
  describeServers?: number
  /** Runs under way or waiting for their turn; beyond it the answer is `ERR_BUSY`. Default 8, at most 1,000. */
  maxPendingRuns?: number
}

/** The tools that a model can be given. */
export type AgentToolName =
  | 'run_javascript'
  | 'search_mcp_tools'
  | 'describe_mcp_tools'
  | 'list_mcp_servers'
  | 'mcp_server_info'
  | 'manage_mcp'

/** A tool as a model is given it. */
export interface AgentTool {
  name: AgentToolName
  /** For the model, with one example. */
  description: string
  /** JSON Schema: every property is required, and `null` where it may be left out; it is valid in OpenAI's strict mode. */
  inputSchema: { type: 'object'; properties: Record<string, object>; required: string[]; additionalProperties: false }
  /**
   * Does what the model asks for. `args`: what the model passed, an object or its JSON text. Resolves for failures too, with
   * `{ error }`; rejects for an abort alone.
   */
  execute(args?: unknown, options?: { signal?: AbortSignal }): Promise<AgentToolResult>
}

/** Plain JSON for the model, within `maxResultTokens`. */
export interface AgentToolResult {
  error?: AgentToolError
  [key: string]: unknown
}

/** Why a model's call failed. */
export interface AgentToolError {
  /** Stable; see docs/ERRORS.md. */
  code: ErrorCode
  message: string
  /** Advice: the model's next step. */
  hint?: string
  /** The position in its code, counted from 1. */
  line?: number
  column?: number
  excerpt?: string
  [key: string]: unknown
}

/** A model wants a person to approve a server (`manage_mcp`, action `propose`). Nothing is approved by it. */
export interface ApprovalProposedEvent {
  type: 'approval-proposed'
  /** Everything that the person must see; `request.digest` is what `approve(request.server, request.digest)` says yes to. */
  request: ApprovalRequest
}

/** Options of `Gateway.plugin`: those of its tools, and one of its own. */
export interface PluginOptions extends AgentToolsOptions {
  /** The digest of the manifest that was approved before: where it still is the manifest's, `enable()` needs no other approval. */
  approved?: string
}

/** A gateway's gate. It is off at first. */
export interface Plugin {
  readonly name: string
  readonly version: string
  readonly description: string
  /** True while it is on. */
  readonly enabled: boolean
  /** True where its manifest, as it is now, is approved. Throws `ERR_APPROVAL_STORE`, `ERR_CLOSED`. */
  readonly approved: boolean
  /** All that it brings, to be looked at. Throws `ERR_APPROVAL_STORE`, `ERR_CLOSED`. */
  manifest(): PluginManifest
  /** Says yes to the manifest of this digest. Throws `ERR_PLUGIN_NOT_APPROVED` where it is another by now. */
  approve(digest: string): void
  /**
   * Switches on: what was enabled before is enabled where its approval still holds. Resolves with the names of those servers; rejects
   * with `ERR_PLUGIN_NOT_APPROVED`. Of `enable` and `disable`, the one that was called last counts.
   */
  enable(): Promise<string[]>
  /** Switches off: runs and calls end with `ERR_PLUGIN_OFF`. Resolves when no server has a connection or a process any more. */
  disable(): Promise<void>
  /** The tools for a model; none while it is off. Tools that were handed out before answer `ERR_PLUGIN_OFF` then. */
  tools(): AgentTool[]
  /** Commands that a person can type; none while it is off. */
  commands(): PluginCommand[]
  /** Modules that code can import; none while it is off. */
  modules(): ModuleSummary[]
}

/** Everything that a plugin brings. */
export interface PluginManifest {
  name: string
  version: string
  description: string
  tools: { name: AgentToolName; description: string; may: string }[]
  commands: { name: string; description: string; may: string }[]
  /** The modules of every approved server, enabled or not. */
  modules: { specifier: string; server: string; functions: string[]; may: string; digest: string }[]
  limits: Limits
  /** SHA-256: another one when any of this is another. */
  digest: string
}

/** A command that a person can type. It may approve: never hand it what a model wrote. */
export interface PluginCommand {
  /** `/mcp` */
  name: string
  description: string
  /** Never rejects for what was typed. */
  execute(line: string, options?: CommandOptions): Promise<CommandOutcome>
}

/** A server for an agent with a sandbox of its own, in the shape in which HyperAgent takes a plugin. */
export interface PluginRegistration {
  /** `mcp-<server>` */
  name: string
  declaredModules: string[]
  config: Record<string, never>
  /**
   * The functions of the server as it is approved now, by module and identifier. They resolve with what a guest would get, failures
   * included: `{ error, code }`, or with `toolErrors: 'throw'` a rejection with a `code`: `ERR_TOOL_FAILED` where the tool itself reports a
   * failure. Throws `ERR_NOT_APPROVED`.
   */
  createHostFunctions(config?: { toolErrors?: ToolErrors }): Record<string, Record<string, (args?: Record<string, any>) => Promise<any>>>
}
