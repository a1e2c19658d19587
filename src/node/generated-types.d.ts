/** The tools of a generated server, with everything that their code can reach. The approval includes all of this. */
export interface GeneratedTools {
  tools: GeneratedTool[]
  /** Hosts that `fetch` can reach, for tools with `needsNetwork`. */
  hosts: string[]
  /** Hosts that may have private addresses or addresses of this machine. Default: none. */
  privateHosts?: string[]
  /** Secrets whose values are inserted into requests to one host. The code has only placeholders. Default: none. */
  secrets?: GeneratedSecret[]
}

/** One generated tool. */
export interface GeneratedTool {
  name: string
  description: string
  /** The JSON Schema of the arguments. */
  inputSchema: unknown
  /** Addresses that the plan names. They are only for the reader; the code may reach the hosts in `hosts`. */
  endpoints: string[]
  /** The plan's notes about the implementation. */
  notes: string
  /** True if the code gets `fetch`. */
  needsNetwork: boolean
  /** True if the tool only reads. In this case, its `fetch` is limited to GET and HEAD. */
  readOnly: boolean
  /**
   * The body of an async function with the parameter `args`. With `needsNetwork`, it also has the parameters `fetch` and `secrets`
   * (placeholders by name).
   */
  code: string
}

/** A secret that is inserted into requests to one host. */
export interface GeneratedSecret {
  /** The name of the variable of this process that contains the value. */
  name: string
  /** The only host to which the value is sent. */
  host: string
  /** True if the value may also be used in the bodies of requests, and not only in headers and in the URL. Default: false. */
  inBody?: boolean
}
