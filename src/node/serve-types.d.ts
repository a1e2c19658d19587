/** Options of `Gateway.serve`. Without `http`, one host is served on standard input and output; the options of HTTP are errors then. */
export interface ServeOptions {
  /**
   * The port, or `'HOST:PORT'` or `'[IPV6]:PORT'`, on which MCP is served at `/mcp` (Streamable HTTP), with `/health` and `/metrics` beside it. Port 0 is
   * any that is free. The host is `127.0.0.1` if it is not given; other machines can connect elsewhere, which needs `tokenFile` or `oauth`.
   */
  http?: number | string
  /**
   * Serves one host on standard input and output of this process, which nothing else may use then: `console.log` breaks the protocol. One gateway of
   * a process at a time can be served in this way. It is what happens without `http`.
   */
  stdio?: boolean
  /**
   * A file of bearer tokens, one `NAME:TOKEN` or `TOKEN` a line, each token of at least 32 characters. Only its owner may read it (mode 0600). It is read
   * again when it changes. `NAME` is the name of the caller's agent.
   */
  tokenFile?: string
  /** PEM files for TLS: the certificate with those between it and the root, and its private key. */
  tls?: { cert: string; key: string }
  /**
   * Accepts access tokens of an OAuth authorization server (RFC 9728). `resource` is the address by which clients know this server, as
   * `https://host/mcp`, which tokens must name. `issuer` is the authorization server as its tokens name it. `jwksUrl` is the address of its keys; default: as
   * its metadata says. `scopes` are those that each token must have; default: none.
   */
  oauth?: { resource: string; issuer: string; jwksUrl?: string; scopes?: string[] }
  /** Names that requests may have as `Host`, besides loopback names and the address itself: `NAME` or `NAME:PORT`. Default: none. */
  allowedHosts?: string[]
  /** Web pages that may send requests, besides those of this server: `https://NAME[:PORT]`. Default: none. */
  allowedOrigins?: string[]
  /** Limits over HTTP. Defaults: see `ServeLimits`. */
  limits?: Partial<ServeLimits>
  /** Calls that may change something and need no answer of a person: `SERVER`, or `SERVER.TOOL` with the raw name of a tool. Default: none. */
  allowWrites?: string[]
  /** The name of the agents of all clients, in events and logs. Default: the name of the caller's token, or else the name that a client gives itself. */
  agent?: string
  /** The servers whose approved tools are listed under names of their own as well: `true` for all, also those that are approved later. Default: none. */
  direct?: boolean | string[]
  /** The form of these names: `mcp_SERVER_TOOL` (`underscore`, the default) or `SERVER-TOOL` (`hyphen`). */
  names?: 'underscore' | 'hyphen'
}

/**
 * Limits of a gateway that is served over HTTP. Sizes are in bytes, times in milliseconds. A client is the caller that a token names, and without tokens
 * an IP address. What exceeds a limit gets status 413, or 503 with `Retry-After`.
 */
export interface ServeLimits {
  /** The size of the body of one request. Default 4 MiB, at most 64 MiB. */
  maxBodyBytes: number
  /** The size of all bodies that are being read, at least `maxBodyBytes`; one client has half of it. Default 64 MiB. */
  maxBufferedBytes: number
  /** The number of connections. Default 2,048. */
  maxHttpConnections: number
  /** The number of connections from one IP address. Default 1,024. */
  maxConnectionsPerAddress: number
  /** The number of sessions. Default 1,000. */
  maxSessions: number
  /** The number of sessions of one client. Default 500. */
  maxSessionsPerClient: number
  /** The number of requests in progress. Default 512. */
  maxRequests: number
  /** The number of requests in progress of one client. Default 256. */
  maxRequestsPerClient: number
  /** The number of requests per second of one client. Default 1,000. */
  requestsPerSecond: number
  /** The time for the headers of a request, and for a connection without a request. Default 15,000. */
  headerTimeoutMs: number
  /** The time for the body of a request. Default 30,000. */
  bodyTimeoutMs: number
  /** The time without progress in sending to a client that does not read. Default 30,000. */
  writeTimeoutMs: number
  /** The time after which a session without open requests and streams ends. Default 600,000. */
  sessionIdleMs: number
  /** The time that requests in progress get at `close()`. Default 10,000. */
  drainMs: number
}

/** Supports `await using served = await gateway.serve({ http: 0 })`. */
export interface ServedGateway {
  [Symbol.asyncDispose](): Promise<void>
}
