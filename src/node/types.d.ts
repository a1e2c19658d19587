/** A value that a guest and Node exchange: JSON, with bytes kept as `Uint8Array`. At most 10,000 of these cross together, and 126 levels leave a guest. */
export type Value = null | boolean | number | string | Uint8Array | Value[] | { [key: string]: Value }

/** The form of a tool's own error in the guest: a value `{ error }`, or an exception. */
export type ToolErrors = 'return' | 'throw'

/** The fate of a result that breaks its tool's own `outputSchema`: it is returned with a warning, or refused (`ERR_OUTPUT_SCHEMA`). */
export type SchemaViolations = 'warn' | 'error'
/** The fate of a call whose arguments break the tool's `inputSchema`: it is not sent (`ERR_INVALID_ARGUMENTS`), sent with a warning, or sent. */
export type ArgumentChecks = 'error' | 'warn' | 'off'

/** Limits of one gateway. Sizes in bytes, times in milliseconds. Beyond one, an error names it and the size. */
export interface Limits {
  /** Servers in the config. Default 20. */
  maxServers: number
  /** Connections open at once. Default 5. */
  maxConnections: number
  /** From the start of a server's process to its complete list of tools. Default 10,000; 120,000 for `npx`, `uvx`, `docker`. */
  connectTimeoutMs: number
  /** One tool call; less where less is left of the run. Default 30,000. */
  callTimeoutMs: number
  /** One tool call whose server reports progress: each report gives it `callTimeoutMs` anew, up to this. Default 300,000. */
  maxCallTimeoutMs: number
  /** One run, from its own start. Default 60,000. */
  runTimeoutMs: number
  /** Failed reconnects in a row, a server. Default 3. */
  maxReconnects: number
  /** Calls of one server that are under way at once, whoever makes them; others wait for their turn. Default 128. */
  maxParallelCalls: number
  /** Questions of one run to a person or a model: before calls, and of servers. Further calls are denied. Default 100. */
  maxQuestions: number
  /** A tool's result as the guest gets it. Default 1 MiB. */
  maxResponseBytes: number
  /** A call's arguments, as JSON. Default 1 MiB. */
  maxArgumentBytes: number
  /** A run's input. Default 4 MiB. */
  maxInputBytes: number
  /** A run's value. Default 4 MiB. */
  maxValueBytes: number
  /** A run's code. Default 1 MiB. */
  maxCodeBytes: number
  /** A run's log, all entries together; beyond it the log is cut and marked. Default 256 KiB. */
  maxLogBytes: number
  /** The values that a sandbox keeps for its later runs (`maxResultTokens`), all together; the oldest go first. Default 16 MiB. */
  maxSavedBytes: number
  /** The time for which it keeps them. Default 3,600,000. */
  maxSavedAgeMs: number
  /** The guest's heap. Default 64 MiB, at least 8 MiB. */
  guestHeapBytes: number
  /** A description that a model may read, in characters. Default 2,000. */
  maxDescriptionChars: number
}

/** A level of the guest's console. */
export type LogLevel = 'log' | 'info' | 'warn' | 'error' | 'debug'

/** A line that the guest wrote to its console. */
export interface LogEntry {
  level: LogLevel
  text: string
}

/** A question to a person before a call. */
export interface ApprovalQuestion {
  server: string
  /** The raw name. */
  tool: string
  args: Record<string, Value>
  /** Why this call asks. */
  reason: string
  /** Missing for a `callTool`. */
  runId?: number
}

/** A person's answer: this call, this tool in this run, this tool as long as the gateway is open, or no. */
export type Decision = 'once' | 'run' | 'session' | 'deny'

/** A server asks a person something while it is called. */
export type ElicitationQuestion = {
  server: string
  /** The raw name of the tool that is being called; missing outside a call. */
  tool?: string
  /** Missing for a `callTool`. */
  runId?: number
  /** The server's own words, sanitised. */
  message: string
} & (
  | {
      mode: 'form'
      /** A flat object of strings, numbers, booleans and choices (JSON Schema, as MCP 2025-11-25 restricts it). */
      requestedSchema: { type?: 'object'; properties?: Record<string, any>; required?: string[]; [key: string]: unknown }
    }
  | {
      mode: 'url'
      /** A page to open; what happens there stays between the person and the server. Always `https:` or `http:`. */
      url: string
      elicitationId?: string
    }
)

