// Measures what learnt shapes are worth (docs/EVAL.md, "Shapes of results"; `npm run eval:shapes`). The results are those of real servers and of the
// fixture server, as a server without `outputSchema` sends them: only their content. Shapes are learnt from some calls. Questions are made
// from the results of other calls: one for each field. A writer that knows only the declaration writes a script that reads the field, and
// TypeScript checks the script against the type of the true result.
import assert from 'node:assert/strict'
import { mkdirSync, realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { answering, compiled, fixture, folder, ms, openApproved, root } from './support.mjs'

const program = (name) => join(root, `node_modules/@modelcontextprotocol/server-${name}/dist/index.js`)
const node = (name, ...args) => ({ command: process.execPath, args: [program(name), ...args], confirm: 'never' })

/** Returns the calls of each tool: those from which shapes are learnt, and those about which questions are made. */
function plan(path) {
  const entity = (name, observations = []) => ({ name, entityType: 'person', observations })
  const relation = (from, to) => ({ from, to, relationType: 'knows' })
  const memory = [
    ['create_entities', [{ entities: [entity('Ada', ['counts'])] }], [{ entities: [entity('Bob'), entity('Eve', ['listens'])] }]],
    ['create_relations', [{ relations: [relation('Ada', 'Bob')] }], [{ relations: [relation('Bob', 'Eve'), relation('Eve', 'Ada')] }]],
    [
      'add_observations',
      [{ observations: [{ entityName: 'Ada', contents: ['writes'] }] }],
      [{ observations: [{ entityName: 'Bob', contents: ['reads'] }] }],
    ],
    ['search_nodes', [{ query: 'Ada' }], [{ query: 'person' }]],
    ['open_nodes', [{ names: ['Ada'] }], [{ names: ['Bob', 'Eve'] }]],
    ['read_graph', [{}], [{}]],
  ]
  const file = (name) => ({ path: join(path, name) })
  const files = [
    ['read_text_file', [file('a.txt')], [file('b.txt')]],
    ['list_directory', [{ path }], [file('sub')]],
    ['directory_tree', [file('sub')], [{ path }]],
    ['get_file_info', [file('a.txt')], [file('sub')]],
    ['search_files', [{ path, pattern: '*.txt' }], [{ path, pattern: '*.md' }]],
  ]
  const everything = [
    ['echo', [{ message: 'a' }], [{ message: 'b' }]],
    ['get-sum', [{ a: 1, b: 2 }], [{ a: 3, b: 4 }]],
    ['get-structured-content', [{ location: 'New York' }], [{ location: 'Chicago' }, { location: 'Los Angeles' }]],
    ['get-tiny-image', [{}], [{}]],
    ['get-env', [{}], [{}]],
    ['get-resource-links', [{ count: 2 }], [{ count: 3 }]],
    ['get-resource-reference', [{ resourceType: 'Text', resourceId: 1 }], [{ resourceType: 'Text', resourceId: 2 }]],
  ]
  const ours = [
    ['structured', [{ name: 'a', tags: ['x'] }], [{ name: 'b', count: 2, tags: ['y', 'z'] }]],
    ['get-forecast', [{ location: 'Rome' }], [{ location: 'Oslo' }]],
    ['pid', [{}], [{}]],
    ['image', [{}], [{ bytes: 32 }]],
    ['resource_link', [{}], [{}]],
    ['text_resource', [{}], [{}]],
    ['several', [{}], [{}]],
    ['echo_text', [{ text: 'a' }], [{ text: 'b' }]],
  ]
  return { memory, files, everything, fixture: ours }
}

/** Makes the calls. Returns for each tool the results from which shapes are learnt, and those about which questions are made. */
async function recorded(t) {
  const path = realpathSync(folder(t))
  for (const name of ['a.txt', 'b.txt', 'c.md']) writeFileSync(join(path, name), `The text of ${name}\n`)
  mkdirSync(join(path, 'sub/inner'), { recursive: true })
  writeFileSync(join(path, 'sub/d.txt'), 'd')
  const gateway = await openApproved(
    t,
    {
      memory: { ...node('memory'), env: { MEMORY_FILE_PATH: '/box/home/memory.jsonl' } },
      files: node('filesystem', path),
      everything: node('everything'),
      fixture: fixture(),
    },
    { limits: { connectTimeoutMs: ms(60_000) } },
  )
  const tools = []
  for (const [server, calls] of Object.entries(plan(path))) {
    for (const [tool, learnt, asked] of calls) {
      const results = []
      for (const args of [...learnt, ...asked]) {
        const { content, isError } = await gateway.callTool(server, tool, args)
        assert.equal(isError, false, `${server}.${tool}: ${JSON.stringify(content)}`)
        results.push({ content })
      }
      tools.push({
        server,
        name: `${server}_${tool.replaceAll('-', '_')}`,
        learnt: results.slice(0, learnt.length),
        asked: results.slice(learnt.length),
      })
    }
  }
  return tools
}

/** A server that has these tools, without any `outputSchema`, and returns exactly what it is given. */
const replaying = (names) => ({
  command: process.execPath,
  confirm: 'never',
  args: answering(`const tools = ${JSON.stringify(names)}.map((name) => ({ name, inputSchema: { type: 'object' } }))
    const answers = {
      'tools/list': () => ({ tools }),
      'tools/call': (params) => params.arguments,
    }`),
})

const bytes = Symbol('bytes')

/** Returns the value that agent code gets for a result (docs/MCP.md). */
function guestValue({ content }) {
  const values = content.map((block) => {
    if (block.type === 'text') {
      if (!/^\s*[[{]/.test(block.text)) return block.text
      try {
        return JSON.parse(block.text)
      } catch {
        return block.text
      }
    }
    if (block.type === 'image' || block.type === 'audio') return { mimeType: block.mimeType, data: bytes }
    if (block.type === 'resource') return block.resource.blob ? { ...block.resource, blob: undefined, data: bytes } : block.resource
    const { type, ...fields } = block
    return fields
  })
  return values.length === 1 ? values[0] : values
}

/** Returns the TypeScript type of these values, exactly: a property that some lack is optional. */
function typeOf(values) {
  const [lists, others] = [values.filter(Array.isArray), values.filter((value) => !Array.isArray(value))]
  const isRecord = (value) => typeof value === 'object' && value !== null
  const records = others.filter(isRecord)
  const simple = others
    .filter((value) => !isRecord(value))
    .map((value) => (value === null ? 'null' : value === bytes ? 'Uint8Array' : typeof value))
  const members = new Set(simple)
  if (lists.length > 0) members.add(`(${typeOf(lists.flat())})[]`)
  if (records.length > 0) {
    const keys = new Set(records.flatMap((record) => Object.keys(record)))
    const member = (key) => {
      const having = records.filter((record) => record[key] !== undefined)
      return `${JSON.stringify(key)}${having.length < records.length ? '?' : ''}: ${typeOf(having.map((record) => record[key]))}`
    }
    members.add(`{ ${[...keys].map(member).join('; ')} }`)
  }
  return [...members].join(' | ') || 'never'
}

/** Returns the questions about a value: each field of it once, or `undefined` for a value that is not an object. */
function fieldsOf(value, found = new Set()) {
  if (Array.isArray(value)) for (const item of value) fieldsOf(item, found)
  else if (typeof value === 'object' && value !== null)
    for (const [key, inner] of Object.entries(value)) {
      if (typeof inner !== 'object' || inner === null) found.add(key)
      else fieldsOf(inner, found)
    }
  else found.add(undefined)
  return found
}

/** Parses a declared type, as far as declarations of seen results go: unions of simple types, lists, maps and objects. */
function parsed(text) {
  let rest = text.replace(/\s+/g, ' ')
  const take = (pattern) => {
    const match = new RegExp(`^ ?(${pattern})`).exec(rest)
    if (match) rest = rest.slice(match[0].length)
    return match?.[1]
  }
  const one = () => {
    let type
    if (take('\\(')) {
      type = union()
      take('\\)')
    } else if (take('Record<string,')) {
      type = [{ values: union() }]
      take('>')
    } else if (take('\\{')) {
      const fields = []
      while (!take('\\}')) {
        if (take('\\[key: string\\]: any')) {
          take(';')
          continue
        }
        const [, name, optional] = /^(\w+)(\??):/.exec(take('[\\w$]+\\??:') ?? assert.fail(rest))
        fields.push({ name, optional: optional === '?', type: union() })
        take(';')
      }
      type = [{ fields }]
    } else type = [take('\\w+') ?? assert.fail(rest)]
    while (take('\\[\\]')) type = [{ items: type }]
    return type
  }
  const union = () => {
    const members = one()
    while (take('\\|')) members.push(...one())
    return members
  }
  return union()
}

/** Returns where a declared type has a field, and the type there: the shallowest place. */
function place(type, field, path = 'result') {
  const waiting = [{ type, path, optional: false }]
  while (waiting.length > 0) {
    const { type, path, optional } = waiting.shift()
    const isLeaf = type.every((member) => typeof member === 'string')
    if (field === undefined && isLeaf) return { path, type, optional }
    // The writer tells the kinds of a mixed list apart.
    const [simple, objects] = [
      type.filter((kind) => typeof kind === 'string' && kind !== 'null'),
      type.filter((kind) => typeof kind !== 'string'),
    ]
    if (path.endsWith('[0]') && simple.length > 0 && objects.length > 0) {
      const only = (kind) => `${path.slice(0, -3)}.flatMap((one) => (typeof one === '${kind}' ? [one] : []))[0]`
      if (field === undefined) return { path: only(simple[0]), type: [simple[0]], optional }
      waiting.push({ type: objects, path: only('object'), optional })
      continue
    }
    const mark = optional || type.includes('null') ? '?.' : '.'
    for (const member of type.filter((member) => typeof member !== 'string')) {
      if (member.items) waiting.push({ type: member.items, path: `${path}${mark === '.' ? '' : '?.'}[0]`, optional: mark === '?.' })
      if (member.values)
        waiting.push({ type: member.values, path: `Object.values(${path}${optional ? ' ?? {}' : ''})[0]`, optional: false })
      for (const inner of member.fields ?? []) {
        const found = { type: inner.type, path: `${path}${mark}${inner.name}`, optional: inner.optional || mark === '?.' }
        if (inner.name === field && inner.type.every((kind) => typeof kind === 'string')) return found
        waiting.push(found)
      }
    }
  }
}

/** Writes the script for a question. A writer that finds the field nowhere guesses that it is at the top, or that the result is text. */
function script(declaration, field) {
  const seen = /export function \w+\(input\??: [^\n]*?\): ([\s\S]*?)(?: \| ToolError)?;\n(?: {2}(?:export|\/\*\*|\/\/)|\})/.exec(
    declaration.split('Seen in ')[1] ?? '',
  )
  const at = seen && place(parsed(seen[1]), field)
  if (at) return `const value: ${at.type.join(' | ')}${at.optional ? ' | undefined' : ''} = ${at.path};`
  return field === undefined ? 'const value: string = result;' : `const value: unknown = result[${JSON.stringify(field)}];`
}

/** Returns which scripts type-check against the true results. */
function passing(t, rows) {
  const lines = rows.map(({ truth, script }, index) => `export function s${index}(result: ${truth}) { ${script} return value; }`)
  const wrong = new Set(
    [...compiled(t, { 'scripts.ts': `${lines.join('\n')}\n` }).matchAll(/scripts\.ts\((\d+),/g)].map(([, line]) => Number(line) - 1),
  )
  return rows.filter((_, index) => !wrong.has(index))
}

test('learnt shapes let scripts read the fields of results that nobody declared', { timeout: ms(120_000) }, async (t) => {
  const tools = await recorded(t)
  const servers = { replay: replaying(tools.map(({ name }) => name)) }
  const rows = { without: [], with: [] }
  for (const [kind, learnResults] of [
    ['without', false],
    ['with', true],
  ]) {
    const gateway = await openApproved(t, servers, { learnResults })
    for (const { server, name, learnt, asked } of tools) {
      for (const result of learnt) await gateway.callTool('replay', name, result)
      const { declaration } = await gateway.toolInfo('replay', name, { toolErrors: 'throw' })
      for (const value of asked.map(guestValue)) {
        for (const field of fieldsOf(value))
          rows[kind].push({ server, name, field, truth: typeOf([value]), script: script(declaration, field) })
      }
    }
  }
  const share = (kind, keeps = () => true) => {
    const all = rows[kind].filter(keeps)
    return { all: all.length, percent: (100 * passing(t, all).length) / all.length }
  }
  const groups = {
    all: undefined,
    ...Object.fromEntries(['memory', 'files', 'everything', 'fixture'].map((name) => [name, ({ server }) => server === name])),
  }
  for (const [name, keeps] of Object.entries(groups)) {
    const [before, after] = [share('without', keeps), share('with', keeps)]
    t.diagnostic(
      `${name}: ${after.all} scripts, ${before.percent.toFixed(0)} % type-check without shapes, ${after.percent.toFixed(0)} % with them`,
    )
    if (name === 'all') assert.ok(after.percent - before.percent >= 30, `${before.percent} % and ${after.percent} %`)
  }
  const passed = passing(t, rows.with)
  const failing = rows.with.filter((row) => !passed.includes(row))
  for (const { name, field, script, truth } of failing) t.diagnostic(`fails: ${name} ${field}: ${script} for ${truth}`)
})
