/**
 * A value that a guest and Node exchange: JSON, with bytes as `Uint8Array`. One value may hold at most 10,000 `Uint8Array`s. A value that leaves a
 * guest may be nested at most 126 levels deep.
 */
export type Value = null | boolean | number | string | Uint8Array | Value[] | { [key: string]: Value }

/** The form in which a guest gets an error that a tool reports. `return` returns a value `{ error }`; `throw` throws an exception. */
export type ToolErrors = 'return' | 'throw'

/**
 * The handling of a result that does not match its tool's own `outputSchema`. `warn` returns the result with a warning. `error` refuses it with
 * `ERR_OUTPUT_SCHEMA`.
 */
export type SchemaViolations = 'warn' | 'error'
/** The ranking of tools in a search. `words`: by the words of the query. `hybrid`: by the words and by the meaning of the query. */
export type SearchRanking = 'words' | 'hybrid'
/**
 * The handling of a call whose arguments do not match the tool's `inputSchema`. `error` does not send the call (`ERR_INVALID_ARGUMENTS`), `warn`
 * sends it with a warning, and `off` does not check the arguments.
 */
export type ArgumentChecks = 'error' | 'warn' | 'off'

/**
 * Limits of one gateway. Sizes are in bytes, times in milliseconds. A value that exceeds a limit fails with an error that names the limit and the
 * size.
 */
export interface Limits {
  /** The maximum number of servers in the config. Default 20. */
  maxServers: number
  /**
   * The maximum number of open connections. A server that was called in a run keeps its connection while the run lasts. If a connection is
   * needed and only such connections could be closed, additional connections are opened until the runs end. There are at most as many
   * additional connections as this limit. Default 20.
   */
  maxConnections: number
  /**
   * The time limit for connecting to a server: from the look-up of its program and of the files of its box until all its lists (tools,
   * resources, prompts) are read. The time in which a person is asked, or in which no connection is free, does not count. Default 10,000;
   * 120,000 for `npx`, `uvx`, `docker`.
   */
  connectTimeoutMs: number
  /** The time limit of one tool call. If the run has less time left, the time left is the limit. Default 30,000. */
  callTimeoutMs: number
  /** The maximum time of a tool call whose server reports progress. Each progress report restarts `callTimeoutMs`, up to this limit. Default 300,000. */
  maxCallTimeoutMs: number
  /** The time limit of one run. It is counted from the start of the run. The time in the queue does not count. Default 60,000. */
  runTimeoutMs: number
  /** The maximum processor time of the code of one run. The time of its calls, timers and questions to a person does not count. Default 5,000. */
  computeTimeoutMs: number
  /** The maximum number of failed reconnects in a row, for each server. Default 3. */
  maxReconnects: number
  /** The maximum number of simultaneous calls to one server, from all callers together. Calls above this number wait. Default 128. */
  maxParallelCalls: number
  /**
   * The maximum number of questions to a person or a model in one run: approvals of calls, and questions of servers. Questions above this
   * number are denied. Default 100.
   */
  maxQuestions: number
  /** The maximum size of a tool's result, as the guest gets it, and of each answer that `serve` gives to a host. Default 1 MiB. */
  maxResponseBytes: number
  /** The maximum size of a call's arguments as JSON. Default 1 MiB. */
  maxArgumentBytes: number
  /** The maximum size of a run's input. Default 4 MiB. */
  maxInputBytes: number
  /** The maximum size of the value that a run returns. Default 4 MiB. */
  maxValueBytes: number
  /**
   * The maximum number of parts in the value that a run returns. Node converts the whole value in one turn of its event loop, and the
   * number of parts determines the time for this. A list, an object, and a text of at most 10 characters each count as 1. A text that has
   * occurred in the value before does not count again. A key counts as 3 if it is new after the preceding keys of its object. Rows with the
   * same keys count these keys once. Default 400,000.
   */
  maxValueParts: number
  /** The maximum size of a run's code. Default 1 MiB. */
  maxCodeBytes: number
  /** The maximum size of a run's log, with all its entries. A longer log is cut, and the last entry says that it was cut. Default 256 KiB. */
  maxLogBytes: number
  /**
   * The total size of the values that a sandbox stores for its later runs (see `RunOptions.maxResultTokens`). The oldest values are removed
   * first. Default 16 MiB.
   */
  maxSavedBytes: number
  /** The time for which a sandbox stores a value for its later runs. Default 3,600,000. */
  maxSavedAgeMs: number
  /** The size of the guest's heap. Default 64 MiB, at least 8 MiB. */
  guestHeapBytes: number
  /** The maximum length of a description that a model may read, in characters. Default 2,000. */
  maxDescriptionChars: number
  /** The maximum size of all rows of the audit. The oldest rows are removed first. Default 64 MiB. */
  maxAuditBytes: number
  /** The maximum age of rows of the audit. Older rows are removed. Default 7,776,000,000, which is 90 days. */
  maxAuditAgeMs: number
}

