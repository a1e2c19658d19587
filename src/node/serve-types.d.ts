/** Options of `Gateway.serve`. Without `http`, one host is served on standard input and output; then the options for HTTP are errors. */
export interface ServeOptions {
  /**
   * The port, or `'HOST:PORT'` or `'[IPV6]:PORT'`, on which MCP is served at `/mcp` (Streamable HTTP), together with `/health` and `/metrics`. Port
   * 0 selects any free port. Without a host, it is `127.0.0.1`. Other machines can connect to any other address, so such an address requires
   * `tokenFile` or `oauth`.
   */
  http?: number | string
  /**
   * Serves one host on standard input and output of this process. Nothing else may use them then: `console.log` would break the protocol. Only one
   * gateway of a process can be served in this way at a time. This is the default without `http`.
   */
  stdio?: boolean
  /**
   * A file with bearer tokens, one on each line: `NAME:TOKEN` or `TOKEN`, each token with at least 32 characters. Only its owner may have access to
   * it (mode 0600). It is read again when it changes. `NAME` is the name of the caller's agent.
   */
  tokenFile?: string
  /** PEM files for TLS: the certificate with its intermediate certificates, and the private key. */
  tls?: { cert: string; key: string }
  /**
   * Accepts access tokens of an OAuth authorization server (RFC 9728). `resource` is the address of this server for clients, like
   * `https://host/mcp`; tokens must contain it. `issuer` is the authorization server as its tokens name it. `jwksUrl` is the address of its keys;
   * by default, its metadata gives this address. `scopes` are required in each token; none by default.
   */
  oauth?: { resource: string; issuer: string; jwksUrl?: string; scopes?: string[] }
  /** Values of `Host` that requests may have, in addition to loopback names and the address itself: `NAME` or `NAME:PORT`. Default: none. */
  allowedHosts?: string[]
  /** Origins of web pages that may send requests, in addition to those of this server: `https://NAME[:PORT]`. Default: none. */
  allowedOrigins?: string[]
  /** Limits over HTTP. Defaults: see `ServeLimits`. */
  limits?: Partial<ServeLimits>
  /**
   * The only servers that the hosts have, whatever the gateway has enabled. No model can enable another one. A server that is not approved
   * yet is served as soon as it is approved. Default: all.
   */
  servers?: string[]
  /**
   * Calls that may change something but need no permission of a person: `SERVER`, or `SERVER.TOOL` with the name that the server gives the tool.
   * Default: none.
   */
  allowWrites?: string[]
  /**
   * The name of all clients' agents in events and logs. Default: the name of the caller's token, otherwise the name that the client gives itself.
   */
  agent?: string
  /**
   * The servers whose approved tools are also listed under direct names. `true` means all servers, including those that are approved later.
   * Default: none.
   */
  direct?: boolean | string[]
  /**
   * Serves only the tools of this server, under the names that the server gives them, and no tool of hyperlight-mcp. Not together with
   * `direct`.
   */
  only?: string
  /** The form of direct names: `mcp_SERVER_TOOL` (`underscore`, the default) or `SERVER-TOOL` (`hyphen`). */
  names?: 'underscore' | 'hyphen'
  /** The form in which the code of models gets errors of calls, and in which they are described. Default `throw`. */
  toolErrors?: ToolErrors
}

/**
 * Limits of a gateway that is served over HTTP. Sizes are in bytes, times in milliseconds. A client is the caller that a token names, or an
 * IP address if there are no tokens. A body that is too large gets status 413, and a request beyond `requestsPerSecond` status 429.
 * Anything else for which there is no place gets status 503. The statuses 429 and 503 come with `Retry-After`. A run for which there is no
 * place is `ERR_BUSY` in the result of its call.
 */
export interface ServeLimits {
  /** The maximum size of the body of one request. Default 4 MiB, at most 64 MiB. */
  maxBodyBytes: number
  /** The maximum size of all bodies that are being read, at least `maxBodyBytes`. One client may use half of it. Default 64 MiB. */
  maxBufferedBytes: number
  /** The maximum number of connections. Default 2,048, and at most a quarter of the files that the process may open (`RLIMIT_NOFILE`). */
  maxHttpConnections: number
  /** The maximum number of connections from one IP address. Default 1,024. */
  maxConnectionsPerAddress: number
  /** The maximum number of sessions. The last quarter is for clients that have no session. Default 1,000. */
  maxSessions: number
  /** The maximum number of sessions for one client. Default 500. */
  maxSessionsPerClient: number
  /** The maximum number of requests in progress. The last quarter is for clients that have no request in progress. Default 512. */
  maxRequests: number
  /** The maximum number of requests in progress for one client. Default 256. */
  maxRequestsPerClient: number
  /** The maximum number of requests per second from one client. Default 1,000. */
  requestsPerSecond: number
  /** The maximum time for the headers of a request, and for a connection without a request. Default 15,000. */
  headerTimeoutMs: number
  /** The maximum time for the body of a request. Default 30,000. */
  bodyTimeoutMs: number
  /** The maximum time without progress in sending to a client that does not read. Default 30,000. */
  writeTimeoutMs: number
  /** The time after which a session without open requests and streams ends. Default 600,000. */
  sessionIdleMs: number
  /** The maximum time for requests in progress after `close()`. Default 10,000. */
  drainMs: number
}

/** Supports `await using served = await gateway.serve({ http: 0 })`. */
export interface ServedGateway {
  [Symbol.asyncDispose](): Promise<void>
}
