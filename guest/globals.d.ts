// The globals of agent code in the guest, in addition to ES2023. For editors and for tsc:
//
//   { "compilerOptions": { "lib": ["es2023"], "types": [], "strict": true }, "files": ["node_modules/hyperlight-mcp/guest/globals.d.ts", "handler.ts"] }
//
// They cannot be used together with the libraries "dom" or "webworker", or with Node's types, because these declare the same names.
// docs/GLOBALS.md describes the supported globals, the missing ones, and what to use instead.

// ---- console ----------------------------------------------------------------------------------------------------------

/** Each call writes one entry to the run's log, with the level of the method. The object is frozen. */
interface Console {
  log(...values: unknown[]): void
  info(...values: unknown[]): void
  warn(...values: unknown[]): void
  error(...values: unknown[]): void
  debug(...values: unknown[]): void
  /** Writes an entry at level `debug`, without a stack. */
  trace(...values: unknown[]): void
  assert(condition?: unknown, ...values: unknown[]): void
  /** Writes a table of at most 100 rows. `columns` are the columns to show. */
  table(data: unknown, columns?: readonly string[]): void
  dir(value: unknown, options?: unknown): void
  dirxml(...values: unknown[]): void
  group(...labels: unknown[]): void
  groupCollapsed(...labels: unknown[]): void
  groupEnd(): void
  count(label?: string): void
  countReset(label?: string): void
  time(label?: string): void
  timeLog(label?: string, ...values: unknown[]): void
  timeEnd(label?: string): void
  /** Does nothing, because the log is kept. */
  clear(): void
}
declare const console: Readonly<Console>
/** The same function as `console.log`. */
declare const print: Console['log']

/** Returns the exports of a module: `require("host:mcp")`. Throws if there is no such module. */
declare function require(specifier: string): any

// ---- text, bytes ------------------------------------------------------------------------------------------------------

type BufferSource = ArrayBufferView | ArrayBufferLike

interface TextEncoder {
  readonly encoding: 'utf-8'
  encode(input?: string): Uint8Array<ArrayBuffer>
  /** Writes as many characters as fit. Returns the number of UTF-16 units that were read, and the number of bytes that were written. */
  encodeInto(source: string, destination: Uint8Array): { read: number; written: number }
}
declare var TextEncoder: { prototype: TextEncoder; new (): TextEncoder }

interface TextDecoder {
  /** The name of the encoding in lower case: `windows-1252` for the label `latin1`. */
  readonly encoding: string
  readonly fatal: boolean
  readonly ignoreBOM: boolean
  /** With `fatal`, throws a TypeError for bytes that are not valid. `stream` means that more bytes follow. */
  decode(input?: BufferSource, options?: { stream?: boolean }): string
}
/** Supports all labels of the Encoding Standard. Throws a RangeError for any other label. */
declare var TextDecoder: { prototype: TextDecoder; new (label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean }): TextDecoder }

/** Encodes a text, each of whose characters is a byte, as base64. Throws a DOMException `InvalidCharacterError` for a character above 255. */
declare function btoa(data: string): string
/** Decodes base64. Ignores white space and missing padding. Throws a DOMException `InvalidCharacterError` for text that is not base64. */
declare function atob(data: string): string

interface Base64Options {
  alphabet?: 'base64' | 'base64url'
}
interface Base64DecodingOptions extends Base64Options {
  lastChunkHandling?: 'loose' | 'strict' | 'stop-before-partial'
}
interface Uint8ArrayConstructor {
  /** Throws a SyntaxError for text that is not base64. */
  fromBase64(text: string, options?: Base64DecodingOptions): Uint8Array<ArrayBuffer>
  /** Throws a SyntaxError for text that is not hexadecimal. */
  fromHex(text: string): Uint8Array<ArrayBuffer>
}
interface Uint8Array<TArrayBuffer extends ArrayBufferLike> {
  toBase64(options?: Base64Options & { omitPadding?: boolean }): string
  toHex(): string
  setFromBase64(text: string, options?: Base64DecodingOptions): { read: number; written: number }
  setFromHex(text: string): { read: number; written: number }
}

// ---- URLs -------------------------------------------------------------------------------------------------------------

interface URLSearchParams extends Iterable<[string, string]> {
  readonly size: number
  append(name: string, value: string): void
  delete(name: string, value?: string): void
  get(name: string): string | null
  getAll(name: string): string[]
  has(name: string, value?: string): boolean
  set(name: string, value: string): void
  sort(): void
  toString(): string
  forEach(callback: (value: string, name: string, params: URLSearchParams) => void, self?: unknown): void
  entries(): IterableIterator<[string, string]>
  keys(): IterableIterator<string>
  values(): IterableIterator<string>
  [Symbol.iterator](): IterableIterator<[string, string]>
}
declare var URLSearchParams: {
  prototype: URLSearchParams
  new (init?: string | Iterable<readonly [string, string]> | readonly string[][] | Record<string, string> | URLSearchParams): URLSearchParams
}

