/** Brings servers: an object of the agent's author. */
export interface Provider {
  /**
   * Returns definitions of servers. It is called when the provider is registered, and at each `reload()`. It has 2 s, and its answer at most 200
   * servers and 256 KiB as JSON.
   */
  servers(): ServerDefinition[] | Promise<ServerDefinition[]>
}

/**
 * The definition of a server by a provider: the keys of a server in the config (docs/CONFIG.md) without those that only the operator may set (`confirm`)
 * and without `envFile`, and the keys below. It needs a `package`, a `command` or a `url`.
 */
export interface ServerDefinition {
  /** The server is called `<provider>--<name>`. It must match `^[a-z][a-z0-9-]*$`, without `--`. */
  name: string
  /** The package that the server is, with or without a version. */
  package?: string
  /** The program. It may be left out with a `package`, which `npx` then starts. */
  command?: string
  /** The program's arguments. With a `package`, `-y` and the package if they are left out. */
  args?: string[]
  /** The variables of this process that reach the server, at most 64. While one is not set, the server is `not-ready`. Default: none. */
  envRequired?: string[]
  /** What the server can do, for tasks and for the policy of the config. Default: nothing. */
  capabilities?: string[]
  /** Words in the text of a task that ask for the server. Default: none. */
  keywords?: string[]
  /** A sentence for people: `description` of `servers()`. It decides nothing. */
  description?: string
  [key: string]: unknown
}

/** A provider and its present state. */
export interface ProviderStatus {
  /** The beginning of the names of its servers, before `--`. */
  name: string
  /** The name of its package. Absent for a registered provider. */
  package?: string
  /** The version that is installed. */
  version?: string
  /** The package's words about itself, from its `package.json`, in one line and without secrets. */
  description?: string
  /** The config names the package, it is installed and was found, or the agent's author has registered the provider. */
  origin: 'config' | 'discovered' | 'registered'
  /**
   * `unapproved`: no person has approved the package as it is now, and its code does not run. `ready`: its servers exist. `failed`: it cannot be found,
   * or its code gave no list of definitions. `denied`: the policy of the config is against it, and nothing of it is used.
   */
  state: 'unapproved' | 'ready' | 'failed' | 'denied'
  /** The reason for a state other than `ready`. */
  problem?: string
  /** The names of its servers. Those with an error are `invalid` in `servers()`. */
  servers: string[]
  /** Servers that the policy of the config denies. They do not exist. */
  refused: RefusedServer[]
}

/** A server that the policy of the config denies. */
export interface RefusedServer {
  name: string
  reason: string
}

/** Everything that a person must see before the code of a package may run. */
export interface ProviderRequest {
  name: string
  package: string
  version: string
  /** The folder in which the package is installed, without links. */
  folder: string
  /** The file whose `servers()` is called, relative to the folder. */
  file: string
  /** The number of files that the digest covers: all files of the folder. */
  files: number
  /** Their size in bytes. */
  bytes: number
  /** Identifies the name, the version and the content of all files. Pass it to `approveProvider`. */
  digest: string
  /** True if a person has approved exactly this. */
  approved: boolean
  /** The version that a person approved before, if it is another one, or its files have changed. */
  approvedBefore?: string
}
