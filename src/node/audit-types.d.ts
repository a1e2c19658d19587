/** Selects rows of the audit. A row must match all given fields. An unknown key or a wrong type is an error that names the key. */
export interface AuditQuery {
  /** Only rows from this time on, in milliseconds since 1970, as `Date.now()` returns it. Default: from the first row on. */
  since?: number
  /** Only rows of this agent. Default: rows of all agents. */
  agent?: string
  /** Only rows of this server. Default: rows of all servers. */
  server?: string
  /** Only rows of this tool. The name is the one that the server gives it. Default: rows of all tools. */
  tool?: string
  /** Only rows of this kind. Default: rows of all kinds. */
  kind?: AuditKind
  /** The maximum number of rows, at least 1. If more rows match, the last ones are returned. Default 1,000. */
  limit?: number
}

/**
 * The subject of a row. `server`: a server was added, changed, removed, enabled or disabled. `call`: a call of a tool, or another request to a server.
 * `fetch`: code in a sandbox has fetched something, or was refused. `gap`: events are missing here. `damage`: another program has changed the audit before this row.
 */
export type AuditKind = 'approval' | 'revocation' | 'server' | 'grant' | 'connection' | 'call' | 'fetch' | 'gap' | 'damage'

/**
 * The action that a row records. `command` and `manifest` are the stages of an approval. `provider`: the code of a package that provides servers
 * was approved. `fetch`: the hosts that code of an agent may fetch from were approved. `default`: the grant of agents without a grant was changed. `config`: the following rows of the same process describe changes of
 * the grants in the config, or all of these grants if the gateway was just opened. `queue-full`: events came faster than they could be written.
 * `closed`: the gateway closed a connection, because the server was disabled, revoked or changed, nobody needs it any more, or the gateway was closed.
 * `process-ended`: a process ended without closing its gateway. `head-changed`: the end of the chain was changed, or is older than the rows that
 * were written.
 */
export type AuditAction =
  | 'command'
  | 'manifest'
  | 'provider'
  | 'fetch'
  | 'revoked'
  | 'added'
  | 'changed'
  | 'removed'
  | 'enabled'
  | 'disabled'
  | 'granted'
  | 'ungranted'
  | 'default'
  | 'config'
  | 'opened'
  | 'failed'
  | 'lost'
  | 'idle'
  | 'evicted'
  | 'closed'
  | 'queue-full'
  | 'process-ended'
  | 'head-changed'

/** The party that made a decision. `setting`: a setting that decides without a person. */
export type AuditParty = 'person' | 'model' | 'agent' | 'config' | 'setting'

/** A row of the audit. */
export interface AuditRow {
  /** The position in the chain, from 1. */
  number: number
  /** Milliseconds since 1970. */
  at: number
  kind: AuditKind
  /** The agent's name. Missing for the operator's own agent. */
  agent?: string
  server?: string
  /** The tool's name as the server gives it, or the method of another request. */
  tool?: string
  /** The id of the process that wrote the row. With `process-ended`, it is the id of the process that has ended, or 0 if that is not known. */
  pid: number
  /** The action, for each kind except `call` and `fetch`. */
  action?: AuditAction
  by?: AuditParty
  /** The name of the package that provides servers, in a row about its code. */
  provider?: string
  /**
   * The subject of the action. For an approval: the approved digest. For a row about a server: its source. For a grant: the toolbox, or
   * `profile:` with the name of a profile. For a default: `all` or `none`. For a config: the digest of all its grants. For a fetch that was
   * refused because of a private address: the address, and its kind.
   */
  subject?: string
  /**
   * The patterns of the toolbox, or the servers of the profile. For an approval of fetch, the approved hosts. Missing if they have more
   * than 64 KiB.
   */
  patterns?: string[]
  /** The number of the run in its process. Missing for a call without a run. */
  runId?: number
  /**
   * Scheme, host and port that code has fetched from; for a run that was refused, all its hosts. Only rows of the kind `fetch` have this
   * field.
   */
  host?: string
  /** The method of a fetch. */
  method?: string
  /** The status of the response to a fetch. Missing if there was none. */
  status?: number
  /** The number of bytes in the body of a fetch's request. */
  sentBytes?: number
  /** The number of bytes that were read of the response to a fetch. */
  receivedBytes?: number
  /**
   * The outcome of a fetch: `ok`, `redirected` (the next row has its target), `cancelled`, or the error's code. The outcome of a call: `ok`, `tool-error` (the tool answered with `isError: true`), `cancelled` (the caller has cancelled it, but the server
   * may have executed it), or the error's code. For a connection that failed, it is the error's code.
   */
  outcome?: string
  /** The duration of a call or a fetch, or of opening a connection, in milliseconds. The duration of a call includes the time in which a person was asked. */
  durationMs?: number
  /** The digest of the arguments under the machine's key. Equal arguments have equal digests. */
  argumentsDigest?: string
  /** The arguments without secrets. Only with `auditContent`, and if they have at most 64 KiB. */
  arguments?: Record<string, unknown>
  /** The size of the arguments as JSON, in bytes. */
  argumentBytes?: number
  /** The approximate size of the result in bytes: its texts and keys, and 8 for each other value. */
  resultBytes?: number
  /** The number of missing events, in a row of the kind `gap`. Missing if it is not known. */
  lost?: number
  /** The digest of this row and all rows before it, under the machine's key. */
  digest: string
}

/** The result of `Gateway.verifyAudit`. */
export interface AuditReport {
  /** True if each row is unchanged, and if no row is missing, added or in another position. */
  whole: boolean
  rows: number
  /** The number of the first row. Older rows were removed by `limits.maxAuditBytes` or `limits.maxAuditAgeMs`. Missing for an empty audit. */
  first?: number
  /** The number of the last row. Missing for an empty audit. */
  last?: number
  /** The digest of the last row. If it is stored elsewhere, it shows later whether this row still exists. Missing for an empty audit. */
  head?: string
  /** The number of rows about gaps. A gap is not damage: events were lost, and the audit reports it. */
  gaps: number
  /** The problems, one sentence for each, at most a hundred. */
  problems: string[]
}
