// Tests that the classes of fetch follow their standards. The cases follow those of the web platform tests (fetch/api, xhr/formdata,
// FileAPI, streams); each test names the section of its standard. The guest has the same code; tests/globals/fetch.rs tests it there.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { defineFetchGlobals } from './fetch-globals.mjs'

const encode = (text) => new TextEncoder().encode(text)
const decode = (bytes) => new TextDecoder().decode(bytes)

/** The requests that the host got, and its next answers. */
const host = { asked: [], chunks: [], reply: {}, opening: undefined }
/** The warnings that the globals have written. */
const warned = []
const { warn } = console
console.warn = (text) => warned.push(text)
defineFetchGlobals({
  async open(request) {
    host.asked.push(request)
    await host.opening
    if (host.reply instanceof Error) throw host.reply
    return { body: 1, status: 200, statusText: 'OK', url: request.url, redirected: false, headers: [], ...host.reply }
  },
  async read(id) {
    host.asked.push(`read ${id}`)
    const chunk = host.chunks.shift()
    if (chunk instanceof Error) throw chunk
    return typeof chunk === 'string' ? encode(chunk) : (chunk ?? null)
  },
  cancel: (id) => host.asked.push(`cancel ${id}`),
  abort: (id) => host.asked.push(`abort ${id}`),
})
console.warn = warn

function answers(chunks, reply = {}, opening = undefined) {
  Object.assign(host, { asked: [], chunks: [...chunks], reply, opening })
}
const type = (name) => ({ name })

// ---- Headers (https://fetch.spec.whatwg.org/#headers-class)

test('headers are made from pairs, from an object and from headers', () => {
  const wanted = [
    ['a', '1'],
    ['b', '2'],
  ]
  for (const init of [
    { B: '2', a: 1 },
    [['b', 2], new Set(['A', '1'])],
    new Headers({ a: '1', b: '2' }),
    new Map([
      ['a', '1'],
      ['b', '2'],
    ]),
  ])
    assert.deepEqual([...new Headers(init)], wanted)
  assert.deepEqual([...new Headers()], [])
  for (const wrong of [null, 1, 'a', [['a']], [['a', 'b', 'c']], { a: 'ÿĀ' }, { 'a b': '1' }, { '': '1' }, { a: 'x\ny' }, [1]])
    assert.throws(() => new Headers(wrong), type('TypeError'), JSON.stringify(wrong))
})

test('a name has all its values, but Set-Cookie apart, and iteration is sorted', () => {
  const headers = new Headers([
    ['x', '1'],
    ['Set-Cookie', 'a=1'],
    ['X', ' 2\t'],
    ['set-cookie', 'b=2'],
    ['b', ''],
  ])
  assert.deepEqual(
    [...headers],
    [
      ['b', ''],
      ['set-cookie', 'a=1'],
      ['set-cookie', 'b=2'],
      ['x', '1, 2'],
    ],
  )
  assert.deepEqual(headers.getSetCookie(), ['a=1', 'b=2'])
  assert.deepEqual([headers.get('set-cookie'), headers.get('X'), headers.get('c'), headers.has('B')], ['a=1, b=2', '1, 2', null, true])
  headers.set('x', '3')
  headers.delete('SET-COOKIE')
  assert.deepEqual(
    [[...headers.keys()], [...headers.values()]],
    [
      ['b', 'x'],
      ['', '3'],
    ],
  )
  const seen = []
  headers.forEach(
    function (value, name, all) {
      seen.push([this.own, name, value, all === headers])
    },
    { own: 1 },
  )
  assert.deepEqual(seen, [
    [1, 'b', '', true],
    [1, 'x', '3', true],
  ])
})

test('an iterator goes on with what is added meanwhile, and is one of its class', () => {
  const headers = new Headers({ a: '1', c: '3' })
  const found = []
  for (const [name] of headers) {
    found.push(name)
    if (name === 'a') headers.append('b', '2')
  }
  assert.deepEqual(found, ['a', 'b', 'c'])
  assert.equal(Object.prototype.toString.call(headers.entries()), '[object Headers Iterator]')
  assert.throws(() => headers.entries().next.call({}), type('TypeError'))
  assert.throws(() => Headers.prototype.get.call({}, 'a'), type('TypeError'))
  for (const call of [() => headers.append('a'), () => headers.get(), () => headers.forEach(1), () => headers.set('a b', '1')])
    assert.throws(call, type('TypeError'))
})