/** A level of the guest's console. */
export type LogLevel = 'log' | 'info' | 'warn' | 'error' | 'debug'

/** A line that the guest wrote to its console. */
export interface LogEntry {
  level: LogLevel
  text: string
}

/** Options of `Gateway.agent`. `onEvent` gets the events of the agent's runs, calls and subscriptions. Default: the gateway's `onEvent`. */
export interface AgentOptions extends CallerCallbacks {
  /**
   * Names of profiles of the config. The agent has only the servers of these profiles. If several profiles have the same server, the
   * filters of all these profiles apply to it. The shortest time limit and the strictest `confirm` apply, too. Default: the profiles in the
   * agent's entry of the config. If the config has profiles, an agent without profiles has no server. A name that the config does not have
   * fails with `ERR_INVALID_OPTION`. Two profiles that set the same variable or header of a server to different values fail with
   * `ERR_PROFILE_CONFLICT`.
   */
  profiles?: string[]
}

/**
 * The settings for VMs that are started in advance, so that a run does not have to wait for the start of a VM. Each run has its own VM,
 * which is destroyed after the run.
 */
export interface WarmVms {
  /** The maximum number of VMs that a pool keeps ready. If it is 0, none are kept ready. Default 2. */
  vms: number
  /** The maximum memory of the VMs that a pool keeps ready. Each VM is counted as 4 MiB. Default 64 MiB. */
  maxBytes: number
  /** The time without a run after which the VMs of a pool are released. New VMs are started at the next run. Default 60,000. */
  idleMs: number
}

