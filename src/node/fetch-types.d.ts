/** Hosts that the code of one run may fetch from. */
export interface FetchHosts {
  /**
   * Names or addresses of hosts, such as `api.github.com`, `*.example.org` (with all subdomains), `example.org:8443`. Only `https:` is allowed, unless
   * the entry begins with `http://`. At most 64. A person must have approved them for the agent (`approveFetch`).
   */
  hosts: string[]
}

/** The argument of `Gateway.fetchApproval`. */
export interface FetchRequest {
  /** The agent's name. Default: the operator's own agent. */
  agent?: string
  /** The hosts. Default: those of the agent's entry in the config. */
  hosts?: string[]
}

/** The argument of `Gateway.approveFetch`. */
export interface FetchConsent {
  /** The agent's name. Default: the operator's own agent. */
  agent?: string
  /** The hosts that the person was shown. Default: those of the agent's entry in the config. */
  hosts?: string[]
  /** The digest of the request that the person was shown. */
  digest: string
}

/** The argument of `Gateway.revokeFetch`. */
export interface FetchAgent {
  /** The agent's name. Default: the operator's own agent. */
  agent?: string
}

/** The request that a person must see before code may fetch from hosts. */
export interface FetchApproval {
  /** The agent's name. Missing for the operator's own agent. */
  agent?: string
  /** The hosts in their normal form, sorted. */
  hosts: string[]
  /** The hosts in `hosts` that may have private addresses, by the option `fetch.allowPrivateHosts` of `Gateway.open`. */
  privateHosts: string[]
  /**
   * For each host with letters outside of ASCII, its Unicode form. Show both forms, because such a host can look like another one. Missing
   * if there are none.
   */
  unicodeHosts?: Record<string, string>
  /** The entries below which anyone can get a host name, for example `*.github.io`. Missing if there are none. */
  hostsOfStrangers?: string[]
  /** The digest of the agent and the hosts. */
  digest: string
  /** True if a person has approved all of these hosts for the agent. */
  approved: boolean
  /** The hosts that are approved for the agent now. A new approval replaces them. */
  approvedHosts: string[]
}

/** Rules for `fetch` in agent code, for all runs of the gateway. */
export interface GatewayFetch {
  /**
   * Hosts that may have private addresses and need no TLS, such as `http://127.0.0.1:8080` or `http://*.corp.example`, written as in the
   * hosts of a run. An approval request lists such hosts in `privateHosts`. Default: none.
   */
  allowPrivateHosts?: string[]
}