test('the guard of a request drops what browsers drop, and that of a response cookies (#headers-guard)', () => {
  const request = new Request('https://a.example/', {
    headers: { Host: 'b', 'X-A': '1', Cookie: 'c', 'Sec-Fetch': '1', 'proxy-a': '2', via: '3' },
  })
  assert.deepEqual([...request.headers], [['x-a', '1']])
  request.headers.set('content-length', '7')
  request.headers.set('cookie', '7')
  assert.equal(warned.filter((text) => text === 'fetch: the header "cookie" is not sent: code cannot set it in a request').length, 1)
  request.headers.append('X-HTTP-Method-Override', 'TRACE')
  request.headers.append('X-HTTP-Method-Override', 'PATCH')
  assert.deepEqual([...request.headers.keys()], ['x-a', 'x-http-method-override'])
  const response = new Response(null, { headers: { 'Set-Cookie': 'a=1', b: '2' } })
  assert.deepEqual([...response.headers], [['b', '2']])
  for (const immutable of [Response.error().headers, Response.redirect('https://a.example/').headers])
    assert.throws(() => immutable.set('a', '1'), type('TypeError'))
  const simple = new Request('https://a.example/', {
    mode: 'no-cors',
    headers: { 'x-a': '1', accept: 'text/html', 'content-type': 'text/css' },
  })
  assert.deepEqual([...simple.headers], [['accept', 'text/html']])
})

// ---- Request (https://fetch.spec.whatwg.org/#request-class)

test('a request has the defaults of the standard', () => {
  const {
    method,
    url,
    mode,
    credentials,
    cache,
    redirect,
    referrer,
    referrerPolicy,
    integrity,
    keepalive,
    duplex,
    destination,
    body,
    bodyUsed,
  } = new Request('https://a.example/b c?d#e')
  assert.deepEqual([method, url, mode, credentials, cache], ['GET', 'https://a.example/b%20c?d#e', 'cors', 'same-origin', 'default'])
  assert.deepEqual([redirect, referrer, referrerPolicy, integrity, keepalive], ['follow', 'about:client', '', '', false])
  assert.deepEqual([duplex, destination, body, bodyUsed], ['half', '', null, false])
})

test('methods are normalised, and wrong ones refused', () => {
  const method = (method) => new Request('https://a.example/', { method }).method
  assert.deepEqual(['get', 'Post', 'pUt', 'patch', 'PATCH', 'chicken'].map(method), ['GET', 'POST', 'PUT', 'patch', 'PATCH', 'chicken'])
  for (const wrong of ['connect', 'TRACE', 'track', '', 'a b', 'ä']) assert.throws(() => method(wrong), type('TypeError'), wrong)
})

test('wrong inits of a request are TypeErrors', () => {
  for (const wrong of [
    { window: 'x' },
    { mode: 'navigate' },
    { mode: 'x' },
    { cache: 'only-if-cached' },
    { credentials: 'x' },
    { redirect: 'x' },
    { referrer: 'http://:x' },
    { referrerPolicy: 'x' },
    { signal: {} },
    { body: 'x' },
    { method: 'HEAD', body: '' },
    { method: 'POST', body: new ReadableStream() },
    { mode: 'no-cors', method: 'PUT' },
    1,
  ])
    assert.throws(() => new Request('https://a.example/', wrong), type('TypeError'), JSON.stringify(wrong))
  for (const url of ['/relative', 'https://user:pass@a.example/', 'https://:80', ''])
    assert.throws(() => new Request(url), type('TypeError'), url)
  assert.throws(() => new Request(), type('TypeError'))
})