/**
 * A person's answer to a server. Fields that are left out get their defaults; content that does not fit the form is not sent: the server
 * is told `cancel`, and an event `elicitation-cancelled` says why.
 */
export type ElicitationAnswer =
  | { action: 'accept'; content?: Record<string, string | number | boolean | string[]> }
  | { action: 'decline' | 'cancel' }

/** A server asks a model something. */
export interface SamplingQuestion {
  server: string
  tool?: string
  runId?: number
  /** The parameters of `sampling/createMessage`, as the server sent them: `messages`, `systemPrompt`, `maxTokens`, … */
  params: { messages: unknown[]; maxTokens?: number; systemPrompt?: string; [key: string]: unknown }
}

/** A model's answer to a server. */
export interface SamplingAnswer {
  role: 'assistant' | 'user'
  content: unknown
  model: string
  stopReason?: string
}

/** An authorization server that a credential of the config would be used at. */
export interface IssuerQuestion {
  server: string
  /** Its address, as the MCP server names it and its own metadata has it. */
  issuer: string
  /** The client that the credential belongs to. */
  clientId: string
  /** A secret is sent; a private key signs, and stays. */
  credential: 'client-secret' | 'private-key'
}

/** Callbacks; the innermost that is given is asked: the run's, the sandbox's, the gateway's. */
export interface Callbacks {
  /**
   * Asked before a tool is called that is not approved as read-only, or any tool of a server with `confirm: "always"`. Without it,
   * such a call fails with `ERR_CALL_DENIED`. `deny` holds for the tool as long as the run goes on: nobody is asked about it again. The time that the answer takes is not counted against the call or the run. What
   * throws, or returns anything else, denies.
   */
  onApproval?(question: ApprovalQuestion): Decision | Promise<Decision>
  /**
   * A server that is being called asks the person of that very run or call, never another's. Without it, the server is told
   * `decline`. No clock runs meanwhile; an abort ends the question. What throws cancels it.
   */
  onElicit?(question: ElicitationQuestion): ElicitationAnswer | Promise<ElicitationAnswer>
  /** A server that is being called asks a model. Without it, the server gets an error. What throws refuses. */
  onSample?(question: SamplingQuestion): SamplingAnswer | Promise<SamplingAnswer>
  /** Asked for an `${input:id}` of the config when a server that uses it is started, once a gateway. */
  onInput?(id: string, description?: string): string | Promise<string>
  /**
   * Handed the address at which a person allows the access to a server. Where the browser runs on this machine, return nothing: a
   * listener on loopback hears of the end. Elsewhere, return the URL to which the browser was redirected at the end.
   */
  onAuthorize?(url: string, question: { server: string; issuer: string }): void | string | Promise<void | string>
  /**
   * Asked before a credential of the config (`oauth.clientSecret`, `oauth.privateKey`) is used at an authorization server that the MCP
   * server itself has named: `oauth.issuer` in the config names one instead. Only `true` allows it; it is kept for this server, URL,
   * issuer and client. Without the callback, such a connection fails with `ERR_AUTHORIZATION_REQUIRED`.
   */
  onIssuer?(question: IssuerQuestion): boolean | Promise<boolean>
  /**
   * Told what happens, and that before the outcome of what it is about. Of a server that tells very much, and while 8 MiB wait for this
   * thread, some is left out, which a `warning` counts. An exception in it becomes a process warning.
   */
  onEvent?(event: GatewayEvent): void
}

/** VMs that wait, so that a run need not. Each run has one of its own, thrown away after. */
export interface WarmVms {
  /** The most VMs that wait; 0 for none. Default 2. */
  vms: number
  /** The memory that they may take together, at 4 MiB each. Default 64 MiB. */
  maxBytes: number
  /** After so long without a run they are given up, until the next run. Default 60,000. */
  idleMs: number
}

