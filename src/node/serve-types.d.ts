/**
 * Options of `Gateway.serve`. Without `http`, one host is served on standard input and output. In this case, options for HTTP cause an
 * error.
 */
export interface ServeOptions {
  /**
   * The port, or `'HOST:PORT'` or `'[IPV6]:PORT'`, on which MCP is served at `/mcp` (Streamable HTTP), together with `/health` and
   * `/metrics`. With port 0, the operating system selects a free port. If no host is given, it is `127.0.0.1`. An address that other
   * machines can reach requires `tokenFile` or `oauth`.
   */
  http?: number | string
  /**
   * Serves one host on standard input and output of this process. No other code may use these streams: `console.log` would break the
   * protocol. Only one gateway of a process can be served in this way at a time. This is the default without `http`.
   */
  stdio?: boolean
  /**
   * A file with bearer tokens, one on each line: `NAME:TOKEN` or `TOKEN`. Each token has at least 32 characters. Only the owner of the file
   * may have access to it (mode 0600). The file is read again when it changes. `NAME` is the name of the caller's agent.
   */
  tokenFile?: string
  /** PEM files for TLS: the certificate with its intermediate certificates, and the private key. */
  tls?: { cert: string; key: string }
  /**
   * Accepts access tokens of an OAuth authorization server (RFC 9728). `resource` is the address of this server for clients, like
   * `https://host/mcp`; tokens must contain this address. `issuer` is the authorization server, as its tokens name it. `jwksUrl` is the
   * address of the issuer's keys; by default, the issuer's metadata contains this address. `scopes` are required in each token; by default,
   * none are required. The subject of a token is the name of the caller's agent. A subject that is not a valid name has no grants.
   */
  oauth?: { resource: string; issuer: string; jwksUrl?: string; scopes?: string[] }
  /**
   * Values of `Host` that requests may have, written as `NAME` or `NAME:PORT`. Loopback names and the address itself are always allowed.
   * Default: none.
   */
  allowedHosts?: string[]
  /**
   * Origins of web pages that may send requests, written as `https://NAME[:PORT]`. Pages of this server are always allowed. Default: none.
   */
  allowedOrigins?: string[]
  /** Limits over HTTP. Defaults: see `ServeLimits`. */
  limits?: Partial<ServeLimits>
  /**
   * The only servers that the hosts can see, no matter which servers the gateway has enabled. No model can enable another server. A server
   * that is not approved yet is served from the time of its approval. Default: all servers.
   */
  servers?: string[]
  /**
   * Calls that may change something but need no permission of a person. An entry is `SERVER`, or `SERVER.TOOL` with the name that the
   * server gives the tool. Default: none.
   */
  allowWrites?: string[]
  /**
   * The name that the agents of all clients have in events and logs. Default: the name of the caller's token. If there is none, the name
   * that the client gives itself.
   */
  agent?: string
  /**
   * The servers whose approved tools are also listed under direct names. `true` means all servers, including those that are approved later.
   * Default: none.
   */
  direct?: boolean | string[]
  /**
   * Serves only the tools of this server, under the names that the server gives them. The tools of hyperlight-mcp are not served. It cannot
   * be set together with `direct`.
   */
  only?: string
  /** The form of direct names: `mcp_SERVER_TOOL` (`underscore`, the default) or `SERVER-TOOL` (`hyphen`). */
  names?: 'underscore' | 'hyphen'
  /** The form in which the code of models gets errors of calls, and in which models read about these errors. Default `throw`. */
  toolErrors?: ToolErrors
}

/**
 * Limits of a gateway that is served over HTTP. Sizes are in bytes, times in milliseconds. A client is the caller that a token names, or an
 * IP address if there are no tokens. A body that is too large gets status 413. A request above `requestsPerSecond` gets status 429. All
 * other requests above a limit get status 503. The statuses 429 and 503 have the header `Retry-After`. A run above a limit gets `ERR_BUSY`
 * in the result of its call.
 */
export interface ServeLimits {
  /** The maximum size of the body of one request. Default 4 MiB, at most 64 MiB. */
  maxBodyBytes: number
  /** The maximum size of all bodies that are being read, at least `maxBodyBytes`. One client may use half of this size. Default 64 MiB. */
  maxBufferedBytes: number
  /**
   * The maximum number of connections. Default 2,048. It is never more than a quarter of the files that the process may open
   * (`RLIMIT_NOFILE`).
   */
  maxHttpConnections: number
  /** The maximum number of connections from one IP address. Default 1,024. */
  maxConnectionsPerAddress: number
  /** The maximum number of sessions. The last quarter is reserved for clients that have no session. Default 1,000. */
  maxSessions: number
  /** The maximum number of sessions for one client. Default 500. */
  maxSessionsPerClient: number
  /** The maximum number of requests in progress. The last quarter is reserved for clients that have no request in progress. Default 512. */
  maxRequests: number
  /** The maximum number of requests in progress for one client. Default 256. */
  maxRequestsPerClient: number
  /** The maximum number of requests per second from one client. Default 1,000. */
  requestsPerSecond: number
  /** The maximum time until the headers of a request have arrived, and for which a connection may have no request. Default 15,000. */
  headerTimeoutMs: number
  /** The maximum time until the body of a request has arrived. Default 30,000. */
  bodyTimeoutMs: number
  /** The maximum time without progress while a response is sent to a client that does not read. Default 30,000. */
  writeTimeoutMs: number
  /** The time after which a session without open requests and streams ends. Default 600,000. */
  sessionIdleMs: number
  /** The maximum time for which requests in progress continue after `close()`. Default 10,000. */
  drainMs: number
}

/** Supports `await using served = await gateway.serve({ http: 0 })`. */
export interface ServedGateway {
  [Symbol.asyncDispose](): Promise<void>
}
