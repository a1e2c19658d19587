/** Options of `Gateway.sandbox`. */
export interface SandboxOptions extends Callbacks {
  /** The task of all runs of the sandbox. Default: no task. */
  task?: Task
  /** The form in which code gets errors that tools report. Default `return`. */
  toolErrors?: ToolErrors
  /**
   * The maximum size of a run's value, in tokens of a model. It is used if the run does not set one. Default: the setting of the gateway.
   * See `RunOptions`.
   */
  maxResultTokens?: number
}

/** Options of `Sandbox.run`. */
export interface RunOptions extends Callbacks {
  /**
   * The task of the run, in addition to the task of the sandbox. Servers that the task defines exist until the sandbox is closed, or until
   * it starts another run with a task. Default: no task.
   */
  task?: Task
  /**
   * The hosts from which the code may fetch. With hosts, the code has the globals `fetch`, `Request`, `Response`, `Headers`, `FormData`,
   * `Blob`, `File` and `ReadableStream`. A person must have approved the hosts for the agent of the sandbox. Otherwise the run fails with
   * `ERR_FETCH_NOT_APPROVED`. If the agent's entry in the config has `fetch.hosts`, the hosts of the run must be among those. If this is
   * `false`, the code has no fetch. Default, and for `true`: the hosts of the agent's entry in the config if they are approved; otherwise
   * the code has no fetch.
   */
  fetch?: FetchHosts | boolean
  /** The argument of `handler`. Default `null`. */
  input?: unknown
  /** The time limit in milliseconds, counted from the start of the run. The default and the maximum are `limits.runTimeoutMs`. */
  timeoutMs?: number
  /** A signal that ends the run. The run rejects with `name: 'AbortError'`, `code: 'ERR_ABORTED'`, `cause: signal.reason`. */
  signal?: AbortSignal
  /** The form in which code gets errors that tools report. Default: the setting of the sandbox. */
  toolErrors?: ToolErrors
  /**
   * The maximum size of the value, as an estimated number of tokens of a model; at least 100. A larger value is cut, and remains JSON of
   * the same type. Short texts in the value, and `omitted`, describe what was cut. Later runs of this sandbox can read the whole value with
   * `saved(savedAs)` of `host:mcp`. Default: the setting of the sandbox. If it has none, the setting of the gateway is used. If there is
   * none, the value is not cut.
   */
  maxResultTokens?: number
  /**
   * The trace to which the run belongs, as a W3C `traceparent`. It is passed on to servers in `_meta`. With `OTEL_EXPORTER_OTLP_ENDPOINT`,
   * it is the parent of the run's span. Default: a new trace if spans are exported, and no trace otherwise.
   */
  traceparent?: string
  /**
   * The W3C `tracestate` that belongs to `traceparent`: at most 32 members and 512 characters. It is passed on to servers in `_meta`, and exported with
   * spans. Default: none.
   */
  tracestate?: string
}

/** Options of `Gateway.callTool`. */
export interface CallOptions extends Callbacks {
  /**
   * The time limit in milliseconds. A value above `limits.callTimeoutMs` is reduced to that limit. If it is given, it also limits the look-up
   * of the server's files before the server is started, counted from the start of the call. Default: `limits.callTimeoutMs`.
   */
  timeoutMs?: number
  /** A signal that cancels the call, including at the server. */
  signal?: AbortSignal
  /**
   * The trace to which the call belongs, as a W3C `traceparent`. It is passed on to servers in `_meta`. With `OTEL_EXPORTER_OTLP_ENDPOINT`,
   * it is the parent of the call's span. Default: a new trace if spans are exported, and no trace otherwise.
   */
  traceparent?: string
  /**
   * The W3C `tracestate` that belongs to `traceparent`: at most 32 members and 512 characters. It is passed on to servers in `_meta`, and exported with
   * spans. Default: none.
   */
  tracestate?: string
}

/** Options of `Gateway.complete`. */
export interface CompleteOptions extends CallOptions {
  /**
   * Values of arguments that were already chosen. The keys are the names of the arguments. The server may use these values to return fewer
   * completions.
   */
  context?: Record<string, string>
}

/** The result of a run. If the run fails, the error has `logs`, `warnings` and `stats` as well. */
export interface RunResult<T = Value> {
  /** The value that the handler returned. It is `null` if the handler returned `undefined`. The type `T` is not checked at run time. */
  value: T
  logs: LogEntry[]
  /** Warnings about the run, for example that text was cut. */
  warnings: string[]
  stats: RunStats
  /**
   * The places at which `value` was cut because of `maxResultTokens`, in the order in which they occur in the value. At most a thousand are
   * listed. Missing if nothing was cut.
   */
  omitted?: Omission[]
  /**
   * The handle with which later runs of the same sandbox read the whole value. Missing if nothing was cut, or if the value was too large to
   * be stored.
   */
  savedAs?: string
}

/** A place in a value where something was left out. */
export interface Omission {
  /** A JSON Pointer (RFC 6901) to the part of the whole value that was cut. `''` is the value itself. */
  path: string
  /**
   * The kind of the cut. `text`: the middle or the end of a string was left out. `items`: the last items of an array were left out. `keys`:
   * fields of an object were left out. `bytes`: a `Uint8Array` was replaced by a string. `depth`: all items of a nested array, or all
   * fields of a nested object, were left out.
   */
  kind: 'text' | 'items' | 'keys' | 'bytes' | 'depth'
  /**
   * The amount that remains in the value. `of` is the whole amount. For strings and bytes, the amount is the `length`. For arrays and
   * objects, it is the number of items or keys.
   */
  kept: number
  of: number
}

/** Measurements of a run. Times are in milliseconds, sizes in bytes. */
export interface RunStats {
  durationMs: number
  /** The time to start the VM and load the modules. */
  startMs: number
  /** The number of calls that left the VM. */
  calls: number
  /** The time that calls spent outside the VM. If several calls are pending at the same time, this time is counted once. */
  callMs: number
  /** The number of bytes that calls sent out of the VM. `bytesIn` is the number of bytes that were returned. */
  bytesOut: number
  bytesIn: number
}

/** The result of `tools/call`, as the server returned it. */
export interface ToolResult {
  content: unknown[]
  structuredContent?: unknown
  isError: boolean
  meta?: unknown
}