/** Options of `Gateway.open`. An unknown key or a wrong type causes an error that names the key. */
export interface GatewayOptions extends Callbacks {
  /**
   * The path of the config file. Default `~/.hyperagent/config.json`; if that file does not exist, there are no servers. If a path is
   * given, the file must exist.
   */
  configPath?: string
  /** The content of the config, instead of a file. */
  config?: object
  /**
   * If true, the config file is read again when it changes, in the same way as `reload()` does. An event `config-reloaded` reports the
   * result. If the new config cannot be used, nothing changes, and a `warning` reports this. A server that is new in the config still needs
   * approval. This option has no effect with `config`. Default false.
   */
  watch?: boolean
  /** The folder for approvals and manifests. Default `~/.hyperagent/hyperlight-mcp`, created with mode 0700. */
  stateDir?: string
  /** The value of `${workspaceFolder}`. Servers whose entry has a relative path start in this folder. Default: the working directory. */
  workspaceFolder?: string
  /**
   * The servers to enable when the gateway opens, if their approval is still valid. The variants that profiles make of a server are enabled
   * with the server, if they are approved. Default: none.
   */
  enable?: string[] | 'approved'
  /** Limits of this gateway. Defaults: see `Limits`. */
  limits?: Partial<Limits>
  /**
   * The guest to run. `auto` selects the standard guest. If the machine's KVM cannot run it, `auto` selects the ring-3 guest.
   * Default `auto`.
   */
  guest?: 'auto' | 'standard' | 'ring3'
  /**
   * The settings for VMs that are started in advance for the next runs. They apply to each of two pools. The second pool is for runs that
   * may fetch, and is filled after the first such run. So a gateway keeps at most twice as many VMs ready.
   */
  warm?: Partial<WarmVms>
  /**
   * The folder in which the guest's snapshot is stored between processes. It is created with mode 0700 and may be deleted at any time. With
   * `false`, no snapshot is stored. Default `$XDG_CACHE_HOME/hyperlight-mcp/snapshots`, or `~/.cache/hyperlight-mcp/snapshots`.
   */
  snapshotDir?: string | boolean
  /**
   * The handling of results that do not match the tool's `outputSchema`, for servers whose config does not set it. `warn` adds a warning to
   * the run or, for `callTool`, emits a `warning` event. Default `warn`.
   */
  schemaViolations?: SchemaViolations
  /**
   * The handling of arguments that do not match the tool's `inputSchema`, for servers whose config does not set it. `warn` adds a warning
   * to the run or, for `callTool`, emits a `warning` event. Arguments are always sent as they were given: schema defaults are not filled
   * in. Default `error`.
   */
  argumentChecks?: ArgumentChecks
  /**
   * The maximum size of a run's value, in tokens of a model. It is used if neither the sandbox nor the run sets one. Default: values are
   * not cut. See `RunOptions`.
   */
  maxResultTokens?: number
  /**
   * If true, the gateway learns the shapes of results from the results that an agent sees, for tools that have no `outputSchema`. The
   * shapes are shown to this agent only: in `declarations`, `describe`, `toolInfo` and the hints. They are marked as seen, but not
   * guaranteed. Values are not stored. Default true, or `learnResults` of the config.
   */
  learnResults?: boolean
  /**
   * The ranking of tools by `searchTools` and by `search` of `host:mcp`: by the words of the query (`words`), or also by the meaning of the
   * query (`hybrid`). `hybrid` needs the package `hyperlight-mcp-search-model` beside this package. Without it, there is a warning, and
   * tools are ranked by words. Default `words`, or `search` of the config.
   */
  search?: SearchRanking
  /** The folder of the package `hyperlight-mcp-search-model`. Default: the package that is installed together with this one. */
  searchModel?: string
  /** If true, an event is sent for each connection and each call. Default false. */
  trace?: boolean
  /**
   * True if a person must approve each server that an agent adds or changes. With `false`, the command and the first manifest of an added
   * server are approved without a person. A person must still approve a changed server. A person must also approve an entry with
   * placeholders, with variables that load code or redirect traffic, or with an address that is not `https:` with a public name. Default:
   * true, unless the environment variable `MCP_REQUIRE_APPROVAL` is `false` or `0`.
   */
  requireApproval?: boolean
  /**
   * If true, the arguments of each call are stored in the audit, without secrets, if they have at most 64 KiB. Otherwise, only the digest
   * of the arguments, computed with the machine's key, is stored. Default false.
   */
  auditContent?: boolean
  /** Settings for `fetch` in agent code. Code has no `fetch` unless hosts are approved for the run or for its agent. */
  fetch?: GatewayFetch
}

/**
 * A change of a server that an agent has added. If a field is missing, it does not change. `confirm`, `disabled`, `envFile`, `oauth` and
 * other keys of the config cannot be set.
 */
export interface ServerChange {
  /**
   * The display name: 1 to 64 visible characters. It is free text and may be wrong. The server's name does not change if the display name changes.
   */
  name?: string
  /** The program that starts the server. */
  command?: string
  args?: string[]
  /** Variables of the server's environment. They are merged with the existing ones; `null` removes a variable. The values are never returned. */
  env?: Record<string, string | null>
  /** The folder in which the command starts. */
  cwd?: string
  /** The URL of a server that uses Streamable HTTP, instead of a command. */
  url?: string
  /** Headers for the URL. They are merged with the existing ones; `null` removes a header. The values are never returned. */
  headers?: Record<string, string | null>
  /** The tools that the server may offer. All other tools are hidden. */
  allowTools?: string[]
  /** The tools that are hidden. */
  denyTools?: string[]
  /** The time limit of a call, in milliseconds. */
  timeoutMs?: number
}

/** A server to add. It has a display name, and either a command or a URL. */
export type NewServer = ServerChange & { name: string }

/** Options of `Gateway.approve`. */
export interface ApproveOptions {
  /**
   * The time for which the approval is valid, in milliseconds, rounded down to seconds. Of the command and the tools, the earlier end counts
   * for both. Default: the approval is valid until it is revoked.
   */
  validForMs?: number
}

/** The result of `Gateway.reload`. All lists except `warnings` contain names of servers. */
export interface ReloadReport {
  added: string[]
  removed: string[]
  /** Servers whose entry changed. Their connections were closed. If the change affects what would be started, the server needs approval again. */
  changed: string[]
  /** Servers whose entry has an error. `servers()` reports the error. */
  invalid: string[]
  warnings: string[]
}

