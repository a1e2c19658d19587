// Tests that blobs, files, forms and streams follow their standards. Bodies of fetch consist of these classes. The cases follow those of
// the web platform tests (FileAPI, xhr/formdata, streams).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { defineFetchGlobals } from './fetch-globals.mjs'

const encode = (text) => new TextEncoder().encode(text)
const decode = (bytes) => new TextDecoder().decode(bytes)
const nothing = () => assert.fail('the host was called')
defineFetchGlobals({ open: nothing, read: nothing, cancel: nothing, abort: nothing })

const type = (name) => ({ name })
/** Converts objects of the platform's classes to a form for `assert.deepEqual`. */
const pairs = (iterable) => [...iterable].map(([name, value]) => [name, typeof value === 'string' ? value : `${value.name}:${value.size}`])

// ---- Blob, File (https://www.w3.org/TR/FileAPI/)

test('a blob is made of parts, and cut', async () => {
  const blob = new Blob(['ä', encode('b'), new Uint16Array([0x4443]).buffer, new Blob(['e']), { toString: () => 'f' }], { type: 'A/B' })
  assert.deepEqual([blob.size, blob.type, await blob.text()], [7, 'a/b', 'äbCDef'])
  const cut = (...range) => new Blob(['0123456789']).slice(...range).text()
  assert.deepEqual(await Promise.all([cut(), cut(2), cut(2, 5), cut(-3), cut(-3, -1), cut(5, 2), cut(NaN, Infinity)]), [
    '0123456789',
    '23456789',
    '234',
    '789',
    '78',
    '',
    '0123456789',
  ])
  assert.equal(new Blob([], { type: 'ä' }).type, '')
  assert.equal(await new Blob(['a\r\nb\rc\n'], { endings: 'native' }).text(), 'a\nb\nc\n')
  for (const parts of ['text', 1, {}, null]) assert.throws(() => new Blob(parts), type('TypeError'))
  assert.equal(decode((await blob.stream().getReader().read()).value), 'äbCDef')
})

test('a file is a blob with a name', () => {
  const file = new File(['a'], 'n\ud800', { type: 'a/b', lastModified: 5.7 })
  assert.deepEqual([file.name, file.lastModified, file.type, file.size, file instanceof Blob], ['n\ufffd', 5, 'a/b', 1, true])
  assert.throws(() => new File(['a']), type('TypeError'))
})

// ---- FormData (https://xhr.spec.whatwg.org/#interface-formdata)

test('a form keeps its entries in their order', () => {
  const form = new FormData()
  form.append('a', 1)
  form.append('b', new Blob(['xy']))
  form.append('a', new File(['z'], 'f.txt'), 'g.txt')
  assert.deepEqual(pairs(form), [
    ['a', '1'],
    ['b', 'blob:2'],
    ['a', 'g.txt:1'],
  ])
  form.set('a', 'new')
  assert.deepEqual(pairs(form), [
    ['a', 'new'],
    ['b', 'blob:2'],
  ])
  form.delete('b')
  assert.deepEqual([form.has('b'), form.get('b'), form.getAll('a')], [false, null, ['new']])
  assert.throws(() => form.append('a', 'text', 'name'), type('TypeError'))
  assert.throws(() => new FormData(null), type('TypeError'))
})

test('a form goes to the wire and back (https://html.spec.whatwg.org/#multipart-form-data)', async () => {
  const form = new FormData()
  form.append('a"\r\nb', 'line\nline\r')
  form.append('file', new File([Uint8Array.from({ length: 256 }, (_, index) => index)], 'ö"\n.bin', { type: 'a/b' }))
  form.append('', '')
  const response = new Response(form)
  const text = await response.clone().text()
  assert.match(text, /name="a%22%0D%0Ab"\r\n\r\nline\r\nline\r\n\r\n--/)
  assert.match(text, /filename="ö%22%0A.bin"\r\nContent-Type: a\/b\r\n/)
  const back = await response.formData()
  assert.deepEqual(pairs(back), [
    ['a"\r\nb', 'line\r\nline\r\n'],
    ['file', 'ö"\n.bin:256'],
    ['', ''],
  ])
  assert.deepEqual([...(await back.get('file').bytes())], [...Array(256).keys()])
  assert.equal(back.get('file').type, 'a/b')
})