test('a request made from another takes over its body', async () => {
  const first = new Request('https://a.example/', { method: 'POST', body: 'text', headers: { a: '1' } })
  const second = new Request(first, { headers: { b: '2' } })
  assert.deepEqual([first.bodyUsed, second.bodyUsed, second.method], [true, false, 'POST'])
  assert.deepEqual([...second.headers.keys()], ['b'])
  assert.equal(await second.text(), 'text')
  await assert.rejects(first.text(), type('TypeError'))
  assert.throws(() => new Request(first), type('TypeError'))
})

test('the content type follows the body, unless it is given (#concept-bodyinit-extract)', () => {
  const contentType = (body, headers) => new Request('https://a.example/', { method: 'POST', body, headers }).headers.get('content-type')
  assert.equal(contentType('a'), 'text/plain;charset=UTF-8')
  assert.equal(contentType(new URLSearchParams('a=b')), 'application/x-www-form-urlencoded;charset=UTF-8')
  assert.equal(contentType(new Blob(['a'], { type: 'Text/HTML' })), 'text/html')
  assert.deepEqual([contentType(new Blob(['a'])), contentType(encode('a')), contentType(new ArrayBuffer(1))], [null, null, null])
  assert.match(contentType(new FormData()), /^multipart\/form-data; boundary=-+[\w-]+$/)
  assert.equal(contentType({}, { 'Content-Type': 'a/b' }), 'a/b')
})

test('a clone has a body and headers of its own (#dom-request-clone)', async () => {
  const request = new Request('https://a.example/', { method: 'PUT', body: encode('bytes'), headers: { a: '1' } })
  const clone = request.clone()
  clone.headers.set('a', '2')
  assert.deepEqual([await request.text(), await clone.text(), request.headers.get('a')], ['bytes', 'bytes', '1'])
  assert.throws(() => request.clone(), type('TypeError'))
})

// ---- Response (https://fetch.spec.whatwg.org/#response-class)

test('a response has what it was made with, and its limits', async () => {
  const { type: kind, url, redirected, status, ok, statusText, body } = new Response()
  assert.deepEqual([kind, url, redirected, status, ok, statusText, body], ['default', '', false, 200, true, '', null])
  const made = new Response('text', { status: 404, statusText: 'None', headers: { a: 'b' } })
  assert.deepEqual(
    [made.status, made.ok, made.statusText, made.headers.get('content-type')],
    [404, false, 'None', 'text/plain;charset=UTF-8'],
  )
  for (const status of [0, 100, 199, 600, 1000]) assert.throws(() => new Response(null, { status }), type('RangeError'))
  for (const status of [204, 205, 304]) assert.throws(() => new Response('', { status }), type('TypeError'))
  for (const statusText of ['\n', 'Ā']) assert.throws(() => new Response(null, { statusText }), type('TypeError'))
})

test('Response.json, error and redirect', async () => {
  const json = Response.json({ a: [1] }, { status: 201, headers: { b: 'c' } })
  assert.deepEqual([json.status, json.headers.get('content-type'), await json.json()], [201, 'application/json', { a: [1] }])
  assert.equal(Response.json('x', { headers: { 'content-type': 'a/b' } }).headers.get('content-type'), 'a/b')
  for (const wrong of [undefined, Symbol('x')]) assert.throws(() => Response.json(wrong), type('TypeError'))
  const error = Response.error()
  assert.deepEqual([error.type, error.status, error.ok, error.body], ['error', 0, false, null])
  const moved = Response.redirect('https://a.example/ä', 301)
  assert.deepEqual([moved.status, moved.headers.get('location')], [301, 'https://a.example/%C3%A4'])
  assert.throws(() => Response.redirect('https://a.example/', 200), type('RangeError'))
  assert.throws(() => Response.redirect('nowhere'), type('TypeError'))
})

// ---- Body (https://fetch.spec.whatwg.org/#body-mixin)

