/** The hosts from which the code of one run may fetch. */
export interface FetchHosts {
  /**
   * Names or addresses of hosts, such as `api.github.com`, `*.example.org` (all subdomains), `example.org:8443`. Only `https:` is allowed,
   * unless the entry begins with `http://`. At most 64 entries. A person must have approved the hosts for the agent (`approveFetch`).
   */
  hosts: string[]
}

/** The argument of `Gateway.fetchApproval`. */
export interface FetchRequest {
  /** The agent's name. Default: the operator's own agent. */
  agent?: string
  /** The hosts. Default: the hosts in the agent's entry in the config. */
  hosts?: string[]
}

/** The argument of `Gateway.approveFetch`. */
export interface FetchConsent {
  /** The agent's name. Default: the operator's own agent. */
  agent?: string
  /** The hosts that were shown to the person. Default: the hosts in the agent's entry in the config. */
  hosts?: string[]
  /** The digest of the request that was shown to the person. */
  digest: string
}

/** The argument of `Gateway.revokeFetch`. */
export interface FetchAgent {
  /** The agent's name. Default: the operator's own agent. */
  agent?: string
}

/** The request that a person must see before code may fetch from these hosts. */
export interface FetchApproval {
  /** The agent's name. Missing for the operator's own agent. */
  agent?: string
  /** The hosts in their normal form, sorted. */
  hosts: string[]
  /** Those of the `hosts` that may have private addresses, because the option `fetch.allowPrivateHosts` of `Gateway.open` allows this. */
  privateHosts: string[]
  /**
   * The Unicode form of each host that has letters outside of ASCII. Show both forms, because such a host can look like another one.
   * Missing if there are no such hosts.
   */
  unicodeHosts?: Record<string, string>
  /** Those entries below which anyone can register a host name, for example `*.github.io`. Missing if there are none. */
  hostsOfStrangers?: string[]
  /** The digest of the agent and the hosts. */
  digest: string
  /** True if a person has approved all of these hosts for the agent. */
  approved: boolean
  /** The hosts that are approved for the agent now. A new approval replaces them. */
  approvedHosts: string[]
}

/** Settings for `fetch` in agent code. They apply to all runs of the gateway. */
export interface GatewayFetch {
  /**
   * Hosts that may have private addresses and need no TLS, such as `http://127.0.0.1:8080` or `http://*.corp.example`. They are written
   * like the hosts of a run. An approval request lists such hosts in `privateHosts`. Default: none.
   */
  allowPrivateHosts?: string[]
}