/**
 * A task that describes what runs have to do. Because of a task, additional servers are attached to its runs. Without a task, runs can use
 * the servers of the config, and the servers that the agent has added for itself. A server that may not be used is not attached, and the
 * run's `warnings` contain the reason. A model can never set a task.
 */
export interface Task {
  /**
   * The text of the task, at most 64 KiB. A server is attached if one of its keywords or capabilities occurs in the text as a whole word.
   * Upper and lower case are treated as equal. Default: no text.
   */
  text?: string
  /**
   * The servers that the task needs: names of servers, and entries as in the config, like `{ weather: { command: 'npx', args: [] } }`. An
   * entry replaces other servers of the same name in the task's runs. It needs a separate approval, and ends with the sandbox. In
   * `servers()` and for `approve()`, its name is `weather@task-…`, with a digest of the entry. At most 256. Default: none.
   */
  servers?: (string | Record<string, unknown>)[] | Record<string, unknown>
  /** Capabilities. Each server that has one of them is attached. At most 256. Default: none. */
  capabilities?: string[]
}

/** Options of `Gateway.resolve`. */
export interface ResolveOptions {
  /** The name of the agent. Default: the operator's own agent. */
  agent?: string
  /** The task. Default: none, so only servers that need no task are available. */
  task?: Task
  /** True to return only the lines, without `mcpServers`. Default false. */
  dryRun?: boolean
}

/** The servers that would be available to an agent and a task. */
export interface Resolution {
  /**
   * The entries, with those keys that other programs accept. Secrets are replaced by names of variables: `${NAME}`. An entry contains no
   * filters, no `confirm` and no approval, because other programs do not support these. Missing with `dryRun`.
   */
  mcpServers?: Record<string, unknown>
  /** One line for each server that is available. There is also a line for each server that the task requests but that is left out. */
  servers: ResolvedServer[]
  /** Warnings about servers that are not ready, and about entries that another program would use in a different way. */
  warnings: string[]
}

/** The line of one server in a `Resolution`. */
export interface ResolvedServer {
  name: string
  /** The key in `mcpServers`: `acme__shared-fs` for `acme--shared-fs`. */
  key: string
  inForce: boolean
  /** The reason why the server is available or left out, in a sentence. */
  reason: string
  /** The source of the server. Missing for a name that no server has. */
  source?: ServerSource
  /** Other sources that have a server of this name. Their servers are not used. */
  hides?: ServerSource[]
  /** The variables that the server needs and that are not set. Missing if there are none. */
  missing?: string[]
}

/** Reports whether this machine can run a guest, and the reason if it cannot. */
export interface HypervisorReport {
  available: boolean
  guest?: 'standard' | 'ring3'
  /** The time to boot the guest and take its snapshot, or to load a stored snapshot, in milliseconds. */
  bootMs?: number
  /**
   * The origin of the snapshot from which runs start. `booted`: this process made it by booting. `kept`: this process made it by booting,
   * and has stored it on disk. `found`: it was already on disk.
   */
  snapshot?: 'booted' | 'kept' | 'found'
  /** The reason why no guest boots. `remedy` is what the user can do about it. */
  problem?: string
  remedy?: string
  /** A warning about the guest that runs. */
  warning?: string
}

/** The report about the parts of a box that this machine supports. */
export interface BoxesReport {
  /** True if this machine can make boxes with all their features. */
  available: boolean
  /**
   * True if a box can be enforced without namespaces, by Landlock and the filter of system calls. In this case, most entries can be started
   * even without namespaces.
   */
  landlockAlone: boolean
  /** All parts. The parts that every box needs come first. Empty if the program that makes boxes cannot be run. */
  parts: BoxPart[]
  /** The reason why the program that makes boxes cannot be run. */
  problem?: string
}

/** A private home of a server in a box. */
export interface PrivateHome {
  id: string
  /**
   * The name of the server. If the server is not from the operator's config, its name begins with its source: `agent:researcher:notes`.
   * Missing for a home of an earlier version whose server is not approved.
   */
  server?: string
  /**
   * The use of the home.
   * - `running`: a server runs in a box with this home.
   * - `configured`: a server of this gateway gets the home at its next start.
   * - `approved`: the server of the home is approved, but the server's entry is gone, was changed, or belongs to another config or
   * workspace.
   * - `unused`: no server can get the home any more.
   */
  used: 'running' | 'configured' | 'approved' | 'unused'
  /** The size of the home on the disk, in bytes. */
  bytes: number
  files: number
  /** False if the home contains more files than were measured. */
  isComplete: boolean
  /** The time of the last start of a server with this home, in milliseconds since 1970. */
  lastUsedMs?: number
}

