/** Selects rows of the audit. A row must match all given fields. An unknown key or a wrong type causes an error that names the key. */
export interface AuditQuery {
  /** Only rows from this time on, in milliseconds since 1970, as `Date.now()` returns it. Default: from the first row on. */
  since?: number
  /** Only rows of this agent. Default: rows of all agents. */
  agent?: string
  /** Only rows of this server. Default: rows of all servers. */
  server?: string
  /** Only rows of this tool. This is the name that the server gives the tool. Default: rows of all tools. */
  tool?: string
  /** Only rows of this kind. Default: rows of all kinds. */
  kind?: AuditKind
  /** The maximum number of rows, at least 1. If more rows match, the last ones are returned. Default 1,000. */
  limit?: number
}

/**
 * The subject of a row. `server`: a server was added, changed, removed, enabled or disabled. `call`: a call of a tool, or another request
 * to a server. `fetch`: code in a sandbox has fetched something, or its fetch was refused. `gap`: some events before this row are missing.
 * `damage`: another program has changed the audit before this row.
 */
export type AuditKind = 'approval' | 'revocation' | 'server' | 'grant' | 'connection' | 'call' | 'fetch' | 'gap' | 'damage'

/**
 * The action that a row records. `command` and `manifest` are the stages of an approval. `provider`: the code of a package that provides
 * servers was approved. `fetch`: the hosts from which code of an agent may fetch were approved. `default`: the grant of agents without a
 * grant was changed. `config`: the following rows of the same process describe changes of the grants in the config, or all of these grants
 * if the gateway was just opened. `queue-full`: events arrived faster than they could be written. `closed`: the gateway closed a
 * connection, because the server was disabled, revoked or changed, because nobody needs the connection any more, or because the gateway was
 * closed. `process-ended`: a process ended without closing its gateway. `head-changed`: the end of the chain was changed, or is older than
 * the rows that were written.
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

/** The party that made a decision. `setting` is a setting with which the gateway decides without asking a person. */
export type AuditParty = 'person' | 'model' | 'agent' | 'config' | 'setting'

/** A row of the audit. */
export interface AuditRow {
  /** The position of the row in the chain, counted from 1. */
  number: number
  /** Milliseconds since 1970. */
  at: number
  kind: AuditKind
  /**
   * The agent's name. A name that only its MCP client has given begins with `client:`. A subject of an access token that is not a valid name
   * begins with `subject:`; if it is not shown unchanged, a digest follows. Missing for the operator's own agent.
   */
  agent?: string
  server?: string
  /** The tool's name as the server gives it, or the method of another request. */
  tool?: string
  /**
   * The id of the process that wrote the row. For `process-ended`, it is the id of the process that has ended, or 0 if that id is not
   * known.
   */
  pid: number
  /** The action. Present for each kind except `call` and `fetch`. */
  action?: AuditAction
  by?: AuditParty
  /** The name of the package that provides servers, in a row about its code. */
  provider?: string
  /**
   * The subject of the action. For an approval: the approved digest. For a row about a server: the source of the server. For a grant: the
   * toolbox, or `profile:` with the name of a profile. For a default: `all` or `none`. For a config: the digest of all grants in the
   * config. For a fetch that was refused because of a private address: this address and its kind.
   */
  subject?: string
  /**
   * The patterns of the toolbox, or the servers of the profile. For an approval of fetch, the approved hosts. Missing if these texts have
   * more than 64 KiB.
   */
  patterns?: string[]
  /** The number of the run, different from that of each other run of the process. Missing for a call without a run. */
  runId?: number
  /**
   * The scheme, host and port from which code has fetched. If a whole run was refused, this field contains all hosts of the run. Only rows
   * of the kind `fetch` have this field.
   */
  host?: string
  /** The method of a fetch. */
  method?: string
  /** The status of the response to a fetch. Missing if there was none. */
  status?: number
  /** The number of bytes in the body of a fetch's request. */
  sentBytes?: number
  /** The number of bytes of the response to a fetch that were read. */
  receivedBytes?: number
  /**
   * The outcome of a call or fetch. For a fetch: `ok`, `redirected` (the next row has the new target), `cancelled`, or the code of the
   * error. For a call: `ok`, `tool-error` (the tool answered with `isError: true`), `cancelled` (the caller has cancelled the call, but the
   * server may have executed it), or the code of the error. For a connection that failed: the code of the error.
   */
  outcome?: string
  /** The duration of a call or a fetch, or of opening a connection, in milliseconds. The duration of a call includes the time in which a person was asked. */
  durationMs?: number
  /** The digest of the arguments, computed with the machine's key. Equal arguments have equal digests. */
  argumentsDigest?: string
  /** The arguments without secrets. Present only with `auditContent`, and only if the arguments have at most 64 KiB. */
  arguments?: Record<string, unknown>
  /** The size of the arguments as JSON, in bytes. */
  argumentBytes?: number
  /** The approximate size of the result in bytes: the sum of its texts and keys, and 8 for each other value. */
  resultBytes?: number
  /** The number of events that are missing. Only rows of the kind `gap` have this field. Missing if the number is not known. */
  lost?: number
  /** The digest of this row and all rows before it, computed with the machine's key. */
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
  /**
   * The digest of the last row. If it is also stored elsewhere, it can show later whether this row still exists. Missing for an empty
   * audit.
   */
  head?: string
  /** The number of rows that report a gap. A gap is not damage: events were lost, and the audit reports this. */
  gaps: number
  /** The problems, with one sentence for each. At most a hundred are listed. */
  problems: string[]
}
