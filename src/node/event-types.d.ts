/** An event of a gateway, passed to `onEvent`. */
export type GatewayEvent =
  | LogEvent
  | WarningEvent
  | ConfigReloadedEvent
  | ApprovalsDamagedEvent
  | ApprovalProposedEvent
  | ServerProposedEvent
  | ExecutableChangedEvent
  | NotGrantedEvent
  | ServerUnavailableEvent
  | ToolsChangedEvent
  | ProgressEvent
  | ServerLogEvent
  | ConnectionEvictedEvent
  | BoxRefusedEvent
  | ConnectionIdleEvent
  | ConnectionLostEvent
  | ElicitationCancelledEvent
  | ResourceUpdatedEvent
  | ConnectedEvent
  | CallEvent

/** An event: the guest wrote to its console. */
export interface LogEvent {
  type: 'log'
  /** The number of the run in this process, counted from 1. */
  runId: number
  level: LogLevel
  text: string
}

/**
 * A warning for an operator. Examples: a doubtful entry in the config (during `open` and `reload`), the use of the ring-3 guest (during
 * `sandbox`), or a result that does not match its tool's own `outputSchema` (during `callTool`).
 */
export interface WarningEvent {
  type: 'warning'
  message: string
}

/** An event that is sent with the option `watch`: the config file has changed and was read again. */
export interface ConfigReloadedEvent extends ReloadReport {
  type: 'config-reloaded'
}

/**
 * An event: another program has changed decisions in the store, or has restored an earlier state of the store. These decisions are not used
 * any more, so servers need approval again. The event is sent once for each kind of decision that is read. The message names this kind.
 */
export interface ApprovalsDamagedEvent {
  type: 'approvals-damaged'
  message: string
}

/**
 * An event: an agent has added or changed a server, and a person must decide whether to approve it. The person decides with
 * `approve(server, request.digest)` or `removeServer(server)`. The event is sent again each time that a gateway is opened, until a person
 * has decided.
 */
export interface ServerProposedEvent {
  type: 'server-proposed'
  server: string
  /** The name that the agent gave the server. It is free text and may be wrong. */
  displayName: string
  /** The name of the agent. Missing for the operator's own agent. */
  agent?: string
  /** True if the server was approved without a person, because `requireApproval` is false. */
  approved: boolean
  /**
   * The stage of the approval that the person must decide on. `manifest`: the command is already approved, and `request` shows the command;
   * `approvalRequest(server)` starts the server and returns its tools. An event with this stage is sent only when a gateway is opened.
   */
  stage: 'command' | 'manifest'
  /**
   * The request that the person must see before any program of the server runs. If the event is sent because a gateway is opened,
   * `box.allows` and `changeableBy` contain only what follows from the entry. `approvalRequest(server)` adds what is in the server's
   * folders now. Its request has the same digest, unless the server's box cannot be made now, or the request names other servers.
   */
  request: CommandRequest
}

/** An event: the file of a server's program has changed since its command was approved. With `pinExecutable`, the server needs approval again. */
export interface ExecutableChangedEvent {
  type: 'executable-changed'
  server: string
  path: string
  /** The SHA-256 of the program file at the time of the approval. `now` is its present SHA-256. */
  before: string
  now: string
}

/**
 * An event for the operator: an agent has called a tool, or used a resource or prompt, that the agent's toolboxes do not allow. The event
 * is sent once for each agent and item. For the model of the agent, the item does not exist.
 */
export interface NotGrantedEvent {
  type: 'not-granted'
  /** The agent's name, in the same form as in the audit: with `client:` or `subject:` if the operator has not chosen it. */
  agent: string
  server: string
  /** The tool's name, `resource:` with a URI, `prompt:` with a name, or `*` if the agent's code requested the whole server. */
  item: string
  /** The reason, and the toolboxes that would allow the item, if there are any. This text must not be shown to a model. */
  reason: string
}