/** The result of `Gateway.removePrivateHomes`. */
export interface RemovedHomes {
  removed: PrivateHome[]
  /** Homes that were requested to be removed, but are in use. */
  kept: PrivateHome[]
}

/** A part of the kernel that boxes need, with the result of the attempt to use it. */
export interface BoxPart {
  /**
   * The name of the part. Every box with namespaces needs the first five parts. Without `scopes`, a box that shares the machine's network
   * can reach the abstract sockets of the machine. Without `cgroup`, memory and processes are counted, and `cpuPercent` is refused.
   */
  name: 'userNamespaces' | 'networkNamespaces' | 'mounts' | 'landlock' | 'systemCallFilter' | 'scopes' | 'cgroup'
  available: boolean
  /** The version of Landlock, or the resources that a cgroup can limit. */
  detail?: string
  /** The reason why the machine does not support the part. `remedy` is what the user can do about it, if that is known. */
  problem?: string
  remedy?: string
}

/** The source of a server. If two sources have a server of the same name, the source whose kind comes first in the list below is used. */
export interface ServerSource {
  kind: 'task' | 'config' | 'agent' | 'provider' | 'generated' | 'catalogue'
  /**
   * The name of the agent, of the provider's package (or of the provider, if the agent's code has registered it), or of the task. For
   * `config`, it is the name of the program whose config is a layer below the operator's config. Missing for the operator's own config.
   */
  name?: string
}

/** A server and its present state. */
export interface ServerStatus {
  name: string
  /**
   * The state of the server. `invalid`: its entry in the config has an error, which `lastError` contains. `pending-approval`: an agent has
   * added or changed the server, and no person has decided about it yet; such servers come first. `not-ready`: the server cannot start,
   * because variables that it needs are `missing`; `approved` says whether the server is approved.
   */
  state:
    | 'invalid'
    | 'disabled'
    | 'pending-approval'
    | 'not-ready'
    | 'unapproved'
    | 'command-approved'
    | 'idle'
    | 'connecting'
    | 'connected'
    | 'error'
  /** True if both the command and the manifest are approved, for the present configuration of the server. */
  approved: boolean
  enabled: boolean
  /** Present if a person has disabled the server with `disable()` or with a command. A model cannot enable such a server. */
  disabledByPerson?: true
  /** The name that an agent has given a server that it has added. It is free text and may be wrong. */
  displayName?: string
  /**
   * The server from which profiles have created this variant. In the code of an agent with these profiles, the name of that server refers
   * to the variant.
   */
  variantOf?: string
  /**
   * The description of the server by its provider or by the catalogue, on one line and without secrets. It is not part of an approval, so
   * it is not given to models. An agent gets it after the server was approved.
   */
  description?: string
  /** The source of the server. */
  source: ServerSource
  /** Other sources that have a server of this name. Their servers are not used. */
  hides?: ServerSource[]
  /** The variables that the server needs and that are not set. Without these variables, the server does not start. Missing if there are none. */
  missing?: string[]
  /** The names of the approved tools, as the server gives them. */
  tools: string[]
  /** The approved tools that the server has changed or removed since the approval. Calls of these tools fail. */
  quarantined: string[]
  /**
   * The last error. If a server wrote something before it ended, the message contains the most informative line. The command `logs` shows all lines.
   */
  lastError?: { code: ErrorCode; message: string }
}

/** The result of `Gateway.test`. */
export interface ConnectionReport {
  server: string
  /** The time from the start of the process until its list of tools is complete, in milliseconds. */
  connectMs: number
  /** The protocol version that was negotiated. */
  era: string
  serverName: string
  serverVersion: string
  tools: string[]
  /** Names in the config's filters that the server does not have. */
  warnings: string[]
}

/** Supports `await using gateway = await Gateway.open()`. */
export interface Gateway {
  [Symbol.asyncDispose](): Promise<void>
}

/** Supports `await using agent = gateway.agent('name')`. */
export interface Agent {
  [Symbol.asyncDispose](): Promise<void>
}

/** Supports `await using sandbox = await gateway.sandbox()`. */
export interface Sandbox {
  [Symbol.asyncDispose](): Promise<void>
}