test('forms of others are read, and broken ones refused', async () => {
  const parsed = async (body, contentType) => pairs(await new Response(body, { headers: { 'content-type': contentType } }).formData())
  const multipart = 'Multipart/Form-Data; charset=utf-8; boundary="x y"'
  const part = '--x y\r\ncontent-disposition: form-data; name="a"\r\n\r\n'
  assert.deepEqual(await parsed(`${part}1\r\n--x y--`, multipart), [['a', '1']])
  assert.deepEqual(await parsed('--x y--\r\n', multipart), [])
  assert.deepEqual(await parsed('?a=1&b=%C3%A4+c', 'application/x-www-form-urlencoded'), [
    ['?a', '1'],
    ['b', 'ä c'],
  ])
  for (const broken of ['', 'x', '--x y', `${part}1`, part, '--x y\r\na: b\r\n\r\n\r\n--x y--', '--x y\r\n\r\n\r\n--x y--'])
    await assert.rejects(parsed(broken, multipart), type('TypeError'), broken)
  await assert.rejects(parsed('', 'multipart/form-data'), type('TypeError'))
  await assert.rejects(parsed('', 'text/plain'), type('TypeError'))
})

// ---- ReadableStream (https://streams.spec.whatwg.org/#rs-class)

test('a stream asks its source for as much as it is read', async () => {
  const asked = []
  const stream = new ReadableStream({
    start: (controller) => asked.push(`start ${controller.desiredSize}`),
    pull(controller) {
      asked.push('pull')
      controller.enqueue(asked.length)
      if (asked.length === 4) controller.close()
    },
    cancel: (reason) => asked.push(reason),
  })
  const reader = stream.getReader()
  assert.equal(stream.locked, true)
  assert.deepEqual(await reader.read(), { value: 2, done: false })
  assert.deepEqual(await reader.read(), { value: 3, done: false })
  assert.deepEqual(await reader.read(), { value: 4, done: false })
  assert.deepEqual(await reader.read(), { value: undefined, done: true })
  await reader.closed
  assert.deepEqual(asked, ['start 1', 'pull', 'pull', 'pull'])
})

test('a stream is iterated, and cancelled when the loop is left', async () => {
  const reasons = []
  const source = () => new ReadableStream({ pull: (controller) => controller.enqueue('x'), cancel: () => reasons.push('cancelled') })
  const stream = source()
  for await (const chunk of stream) {
    assert.equal(chunk, 'x')
    break
  }
  assert.deepEqual([reasons, stream.locked], [['cancelled'], false])
  const kept = source()
  for await (const _ of kept.values({ preventCancel: true })) break
  assert.deepEqual([reasons.length, (await kept.getReader().read()).value], [1, 'x'])
})

test('tee gives both branches all, and cancels when both are cancelled', async () => {
  const reasons = []
  const [one, other] = new ReadableStream({
    start: (controller) => ['a', 'b'].forEach((chunk) => void controller.enqueue(chunk)),
    pull: (controller) => controller.close(),
    cancel: (reason) => void reasons.push(reason),
  }).tee()
  for (const branch of [one, other]) {
    const chunks = []
    for await (const chunk of branch) chunks.push(chunk)
    assert.deepEqual(chunks, ['a', 'b'])
  }
  const [left, right] = new ReadableStream({ cancel: (reason) => void reasons.push(reason) }).tee()
  await Promise.all([left.cancel(1), right.cancel(2)])
  assert.deepEqual(reasons, [[1, 2]])
})

test('misuse of a stream is an error', async () => {
  const stream = new ReadableStream()
  const reader = stream.getReader()
  for (const call of [() => stream.getReader(), () => stream.tee(), () => new ReadableStreamDefaultReader(stream)])
    assert.throws(call, type('TypeError'))
  await assert.rejects(stream.cancel(), type('TypeError'))
  const waiting = reader.read()
  reader.releaseLock()
  await assert.rejects(waiting, type('TypeError'))
  await assert.rejects(reader.read(), type('TypeError'))
  for (const make of [() => new ReadableStream({ type: 'bytes' }), () => new ReadableStream({ pull: 1 }), () => new ReadableStream(null)])
    assert.throws(make, type('TypeError'))
  for (const highWaterMark of [-1, 'x']) assert.throws(() => new ReadableStream({}, { highWaterMark }), type('RangeError'))
  assert.throws(() => stream.getReader({ mode: 'byob' }), type('TypeError'))
  const failed = new ReadableStream({ start: (controller) => controller.error(new RangeError('x')) })
  await assert.rejects(failed.getReader().closed, type('RangeError'))
})
