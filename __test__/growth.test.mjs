// Tests that the time for a text that a guest or a server chooses grows only with its length. Nothing interrupts JavaScript on Node's main
// thread, not even the deadline of a run.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { root } from './support.mjs'

const source = (path) => readFileSync(join(root, path), 'utf8')
const folder = (path) =>
  readdirSync(join(root, path), { recursive: true })
    .filter((name) => /\.m?js$/.test(name))
    .map((name) => join(path, name))
const files = [...['guest/runtime/src', 'src', 'bin'].flatMap(folder), ...['index.js', 'index.mjs', 'adapters.js', 'adapters.mjs']]

// biome-ignore lint/security/noGlobalEval: the file is one expression, which Node's glue and the guest evaluate as well
const { encode, decode } = eval(source('guest/runtime/src/codec.js'))

/** Returns the processor time of this process. The time of other processes on a busy machine is not counted. */
function milliseconds(work) {
  const before = process.cpuUsage()
  work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

/** Returns the smallest of some times, because other work of this process can only make a time longer. */
const least = (work) => Math.min(...[1, 2, 3].map(() => milliseconds(work)))

/**
 * Doubles the input until the work takes some time, and compares this time with the time for four times the input. Quadratic work then
 * takes sixteen times as long, and linear work four times. The limit is between the two, because a busy machine's processor is sometimes
 * faster and sometimes slower.
 */
function assertGrowsWithItsInput(work, label) {
  const [enough, most] = [40, 1 << 17]
  for (let size = 1 << 12; size <= most; size *= 2) {
    const time = milliseconds(() => work(size))
    if (time < enough) continue
    const [once, fourfold] = [least(() => work(size)), least(() => work(4 * size))]
    // Memory is allocated and released in steps, so work that seems to grow is measured again.
    if (fourfold < 8 * once || least(() => work(4 * size)) < 8 * least(() => work(size))) return
    assert.fail(`${label}: ${size} characters took ${once} ms, four times as many ${fourfold} ms`)
  }
}

/** Returns the regular expressions that a file writes as literals. */
function expressions(path) {
  const literal =
    /(?<=[(=,:?!&|[{;]\s*|return )\/((?:[^/\\[\n*]|\\.|\[(?:[^\]\\\n]|\\.)*\])(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])*)\/([dgimsuvy]*)/g
  const code = source(path)
    .split('\n')
    .filter((line) => !/^\s*(?:\/\/|\*|\/\*)/.test(line))
    .join('\n')
  return [...code.matchAll(literal)].map(([, body, flags]) => ({ path, body, flags }))
}

describe('a regular expression', () => {
  const all = files.flatMap(expressions)

  test('is found where there is one', () => {
    const found = all.map(({ body }) => body)
    for (const known of ['^class\\b', '%([sdifjoOc%])', 'agent:code:(\\d+)(?::(\\d+))?', '[\\u0080-\\uffff]'])
      assert(found.includes(known), `${known} is not among ${found.join('  ')}`)
    assert(
      all.every(({ path }) => !path.startsWith('src/node')),
      'Node runs none on its main thread',
    )
  })

  test('that begins anew at each character of a text is told from others', () => {
    // The codec had this pattern: a lookbehind that reads all backslashes before a position.
    const behind = /(?<=(?:^|[^\\])(?:\\\\)*)\\u[dD][89a-fA-F][\da-fA-F]{2}/g
    assert.throws(() => assertGrowsWithItsInput((size) => `${'\\'.repeat(size)}ud`.replace(behind, ''), 'behind'), /took/)
  })

  test('takes time as its text is long', () => {
    for (const { path, body, flags } of all) {
      // The characters in the pattern itself cause the most work.
      const own = body.match(/[A-Za-z0-9%:.,"{}$_-]/g) ?? []
      const parts = new Set([
        ...own,
        '\\',
        'a',
        'A',
        '0',
        ' ',
        '\n',
        '"',
        '{',
        '%',
        '-',
        'é',
        '\ud800',
        own.join(''),
        body.replace(/\\./g, '0'),
      ])
      parts.delete('')
      for (const part of parts)
        for (const end of ['', '!', '\0']) {
          const text = (size) => part.repeat(Math.ceil(size / part.length)).slice(0, size) + end
          assertGrowsWithItsInput((size) => text(size).replace(new RegExp(body, flags), ''), `/${body}/${flags} of ${path}, '${part}'`)
        }
    }
  })
})

describe('the codec', () => {
  const parts = ['\\', '\\\\ud', '\\ud800', '\ud800', '\udc00', 'ud', '"', '\n', '$bytes', '{"$bytes":0}', 'é', '😀']

  test('takes time as a value is long', () => {
    const shapes = { text: (text) => text, key: (text) => ({ [text]: 1 }), list: (text) => [text, new Uint8Array(1), { $bytes: text }] }
    for (const part of parts)
      for (const [shape, value] of Object.entries(shapes))
        for (const end of ['', 'ud', '\ud800']) {
          const of = (size) => value(part.repeat(Math.ceil(size / part.length)) + end)
          assertGrowsWithItsInput((size) => decode(...encode(of(size))), `${shape} of '${part}'`)
        }
  })

  test('replaces half characters and nothing else, whatever stands before them', () => {
    const pieces = ['\\', '\\\\', '\ud83d', '\ude00', '😀', 'ud800', '\\ud800', '"', 'u', '\n', '\ud7ff', '\ue000']
    for (let number = 0; number < pieces.length ** 3; number++) {
      const [a, b, c] = [number, number / pieces.length, number / pieces.length ** 2].map(
        (place) => pieces[Math.floor(place) % pieces.length],
      )
      const text = a + b + c
      const [json, blobs] = encode({ [text]: [text] })
      const whole = Buffer.from(text).toString()
      assert.deepEqual(decode(json, blobs), { [whole]: [whole] }, JSON.stringify(text))
    }
  })
})