/**
 * An event for the operator, before a run: the run does not have a server of the config, although nobody has disabled the server. The
 * server is not approved, is not enabled, or its entry has an error. The event is sent once for each server and reason, and never to a
 * model.
 */
export interface ServerUnavailableEvent {
  type: 'server-unavailable'
  server: string
  /** The reason, such as `it is not approved`. */
  reason: string
}

/**
 * An event: the tools, resources or prompts of a server differ from the approved ones. New items are not available. Changed and removed
 * items cannot be called or read. All other items remain available.
 */
export interface ToolsChangedEvent extends Changes {
  type: 'tools-changed'
  server: string
  /** Resources that differ, by URI. Missing if none differ. */
  resources?: Changes
  /** Resource templates that differ, by URI template. Missing if none differ. */
  resourceTemplates?: Changes
  prompts?: Changes
}

/** Names of tools, resources or prompts that differ from the approved ones. These are the names that the server gives. */
export interface Changes {
  added: string[]
  removed: string[]
  changed: string[]
}

/**
 * A progress report of a server for a call. Reports are passed in the server's order to the `onEvent` of the run or call. If there is none,
 * they are passed to the gateway's `onEvent`.
 */
export interface ProgressEvent {
  type: 'progress'
  server: string
  tool: string
  runId?: number
  progress: number
  total?: number
  message?: string
}

/**
 * A log message of a server. Messages are passed in the server's order. If only one run has calls at the server, they are passed to the
 * `onEvent` of this run. Otherwise, they are passed to the gateway's `onEvent`.
 */
export interface ServerLogEvent {
  type: 'server-log'
  server: string
  runId?: number
  level: string
  logger?: string
  data: unknown
}

/** An event: a connection was closed to make room for another server (`limits.maxConnections`). The server's session state is lost. */
export interface ConnectionEvictedEvent {
  type: 'connection-evicted'
  server: string
  madeRoomFor: string
}

/** An event: a connection was closed because it was not used for `idleTimeoutMs`. The next call connects again. */
export interface ConnectionIdleEvent {
  type: 'connection-idle'
  server: string
}

/** An event: a connection ended because the server crashed, or because the server closed the connection. The next call connects again. */
export interface ConnectionLostEvent {
  type: 'connection-lost'
  server: string
  /** The way in which the process ended, and the last lines of its standard error. */
  reason: string
}

/**
 * An event: a server has tried to reach a host that its box does not allow. The event is sent once for each host, port and reason. If there
 * are a large number of these, only some are sent. The server has chosen the text of the host.
 */
export interface BoxRefusedEvent {
  type: 'box-refused'
  server: string
  /** The name that the server has requested, or an address. */
  host: string
  /** Missing if the server has only requested to resolve the name. */
  port?: number
  /**
   * `not-allowed`: `box.network` does not contain the host with this port. `private-address`: the name resolves to an address that can only
   * be reached from this machine or its network. `too-many`: the server uses more connections or names than a box may have.
   */
  reason: 'not-allowed' | 'private-address' | 'too-many'
}

/** An event: a server's question was cancelled. It could not be shown, or it was not certain to which run or call it belongs. */
export interface ElicitationCancelledEvent {
  type: 'elicitation-cancelled'
  server: string
  reason: string
}

/** An event: a subscribed resource has changed. */
export interface ResourceUpdatedEvent {
  type: 'resource-updated'
  server: string
  uri: string
}

/** An event that is sent with the option `trace`: a server was connected. */
export interface ConnectedEvent {
  type: 'connected'
  server: string
  connectMs: number
}

/** An event that is sent with the option `trace`: a call has ended. Sizes are in bytes of JSON. Contents are never included. */
export interface CallEvent {
  type: 'call'
  server: string
  tool: string
  durationMs: number
  argumentBytes: number
  resultBytes?: number
  /** The error code, if the call failed. */
  error?: ErrorCode
}