interface URL {
  href: string
  readonly origin: string
  protocol: string
  username: string
  password: string
  host: string
  hostname: string
  port: string
  pathname: string
  search: string
  hash: string
  readonly searchParams: URLSearchParams
  toString(): string
  toJSON(): string
}
/** Throws a TypeError with `code: "ERR_INVALID_URL"` for text that is not a URL. */
declare var URL: {
  prototype: URL
  new (url: string | URL, base?: string | URL): URL
  canParse(url: string | URL, base?: string | URL): boolean
  /** Returns null for text that is not a URL. */
  parse(url: string | URL, base?: string | URL): URL | null
}

// ---- values, entropy, time --------------------------------------------------------------------------------------------

/** Returns a deep copy. Supports cycles. Throws a DOMException `DataCloneError` for functions, symbols and platform objects. */
declare function structuredClone<T = unknown>(value: T, options?: { transfer?: readonly ArrayBuffer[] }): T
declare function queueMicrotask(callback: () => void): void

interface Crypto {
  /**
   * Fills an array of integers with random values. The array may have at most 65,536 bytes; otherwise, a DOMException `QuotaExceededError` is
   * thrown.
   */
  getRandomValues<T extends ArrayBufferView>(array: T): T
  randomUUID(): `${string}-${string}-${string}-${string}-${string}`
}
/** Random values from the host, which differ in every run. There is no `subtle`. */
declare var crypto: Crypto

interface Performance {
  /** Returns the milliseconds since the start of the run. This clock never goes backward. */
  now(): number
  /** The time at which the run started, in milliseconds since 1970. */
  readonly timeOrigin: number
  toJSON(): { timeOrigin: number }
}
declare var performance: Performance

/** A timer like those of Node. Timers that remain when the handler has settled are dropped, even after `ref()`. */
interface Timeout {
  ref(): this
  unref(): this
  hasRef(): boolean
  refresh(): this
  [Symbol.toPrimitive](): number
}
declare function setTimeout<A extends unknown[]>(callback: (...given: A) => void, milliseconds?: number, ...given: A): Timeout
declare function setInterval<A extends unknown[]>(callback: (...given: A) => void, milliseconds?: number, ...given: A): Timeout
declare function setImmediate<A extends unknown[]>(callback: (...given: A) => void, ...given: A): Timeout
declare function clearTimeout(timer?: Timeout | number | null): void
declare function clearInterval(timer?: Timeout | number | null): void
declare function clearImmediate(timer?: Timeout | number | null): void

// ---- events, being aborted --------------------------------------------------------------------------------------------

interface DOMException extends Error {
  readonly code: number
}
declare var DOMException: { prototype: DOMException; new (message?: string, name?: string): DOMException }

interface Event {
  readonly type: string
  readonly target: EventTarget | null
  readonly currentTarget: EventTarget | null
  readonly cancelable: boolean
  readonly bubbles: false
  readonly defaultPrevented: boolean
  readonly timeStamp: number
  preventDefault(): void
  stopPropagation(): void
  stopImmediatePropagation(): void
}
declare var Event: { prototype: Event; new (type: string, options?: { cancelable?: boolean }): Event }

interface CustomEvent<T = unknown> extends Event {
  readonly detail: T
}
declare var CustomEvent: { prototype: CustomEvent; new <T = unknown>(type: string, options?: { cancelable?: boolean; detail?: T }): CustomEvent<T> }

type EventListener = ((event: any) => void) | { handleEvent(event: any): void }
/** There is no DOM tree, so events are neither bubbled nor captured. An error that a listener throws ends the run. */
interface EventTarget {
  addEventListener(type: string, listener: EventListener | null, options?: boolean | { once?: boolean; signal?: AbortSignal }): void
  removeEventListener(type: string, listener: EventListener | null, options?: unknown): void
  dispatchEvent(event: Event): boolean
}
declare var EventTarget: { prototype: EventTarget; new (): EventTarget }

interface AbortSignal extends EventTarget {
  readonly aborted: boolean
  readonly reason: any
  onabort: ((event: Event) => void) | null
  throwIfAborted(): void
}
declare var AbortSignal: {
  prototype: AbortSignal
  abort(reason?: unknown): AbortSignal
  timeout(milliseconds: number): AbortSignal
  any(signals: Iterable<AbortSignal>): AbortSignal
}

interface AbortController {
  readonly signal: AbortSignal
  abort(reason?: unknown): void
}
declare var AbortController: { prototype: AbortController; new (): AbortController }
