/** Everything that a person must see before approving a server. At stage `command`, nothing has been started yet. */
export type ApprovalRequest = CommandRequest | ManifestRequest

/** Stage 1 of an approval: the command or URL that the gateway would start or connect to. */
export interface CommandRequest {
  stage: 'command'
  server: string
  approved: boolean
  /** The digest to pass to `approve(server, digest)`. */
  digest: string
  /**
   * The agent that has added the server (`by`, like `the agent "researcher"`), and its own name for the server, which a model can choose. Missing
   * for a server that no agent has added.
   */
  added?: { by: string; displayName: string }
  /** The reason why an earlier approval is no longer valid. Missing if there was none. */
  lapsed?: string
  command?: string
  /** The command's arguments, exactly as in the config. */
  args?: string[]
  /**
   * The working directory as the config writes it. If the config sets none, it is `/`, or the workspace folder if the approval is valid for
   * that folder only.
   */
  cwd?: string
  /** The only folder in which the approval is valid. Present if the entry starts or reads something that differs between folders. */
  workspaceFolder?: string
  /**
   * The program file that the command resolves to now, and the SHA-256 of its content. Missing if there is no such file. Also missing if
   * the path of the file contains `/proc`, because another process would find another file under that path.
   */
  executable?: { path: string; sha256: string }
  envFile?: string
  /**
   * The URL of the server. Scheme, host (in ASCII) and port are those of the connection, with the present values of variables; another host
   * needs a new approval. In all other parts of the URL, placeholders are shown by name. Literal text in the user part, the query and the
   * fragment is shown as `***`. A variable of the host that is not set, or is itself a secret, is shown by name.
   */
  url?: string
  /** The host of `url` in Unicode, if the host is not ASCII. */
  unicodeHost?: string
  /**
   * The Unicode form of each host of `generated` that has letters outside of ASCII. Show both forms, because such a host can look like
   * another one. Missing if there are no such hosts.
   */
  unicodeHosts?: Record<string, string>
  /** Placeholders that determine the host, the port or the scheme of `url`, like `${HOST}`. Missing if there are none. */
  hostFrom?: string[]
  /**
   * The environment variables as `NAME=value`. Variables in `loaders` are shown in full, except the user and password of a registry's URL.
   * Variables in `redirectors` are shown in full, except the user and password of a proxy. If programs disagree about the host of a value, each
   * host is shown. For other variables, these are shown: hosts, paths, numbers, booleans, plain words, and URLs as in `url`, unless the name is the
   * name of a secret. All other values are masked: at most four characters are shown, and at most a quarter of the value. `${VAR}` is shown as
   * written, and its default is masked like a value.
   */
  environment: string[]
  /** The names of variables in `environment` that can make a program load or run other code, like `NODE_OPTIONS`, `LD_PRELOAD` or `PATH`, or whose values are part of the code that `args` runs. */
  loaders: string[]
  /**
   * The names of variables in `environment` whose values are part of the code that `args` runs (`sh -c '$X'`), but may be secrets, so they are
   * not shown in full. Such variables with other values are in `loaders`. Missing if there are none.
   */
  hiddenInCode?: string[]
  /**
   * The names of variables in `environment` that can send traffic to another machine or weaken its protection, like `HTTPS_PROXY`,
   * `NODE_TLS_REJECT_UNAUTHORIZED` or `SSL_CERT_FILE`.
   */
  redirectors: string[]
  /**
   * The defaults of the entry's `${input:id}` placeholders as `id=default`. A default is used if nobody answers the question. It is masked
   * like the variables that it fills.
   */
  inputDefaults?: string[]
  /** The questions of the entry's `${input:id}` placeholders as `id=description`. The approval includes these questions. */
  inputDescriptions?: string[]
  /** The HTTP headers as `Name=value`. Values are masked, except URLs. */
  headers: string[]
  /**
   * The settings with which the gateway obtains OAuth tokens for the server, as `name=value`. Secret values are masked. Missing if the
   * config has no such settings.
   */
  oauth?: string[]
  /** The tools of a generated server, with their code. Invisible characters are written as escapes. Missing for any other server. */
  generated?: GeneratedTools
  /** Texts and code of `generated` that look like an attempt to influence a model. Missing if there are none. */
  findings?: Finding[]
  confirm: 'never' | 'writes' | 'always'
  /**
   * Patterns of names, such as `get_*`. A tool without annotations is treated as a read if one of the patterns matches its name. Missing if
   * the entry has no patterns.
   */
  reads?: string[]
  allowTools?: string[]
  denyTools: string[]
  /** Resource URIs, exact or with `*` at the end. */
  allowResources?: string[]
  denyResources: string[]
  allowPrompts?: string[]
  denyPrompts: string[]
  /** True if `http://` is allowed to hosts other than this machine. */
  allowInsecureHttp: boolean
  /** Folders that the gateway returns if the server asks for its roots. The server may assume that it can access all of these folders. */
  roots: string[]
  pinExecutable: boolean
  pinValues: boolean
  /**
   * The files that the server's process may read and write, and the hosts that it may reach. Missing if the entry has `"box": "off"`,
   * because the process then has the user's full rights.
   */
  box?: BoxRequest
  /**
   * Sentences about files that this server runs and that the boxes of other servers can change. They follow from the settings of these
   * boxes and from the files of this machine. Show each sentence. The digest includes the names of these other servers, but not the
   * sentences. Missing if there are no such files.
   */
  changeableBy?: string[]
  warning: string
}