test('each way to read a body, once', async () => {
  const response = () => new Response(encode('\ufeff{"a":1}'), { headers: { 'content-type': 'Application/JSON; charset="x y"' } })
  assert.equal(await response().text(), '{"a":1}')
  assert.deepEqual(await response().json(), { a: 1 })
  assert.equal((await response().bytes()).length, 10)
  assert.equal((await response().arrayBuffer()).byteLength, 10)
  const blob = await response().blob()
  assert.deepEqual([blob.size, blob.type], [10, 'application/json;charset="x y"'])
  const used = response()
  assert.equal(used.bodyUsed, false)
  const reading = used.text()
  assert.equal(used.bodyUsed, true)
  await reading
  for (const method of ['text', 'json', 'bytes', 'arrayBuffer', 'blob', 'formData']) await assert.rejects(used[method](), type('TypeError'))
  await assert.rejects(new Response('{').json(), type('SyntaxError'))
  await assert.rejects(Response.prototype.text.call({}), type('TypeError'))
  assert.deepEqual([await new Response().text(), (await new Response().bytes()).length], ['', 0])
})

test('a body with a reader cannot be read, cloned or used', async () => {
  const response = new Response('text')
  const reader = response.body.getReader()
  await assert.rejects(response.text(), type('TypeError'))
  assert.throws(() => response.clone(), type('TypeError'))
  assert.throws(() => new Response(response.body), type('TypeError'))
  reader.releaseLock()
  assert.equal(await response.text(), 'text')
})

test('a body of a stream takes bytes alone', async () => {
  const stream = (...chunks) => ReadableStream.from(chunks)
  assert.equal(await new Response(stream(encode('a'), encode('b'))).text(), 'ab')
  for (const chunk of ['a', 1, null, new ArrayBuffer(1)]) await assert.rejects(new Response(stream(chunk)).text(), type('TypeError'))
  const failing = new ReadableStream({ pull: () => Promise.reject(new RangeError('broken')) })
  await assert.rejects(new Response(failing).text(), type('RangeError'))
})

test('what is on Object.prototype changes no body', async () => {
  Object.defineProperty(Object.prototype, 'then', { configurable: true, value: (done) => done('changed') })
  Object.defineProperty(Object.prototype, 'start', { configurable: true, get: () => assert.fail('start was read') })
  let text
  try {
    text = await new Response('text').text()
  } finally {
    delete Object.prototype.then
    delete Object.prototype.start
  }
  assert.equal(text, 'text')
})

// ---- fetch (https://fetch.spec.whatwg.org/#fetch-method)

test('a fetch sends what its request says, and gives the response of the host', async () => {
  answers(['one', 'two'], {
    status: 201,
    statusText: 'Made',
    url: 'https://b.example/#x',
    redirected: true,
    headers: [
      ['X-A', '1'],
      ['x-a', '2'],
    ],
  })
  const response = await fetch(new URL('https://a.example/x'), {
    method: 'put',
    headers: { b: '1' },
    body: new Blob(['body']),
    redirect: 'manual',
  })
  const [{ body, ...sent }] = host.asked
  const headers = [
    ['b', '1'],
    ['accept', '*/*'],
    ['accept-language', '*'],
  ]
  assert.deepEqual({ ...sent, id: 0 }, { id: 0, method: 'PUT', url: 'https://a.example/x', headers, redirect: 'manual' })
  assert.equal(decode(body), 'body')
  const { status, statusText, url, redirected, type: kind, ok } = response
  assert.deepEqual([status, statusText, url, redirected, kind, ok], [201, 'Made', 'https://b.example/', true, 'basic', true])
  assert.deepEqual([...response.headers], [['x-a', '1, 2']])
  assert.throws(() => response.headers.set('a', '1'), type('TypeError'))
  assert.equal(await response.text(), 'onetwo')
  assert.deepEqual(host.asked.slice(1), ['read 1', 'read 1', 'read 1'])
})

test('nothing of a body is read before it is asked for, and cancelling tells the host', async () => {
  answers(['one', 'two'])
  const response = await fetch('https://a.example/')
  assert.equal(host.asked.length, 1)
  const reader = response.body.getReader()
  assert.equal(decode((await reader.read()).value), 'one')
  await reader.cancel()
  assert.deepEqual(host.asked.slice(1), ['read 1', 'cancel 1'])
})

test('a clone of a response shares one reading', async () => {
  answers(['one', 'two'])
  const response = await fetch('https://a.example/')
  const clone = response.clone()
  assert.deepEqual(await Promise.all([response.text(), clone.text()]), ['onetwo', 'onetwo'])
  assert.equal(host.asked.filter((asked) => asked === 'read 1').length, 3)
})

