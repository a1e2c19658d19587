/** The tools of a generated server, with everything that their code may reach. All of it is part of the approval. */
export interface GeneratedTools {
  tools: GeneratedTool[]
  /** Hosts that `fetch` may reach, for tools with `needsNetwork`. */
  hosts: string[]
  /** Hosts whose addresses may be private, or of this machine. Default: none. */
  privateHosts?: string[]
  /** Values that are inserted into requests to one host. The code has only placeholders. Default: none. */
  secrets?: GeneratedSecret[]
}

/** One generated tool. */
export interface GeneratedTool {
  name: string
  description: string
  /** The JSON Schema of the arguments. */
  inputSchema: unknown
  /** Addresses that the plan names. They are for the reader: `hosts` decides. */
  endpoints: string[]
  /** The plan's notes about the implementation. */
  notes: string
  /** True if the code gets `fetch`. */
  needsNetwork: boolean
  /** True if the tool only reads. Its `fetch` is then limited to GET and HEAD. */
  readOnly: boolean
  /** The body of an async function with the parameter `args`, and with `fetch` and `secrets` (placeholders by name) with `needsNetwork`. */
  code: string
}

/** A secret that is inserted into requests to one host. */
export interface GeneratedSecret {
  /** The name of the variable of this process that has the value. */
  name: string
  /** The only host that gets the value. */
  host: string
  /** True if the value may also be used in the bodies of requests, and not only in headers and in the URL. Default: false. */
  inBody?: boolean
}
