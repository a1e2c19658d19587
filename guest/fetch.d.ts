// What agent code finds in the guest in runs that may fetch (docs/FETCH.md), beside globals.d.ts. Add it to "files" after globals.d.ts.

/// <reference path="./globals.d.ts" />

// ---- files and forms --------------------------------------------------------------------------------------------------

type BlobPart = BufferSource | Blob | string

interface Blob {
  readonly size: number
  readonly type: string
  slice(start?: number, end?: number, contentType?: string): Blob
  stream(): ReadableStream<Uint8Array<ArrayBuffer>>
  text(): Promise<string>
  bytes(): Promise<Uint8Array<ArrayBuffer>>
  arrayBuffer(): Promise<ArrayBuffer>
}
declare var Blob: { prototype: Blob; new (parts?: Iterable<BlobPart>, options?: { type?: string; endings?: 'transparent' | 'native' }): Blob }

interface File extends Blob {
  readonly name: string
  readonly lastModified: number
}
declare var File: {
  prototype: File
  new (parts: Iterable<BlobPart>, name: string, options?: { type?: string; endings?: 'transparent' | 'native'; lastModified?: number }): File
}

type FormDataValue = File | string

interface FormData extends Iterable<[string, FormDataValue]> {
  append(name: string, value: string | Blob, filename?: string): void
  delete(name: string): void
  get(name: string): FormDataValue | null
  getAll(name: string): FormDataValue[]
  has(name: string): boolean
  set(name: string, value: string | Blob, filename?: string): void
  forEach(callback: (value: FormDataValue, name: string, form: FormData) => void, self?: unknown): void
  entries(): IterableIterator<[string, FormDataValue]>
  keys(): IterableIterator<string>
  values(): IterableIterator<FormDataValue>
  [Symbol.iterator](): IterableIterator<[string, FormDataValue]>
}
declare var FormData: { prototype: FormData; new (): FormData }

// ---- streams ----------------------------------------------------------------------------------------------------------

interface ReadableStreamDefaultController<T = any> {
  readonly desiredSize: number | null
  close(): void
  enqueue(chunk?: T): void
  error(reason?: unknown): void
}
declare var ReadableStreamDefaultController: { prototype: ReadableStreamDefaultController }

type ReadableStreamReadResult<T> = { done: false; value: T } | { done: true; value: undefined }

interface ReadableStreamDefaultReader<T = any> {
  readonly closed: Promise<undefined>
  cancel(reason?: unknown): Promise<void>
  read(): Promise<ReadableStreamReadResult<T>>
  releaseLock(): void
}
declare var ReadableStreamDefaultReader: {
  prototype: ReadableStreamDefaultReader
  new <T = any>(stream: ReadableStream<T>): ReadableStreamDefaultReader<T>
}

interface UnderlyingSource<T> {
  start?(controller: ReadableStreamDefaultController<T>): unknown
  pull?(controller: ReadableStreamDefaultController<T>): unknown
  cancel?(reason?: unknown): unknown
}

/** A default stream. There are no byte streams, no `pipeTo` and no `pipeThrough`. */
interface ReadableStream<T = any> extends AsyncIterable<T> {
  readonly locked: boolean
  cancel(reason?: unknown): Promise<void>
  getReader(): ReadableStreamDefaultReader<T>
  tee(): [ReadableStream<T>, ReadableStream<T>]
  values(options?: { preventCancel?: boolean }): AsyncIterableIterator<T>
  [Symbol.asyncIterator](options?: { preventCancel?: boolean }): AsyncIterableIterator<T>
}
declare var ReadableStream: {
  prototype: ReadableStream
  new <T = any>(source?: UnderlyingSource<T>, strategy?: { highWaterMark?: number; size?(chunk: T): number }): ReadableStream<T>
  from<T>(iterable: Iterable<T> | AsyncIterable<T>): ReadableStream<T>
}

// ---- fetch ------------------------------------------------------------------------------------------------------------

type HeadersInit = Iterable<readonly [string, string]> | Record<string, string> | Headers

interface Headers extends Iterable<[string, string]> {
  append(name: string, value: string): void
  delete(name: string): void
  get(name: string): string | null
  getSetCookie(): string[]
  has(name: string): boolean
  set(name: string, value: string): void
  forEach(callback: (value: string, name: string, headers: Headers) => void, self?: unknown): void
  entries(): IterableIterator<[string, string]>
  keys(): IterableIterator<string>
  values(): IterableIterator<string>
  [Symbol.iterator](): IterableIterator<[string, string]>
}
declare var Headers: { prototype: Headers; new (init?: HeadersInit): Headers }

type BodyInit = ReadableStream<Uint8Array> | Blob | BufferSource | FormData | URLSearchParams | string

interface Body {
  readonly body: ReadableStream<Uint8Array<ArrayBuffer>> | null
  readonly bodyUsed: boolean
  arrayBuffer(): Promise<ArrayBuffer>
  blob(): Promise<Blob>
  bytes(): Promise<Uint8Array<ArrayBuffer>>
  formData(): Promise<FormData>
  json(): Promise<any>
  text(): Promise<string>
}

interface RequestInit {
  method?: string
  headers?: HeadersInit
  body?: BodyInit | null
  /** Needed if the body is a stream. The stream is read to its end before the request is sent. */
  duplex?: 'half'
  redirect?: 'follow' | 'error' | 'manual'
  signal?: AbortSignal | null
  cache?: 'default' | 'no-store' | 'reload' | 'no-cache' | 'force-cache' | 'only-if-cached'
  credentials?: 'omit' | 'same-origin' | 'include'
  mode?: 'same-origin' | 'no-cors' | 'cors'
  keepalive?: boolean
  referrer?: string
  referrerPolicy?: string
  priority?: 'high' | 'low' | 'auto'
  /** Not supported: a fetch with it fails. */
  integrity?: string
  window?: null
}

interface Request extends Body {
  readonly method: string
  readonly url: string
  readonly headers: Headers
  readonly redirect: 'follow' | 'error' | 'manual'
  readonly signal: AbortSignal
  readonly cache: string
  readonly credentials: string
  readonly destination: ''
  readonly duplex: 'half'
  readonly integrity: string
  readonly keepalive: boolean
  readonly mode: string
  readonly referrer: string
  readonly referrerPolicy: string
  clone(): Request
}
declare var Request: { prototype: Request; new (input: string | URL | Request, init?: RequestInit): Request }

interface ResponseInit {
  status?: number
  statusText?: string
  headers?: HeadersInit
}

interface Response extends Body {
  readonly headers: Headers
  readonly ok: boolean
  readonly redirected: boolean
  readonly status: number
  readonly statusText: string
  readonly type: 'basic' | 'default' | 'error'
  readonly url: string
  clone(): Response
}
declare var Response: {
  prototype: Response
  new (body?: BodyInit | null, init?: ResponseInit): Response
  error(): Response
  json(data: unknown, init?: ResponseInit): Response
  redirect(url: string | URL, status?: 301 | 302 | 303 | 307 | 308): Response
}

/**
 * Sends a request to one of the hosts that the run may fetch from. For any other host, and if the request fails, the promise is rejected with
 * a TypeError that has a `code`.
 */
declare function fetch(input: string | URL | Request, init?: RequestInit): Promise<Response>