/** Options of `Gateway.open`. Unknown keys and wrong types are errors that name them. */
export interface GatewayOptions extends Callbacks {
  /** Default `~/.hyperagent/config.json`; missing there: no servers. A missing explicit path is an error. */
  configPath?: string
  /** The same content, instead of a file. */
  config?: object
  /** Approvals and manifests. Default `~/.hyperagent/hyperlight-mcp`, created with mode 0700. */
  stateDir?: string
  /** The folder that `${workspaceFolder}` stands for, and in which servers start whose entry has a relative path. Default: the working directory. */
  workspaceFolder?: string
  /** Servers that are enabled at once, where their approval holds. Default: none. */
  enable?: string[] | 'approved'
  /** Default: see `Limits`. */
  limits?: Partial<Limits>
  /** Which guest runs. Default `auto`: the standard one, or the ring-3 one on a KVM that cannot run that. */
  guest?: 'auto' | 'standard' | 'ring3'
  /** VMs that wait, made ready, for the next run. */
  warm?: Partial<WarmVms>
  /**
   * Where the guest's snapshot is kept between processes: created with mode 0700, may be deleted at any time. `false`: nowhere.
   * Default `$XDG_CACHE_HOME/hyperlight-mcp/snapshots`, or `~/.cache/hyperlight-mcp/snapshots`.
   */
  snapshotDir?: string | boolean
  /** For servers whose config does not say. Default `warn`: a warning of the run, or, for `callTool`, an event `warning`. */
  schemaViolations?: SchemaViolations
  /**
   * For servers whose config does not say. Default `error`. With `warn`: a warning of the run, or, for `callTool`, an event `warning`.
   * Arguments reach the server as they were given in any case: defaults are not filled in.
   */
  argumentChecks?: ArgumentChecks
  /** The most that the value of a run may cost a model, in tokens, where sandbox and run do not say. Default: values come whole. See `RunOptions`. */
  maxResultTokens?: number
  /** Tells `onEvent` of each connection and call as well. Default false. */
  trace?: boolean
}

/** Options of `Gateway.approve`. */
export interface ApproveOptions {
  /** In milliseconds, rounded down to seconds: how long the approval holds. Default: until it is revoked. */
  validForMs?: number
}

/** The result of `Gateway.reload`: names of servers. */
export interface ReloadReport {
  added: string[]
  removed: string[]
  /** Their connections were ended. Where what would run has changed, they need approval again. */
  changed: string[]
  /** Listed with an error: `servers()` tells which. */
  invalid: string[]
  warnings: string[]
}

/** Options of `Gateway.sandbox`. */
export interface SandboxOptions extends Callbacks {
  /** Default `return`. */
  toolErrors?: ToolErrors
  /** The most that the value of a run may cost a model, in tokens, where the run does not say. Default: the gateway's. See `RunOptions`. */
  maxResultTokens?: number
}

/** Options of `Sandbox.run`. */
export interface RunOptions extends Callbacks {
  /** The value that `handler` is called with. Default `null`. */
  input?: unknown
  /** In milliseconds, from the run's own start. Default and most: `limits.runTimeoutMs`. */
  timeoutMs?: number
  /** Ends the run: it rejects with `name: 'AbortError'`, `code: 'ERR_ABORTED'`, `cause: signal.reason`. */
  signal?: AbortSignal
  /** Default: the sandbox's. */
  toolErrors?: ToolErrors
  /**
   * The most that the value may cost a model, in tokens, estimated; at least 100. A larger value is cut by its structure: it stays JSON of the same
   * type, marks in it and `omitted` say what was left out, and later runs of this sandbox read the whole by `saved(savedAs)` of `host:mcp`.
   * Default: the sandbox's, else the gateway's, else the value comes whole.
   */
  maxResultTokens?: number
}

/** Options of `Gateway.callTool`. */
export interface CallOptions extends Callbacks {
  /** In milliseconds; above the limit it is cut to it. Default `limits.callTimeoutMs`. */
  timeoutMs?: number
  /** Cancels the call, at the server too. */
  signal?: AbortSignal
}