test('a response without a body has none: of HEAD, and by its status', async () => {
  answers([], { body: null })
  assert.equal((await fetch('https://a.example/')).body, null)
  answers(['x'], { status: 204 })
  assert.equal((await fetch('https://a.example/')).body, null)
  answers(['x'])
  const head = await fetch('https://a.example/', { method: 'HEAD' })
  assert.deepEqual([head.body, await head.text()], [null, ''])
})

test('failures of the host are TypeErrors with its code', async () => {
  answers([], Object.assign(new Error('Fetch blocked: x'), { code: 'ERR_FETCH_HOST_NOT_ALLOWED' }))
  await assert.rejects(fetch('https://a.example/'), (error) => {
    assert.deepEqual([error instanceof TypeError, error.message, error.code], [true, 'Fetch blocked: x', 'ERR_FETCH_HOST_NOT_ALLOWED'])
    return true
  })
  answers(['one', Object.assign(new Error('cut'), { code: 'ERR_FETCH_NETWORK' })])
  const response = await fetch('https://a.example/')
  await assert.rejects(response.text(), { name: 'TypeError', message: 'cut', code: 'ERR_FETCH_NETWORK' })
  answers([])
  for (const wrong of [[], ['nowhere'], ['https://a.example/', { body: 'x' }], ['https://a.example/', { integrity: 'sha256-x' }]])
    await assert.rejects(fetch(...wrong), type('TypeError'))
  assert.deepEqual(host.asked, [])
})

test('an abort before, meanwhile and after (#abort)', async () => {
  answers(['one'])
  await assert.rejects(fetch('https://a.example/', { signal: AbortSignal.abort() }), type('AbortError'))
  await assert.rejects(fetch('https://a.example/', { signal: AbortSignal.abort(7) }), (reason) => reason === 7)
  assert.deepEqual(host.asked, [])
  let opened
  answers(['one'], {}, new Promise((resolve) => (opened = resolve)))
  const controller = new AbortController()
  const waiting = fetch('https://a.example/', { signal: controller.signal })
  controller.abort()
  await assert.rejects(waiting, type('AbortError'))
  assert.match(host.asked[1], /^abort \d+$/)
  opened()
  answers(['one', 'two'])
  const later = new AbortController()
  const response = await fetch('https://a.example/', { signal: later.signal })
  const reader = response.body.getReader()
  await reader.read()
  later.abort()
  await assert.rejects(reader.read(), type('AbortError'))
  assert.deepEqual(host.asked.slice(1), ['read 1', 'cancel 1'])
})

test('data: URLs are read without the host (#data-url-processor)', async () => {
  answers([])
  const found = async (url) => {
    const response = await fetch(url)
    return [response.headers.get('content-type'), await response.text()]
  }
  assert.deepEqual(await found('data:,a%20b#c'), ['text/plain;charset=US-ASCII', 'a b'])
  assert.deepEqual(await found('data:text/html;base64,w6Q='), ['text/html', 'ä'])
  assert.deepEqual(await found('data:;charset=utf-8,x'), ['text/plain;charset=utf-8', 'x'])
  for (const wrong of ['data:x', 'data:;base64,*']) await assert.rejects(fetch(wrong), type('TypeError'))
  assert.deepEqual(host.asked, [])
})

test('the globals look like those of the engine', () => {
  for (const name of ['fetch', 'Request', 'Response', 'Headers', 'FormData', 'Blob', 'File', 'ReadableStream']) {
    const { writable, enumerable, configurable } = Object.getOwnPropertyDescriptor(globalThis, name)
    assert.deepEqual([writable, enumerable, configurable], [true, false, true], name)
  }
  const lengths = [fetch, Request, Response, Headers, FormData, Blob, File, ReadableStream].map(({ length }) => length)
  assert.deepEqual(lengths, [1, 1, 0, 0, 0, 0, 2, 0])
  assert.equal(Object.prototype.toString.call(new Response()), '[object Response]')
})
