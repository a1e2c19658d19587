/** Everything that a person must see before yes. At stage `command` nothing has been started. */
export type ApprovalRequest = CommandRequest | ManifestRequest

/** Stage 1: what would run. */
export interface CommandRequest {
  stage: 'command'
  server: string
  approved: boolean
  /** The digest that `approve(server, digest)` says yes to. */
  digest: string
  /** Why what was approved before no longer holds. */
  lapsed?: string
  command?: string
  /** Verbatim. */
  args?: string[]
  /** As the config writes it; where it does not, the workspace folder if a yes holds there alone, else `/`. */
  cwd?: string
  /** The folder in which alone a yes holds, where what the entry starts or reads is another thing in another folder. */
  workspaceFolder?: string
  /** The program that the command names now, and its content's SHA-256; missing where there is none. */
  executable?: { path: string; sha256: string }
  envFile?: string
  /**
   * Scheme, host (in ASCII) and port as they are connected to, with the values that variables have now; another host needs approval anew.
   * Placeholders elsewhere stand by their names, and literal text of the user part, the query and the fragment as `***`. Where a variable
   * of the host is not set or is itself a secret, it stands by its name as well.
   */
  url?: string
  /** The host of `url` in its own letters, where they are not ASCII. */
  unicodeHost?: string
  /** Placeholders that give the host, the port or the scheme of `url`, like `${HOST}`. Missing where there are none. */
  hostFrom?: string[]
  /**
   * `NAME=value`. What `loaders` names is in full, and what `redirectors` names without what stands before a host. Of URLs scheme, host, port
   * and path are shown, as in `url`; so are hosts, paths, numbers, booleans and words, unless the name is a secret's. All else is masked: at
   * most four characters are shown, never more than a quarter. `${VAR}` stays; its default is shown as such a value.
   */
  environment: string[]
  /** Names in `environment` of variables that can make a program load or run other code, like `NODE_OPTIONS`, `LD_PRELOAD` or `PATH`. */
  loaders: string[]
  /**
   * Names in `environment` of variables that can lead traffic to another machine or take away its protection, like `HTTPS_PROXY`,
   * `NODE_TLS_REJECT_UNAUTHORIZED` or `SSL_CERT_FILE`.
   */
  redirectors: string[]
  /** `id=default`: what stands in for the answer to an `${input:id}` of the entry that nobody gives. Shown as the variable it becomes. */
  inputDefaults?: string[]
  /** `Name=value`, masked unless the value is a URL. */
  headers: string[]
  /** Settings by which tokens are obtained for the server: `name=value`, the secret ones masked. Missing where the config says nothing of it. */
  oauth?: string[]
  confirm: 'never' | 'writes' | 'always'
  allowTools?: string[]
  denyTools: string[]
  /** URIs, exact or with `*` at their end. */
  allowResources?: string[]
  denyResources: string[]
  allowPrompts?: string[]
  denyPrompts: string[]
  /** `http://` to more than this machine. */
  allowInsecureHttp: boolean
  /** Folders that the server is told of when it asks for roots; it may take them for all that it may touch. */
  roots: string[]
  pinExecutable: boolean
  pinValues: boolean
  warning: string
}

/** Stage 2: what a model would read and call. */
export interface ManifestRequest {
  stage: 'manifest'
  server: string
  approved: boolean
  digest: string
  serverName: string
  serverVersion: string
  protocolVersion: string
  instructions?: string
  tools: ToolSummary[]
  /** Resources that may be read, and pass the config's filters. */
  resources: ResourceSummary[]
  /** All URIs that follow one of these may be read, where the filters let them through. */
  resourceTemplates: ResourceTemplateSummary[]
  prompts: PromptSummary[]
  /** Texts that look like an attempt to talk to the model rather than to describe a tool. */
  findings: Finding[]
  /** Names in filters (`allowTools`, `denyResources`, …) that the server does not have. */
  warnings: string[]
  /** Differences from the manifest that was approved before, if one was: raw names, and field by field in those that changed. */
  changes?: ManifestChanges
}

/** Differences from the manifest that was approved before: tools, and other kinds where they differ. */
export interface ManifestChanges extends Changes {
  resources?: Changes
  resourceTemplates?: Changes
  prompts?: Changes
  /**
   * Each names what it is of: a tool or prompt by its name, a resource by its URI, a template by its text, what the server says of itself
   * by the name that it gives itself. Both sides are whole; what cannot be seen in them is written as numbers (`\u{200b}`).
   */
  differences: {
    server?: string
    tool?: string
    resource?: string
    resourceTemplate?: string
    prompt?: string
    field: string
    before?: unknown
    after?: unknown
  }[]
}

/** A finding of the audit for prompt injection in a server's texts. A finding is a reason to look, not a verdict. */
export interface Finding {
  /** The rule's stable name. */
  rule: string
  severity: 'low' | 'medium' | 'high'
  reason: string
  /** The tool, resource (or template) or prompt that it is of; none: what the server says of itself. */
  tool?: string
  /** Its URI, or the template's text. */
  resource?: string
  prompt?: string
  /** `description`, for example, or `inputSchema.properties.path.description`. */
  field: string
  excerpt: string
}

/** A tool, as a person is shown it. */
export interface ToolSummary {
  /** The raw name. */
  name: string
  /** The name that agent code writes. */
  identifier: string
  /** The digest of this tool alone: it tells whether the tool has changed. */
  digest: string
  title?: string
  description?: string
  inputSchema: unknown
  outputSchema?: unknown
  annotations?: unknown
}

/** A resource, as a person is shown it. Its content is read when it is asked for. */
export interface ResourceSummary {
  uri: string
  /** The digest of this entry alone, not of the content. */
  digest: string
  name: string
  title?: string
  description?: string
  mimeType?: string
}

/** A template of resources, as a person is shown it. */
export interface ResourceTemplateSummary {
  uriTemplate: string
  digest: string
  /** True where its form is known here. Otherwise nothing can be read by it. */
  usable: boolean
  name: string
  title?: string
  description?: string
  mimeType?: string
}

/** A prompt, as a person is shown it. */
export interface PromptSummary {
  name: string
  digest: string
  title?: string
  description?: string
  arguments: PromptArgument[]
}

/** An argument that a prompt is filled in with. */
export interface PromptArgument {
  name: string
  title?: string
  description?: string
  required?: boolean
}