/** The box of a server, as a person approves it. Show each sentence to the person. */
export interface BoxRequest {
  base: 'standard' | 'strict'
  /** Sentences about the files, hosts and resources that the process may use. Paths in these sentences are written as in the config. */
  allows: string[]
}

/** Stage 2 of an approval: the texts that a model would read, and the tools that the model could call. */
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
  /** Resources that may be read and that pass the config's filters. */
  resources: ResourceSummary[]
  /** Resource templates. All URIs that match one of them and pass the filters may be read. */
  resourceTemplates: ResourceTemplateSummary[]
  prompts: PromptSummary[]
  /** Texts that may try to instruct the model instead of describing a tool. */
  findings: Finding[]
  /** Names in the config's filters (`allowTools`, `denyResources`, …) that do not exist in the server. */
  warnings: string[]
  /**
   * Names of tools that sound like reads, but have no annotations that say what the tools do. A person is asked before each call of such a
   * tool, unless `reads` of the server's entry names it. Missing if there are no such tools.
   */
  soundingLikeReads?: string[]
  /** Differences from the manifest that was approved before, if there was one. */
  changes?: ManifestChanges
}

/**
 * Differences from the manifest that was approved before. `added`, `removed` and `changed` list tools. The fields for resources, templates
 * and prompts are present only if those differ.
 */
export interface ManifestChanges extends Changes {
  resources?: Changes
  resourceTemplates?: Changes
  prompts?: Changes
  /**
   * The differences, field by field. Each entry names its subject: a tool or prompt by name, a resource by URI, a resource template by its
   * URI template, and the server's own description by the name that the server gives itself. `before` and `after` are complete texts.
   * Invisible characters are written as escapes (`\u{200b}`).
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

/** A finding of the audit that searches a server's texts for prompt injection. A finding is a reason to look at the text, not a proof. */
export interface Finding {
  /** The stable name of the rule. */
  rule: string
  severity: 'low' | 'medium' | 'high'
  reason: string
  /** The tool to which the text belongs. If `tool`, `resource` and `prompt` are missing, the text is the server's own description. */
  tool?: string
  /** The URI of the resource, or the URI template. */
  resource?: string
  prompt?: string
  /** The field of the text, like `description` or `inputSchema.properties.path.description`. */
  field: string
  excerpt: string
  /** The number of other places with the same wording. */
  repeats?: number
  /** The first of the places that `repeats` counts. Each is given by the name of the item and the field. */
  also?: string[]
}

/** A tool, with the texts that a person sees before an approval. */
export interface ToolSummary {
  /** The tool's name as the server gives it. */
  name: string
  /** The identifier that agent code uses. */
  identifier: string
  /** The digest of this tool alone. It changes when the tool changes. */
  digest: string
  title?: string
  description?: string
  inputSchema: unknown
  outputSchema?: unknown
  annotations?: unknown
  /** True if the tool is treated as a read only because `reads` of the server's entry names it. Missing otherwise. */
  readsByConfig?: boolean
  /** The tool's `_meta`. An MCP host may act on it, for example show a view (MCP Apps). */
  meta?: unknown
  /**
   * The icons of the tool. An MCP host may fetch their URLs. A URL begins with `https:`, or with `data:` and then contains the image
   * itself.
   */
  icons?: unknown
}

/** Fields of a resource, a template or a prompt that only an MCP host uses: to show it, or to act on it. */
export interface HostFieldsSummary {
  /** The audience of the item (`audience`), and its importance (`priority`). */
  annotations?: unknown
  /** The size of a resource in bytes. */
  size?: number
  /** The icons of the item. A host may fetch their URLs. A URL begins with `https:`, or with `data:` and then contains the image itself. */
  icons?: unknown
  /** The item's `_meta`, for example the addresses to which a view may connect (MCP Apps). */
  meta?: unknown
}

/** A resource, with the texts that a person sees before an approval. The content is only read on request. */
export interface ResourceSummary extends HostFieldsSummary {
  uri: string
  /** The digest of this entry alone, without the content. */
  digest: string
  name: string
  title?: string
  description?: string
  mimeType?: string
}

/** A resource template, with the texts that a person sees before an approval. */
export interface ResourceTemplateSummary extends HostFieldsSummary {
  uriTemplate: string
  digest: string
  /** True if the gateway supports templates of this form. If it is false, no resource can be read with the template. */
  usable: boolean
  name: string
  title?: string
  description?: string
  mimeType?: string
}

/** A prompt, with the texts that a person sees before an approval. */
export interface PromptSummary extends HostFieldsSummary {
  name: string
  digest: string
  title?: string
  description?: string
  arguments: PromptArgument[]
}

/** An argument of a prompt. */
export interface PromptArgument {
  name: string
  title?: string
  description?: string
  required?: boolean
}