/** Options of `Gateway.complete`. */
export interface CompleteOptions extends CallOptions {
  /** Values that were chosen before, by argument: they may narrow the offer. */
  context?: Record<string, string>
}

/** A run's result. A rejection carries `logs`, `warnings` and `stats` as well. */
export interface RunResult<T = Value> {
  /** The value that the handler returned; `null` for `undefined`. `T` is taken on trust: nothing looks whether it is one. */
  value: T
  logs: LogEntry[]
  /** Remarks on the run: text that was cut, for example. */
  warnings: string[]
  stats: RunStats
  /** The places at which `value` was cut to fit `maxResultTokens`, in its order, the first thousand places at most. Missing where nothing was. */
  omitted?: Omission[]
  /** The handle by which later runs of the same sandbox read the whole value. Missing where nothing was cut, or it was too large to be kept. */
  savedAs?: string
}

/** A place of a value at which something was left out. */
export interface Omission {
  /** A JSON Pointer to what was cut, in the whole value; `''` is the value itself. */
  path: string
  /**
   * `text`: the middle or the end of a string. `items`: the last items of an array. `keys`: fields of an object. `bytes`: a `Uint8Array`, for which
   * a string stands. `depth`: all items or fields of an array or object within the value.
   */
  kind: 'text' | 'items' | 'keys' | 'bytes' | 'depth'
  /** The amount that is still there, and the amount that there was: `length` of strings and bytes, numbers of items or keys. */
  kept: number
  of: number
}

/** Measurements of a run. Times in milliseconds, sizes in bytes. */
export interface RunStats {
  durationMs: number
  /** Making the VM and loading the modules. */
  startMs: number
  /** Calls that left the VM. */
  calls: number
  /** The time spent outside of it for them: calls that are outstanding together count it once. */
  callMs: number
  /** Bytes that crossed out of the VM, and into it, in calls. */
  bytesOut: number
  bytesIn: number
}

/** A result of `tools/call`, whatever the server answered. */
export interface ToolResult {
  content: unknown[]
  structuredContent?: unknown
  isError: boolean
  meta?: unknown
}

/** Can this machine run a guest, and if not, why. */
export interface HypervisorReport {
  available: boolean
  guest?: 'standard' | 'ring3'
  /** Booting it and taking its snapshot, or loading the one that was kept, in milliseconds. */
  bootMs?: number
  /** Where the snapshot is that runs start from: `booted` by this process, `kept` on disk by it since, or `found` there. */
  snapshot?: 'booted' | 'kept' | 'found'
  /** Which case it is where none boots, and what to do. */
  problem?: string
  remedy?: string
  /** A remark on the guest that runs. */
  warning?: string
}

/** A server of the config. */
export interface ServerStatus {
  name: string
  /** `invalid`: its entry in the config has an error, which `lastError` tells. */
  state: 'invalid' | 'disabled' | 'unapproved' | 'command-approved' | 'idle' | 'connecting' | 'connected' | 'error'
  /** Both stages, as it is configured now. */
  approved: boolean
  enabled: boolean
  /** `disable()`, or a person's line, has disabled it here: no model can enable it. */
  disabledByPerson?: true
  source: 'config'
  /** Raw names of the approved tools. */
  tools: string[]
  /** Those of them that the server has changed or taken away since they were approved: calls of them fail. */
  quarantined: string[]
  lastError?: { code: ErrorCode; message: string }
}

/** The result of `Gateway.test`. */
export interface ConnectionReport {
  server: string
  /** From the start of the process to its list of tools, in milliseconds. */
  connectMs: number
  /** The protocol version that was negotiated. */
  era: string
  serverName: string
  serverVersion: string
  tools: string[]
  /** Names in filters that the server does not have. */
  warnings: string[]
}

/** `await using gateway = await Gateway.open()`. */
export interface Gateway {
  [Symbol.asyncDispose](): Promise<void>
}

/** `await using sandbox = await gateway.sandbox()`. */
export interface Sandbox {
  [Symbol.asyncDispose](): Promise<void>
}
