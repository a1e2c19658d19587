/** An object that provides servers. The author of the agent writes it. */
export interface Provider {
  /**
   * Returns definitions of servers. This function is called when the provider is registered, and at each `reload()`. It must answer within
   * 2 s, with at most 200 servers and 256 KiB of JSON.
   */
  servers(): ServerDefinition[] | Promise<ServerDefinition[]>
}

/**
 * The definition of a server by a provider. It has the keys below, and the keys of a server in the config (docs/CONFIG.md). `envFile` and
 * keys that only the operator may set (`confirm`) are not allowed. A `package`, a `command` or a `url` is required.
 */
export interface ServerDefinition {
  /**
   * The name of the server within the provider. The server is called `<provider>--<name>`. The name must match `^[a-z][a-z0-9-]*$`, without
   * `--`.
   */
  name: string
  /** The package that contains the server, with or without a version. */
  package?: string
  /** The program. It may be missing if there is a `package`. In this case, `npx` starts the package. */
  command?: string
  /** The arguments of the program. If they are missing and there is a `package`, they are `-y` and the package. */
  args?: string[]
  /**
   * The names of variables of this process that are passed to the server, at most 64. If one of them is not set, the server is `not-ready`.
   * Default: none.
   */
  envRequired?: string[]
  /** The capabilities of the server, for tasks and for the policy of the config. Default: none. */
  capabilities?: string[]
  /** Words for tasks: if the text of a task contains one of them, the server is attached. Default: none. */
  keywords?: string[]
  /** A sentence for people, which becomes `description` in `servers()`. No decision depends on it. */
  description?: string
  [key: string]: unknown
}

/** A provider and its present state. */
export interface ProviderStatus {
  /** The prefix of the names of the provider's servers, before `--`. */
  name: string
  /** The name of the provider's package. Missing for a registered provider. */
  package?: string
  /** The installed version. */
  version?: string
  /** The description in the package's `package.json`, on one line and without secrets. */
  description?: string
  /**
   * The origin of the provider. `config`: the config names the package. `discovered`: the package is installed and was found. `registered`: the
   * agent's author has registered the provider.
   */
  origin: 'config' | 'discovered' | 'registered'
  /**
   * The state of the provider. `unapproved`: no person has approved the package in its present form, and its code does not run. `ready`:
   * its servers exist. `failed`: the provider cannot be found, or its code returned no list of definitions. `denied`: the policy of the
   * config denies the provider, and nothing of it is used.
   */
  state: 'unapproved' | 'ready' | 'failed' | 'denied'
  /** The reason for a state other than `ready`. */
  problem?: string
  /** The names of the provider's servers. Servers with an error are `invalid` in `servers()`. */
  servers: string[]
  /** The servers that the policy of the config denies. They do not exist in the gateway. */
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
  /** The folder in which the package is installed, with all links resolved. */
  folder: string
  /** The file whose function `servers()` is called, relative to the folder. */
  file: string
  /** The number of files that the digest covers: all files of the folder. */
  files: number
  /** The size in bytes of the files that the digest covers. */
  bytes: number
  /** The digest of the name, the version and the content of all files. Pass it to `approveProvider`. */
  digest: string
  /** True if a person has approved exactly this digest. */
  approved: boolean
  /**
   * The version that a person approved before. Present if the present version is another one, or if the files of the version have changed.
   */
  approvedBefore?: string
}
