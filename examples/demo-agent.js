// Agent code, as a model would write it: it runs inside a micro-VM, and what it imports are MCP servers. The code has no file system, no
// network and no other module: it can only call these functions. Each call is synchronous: it leaves the VM, reaches the server's process,
// and comes back with the result. So loops, conditions and arithmetic over hundreds of calls cost a model nothing: it reads the value that
// `handler` returns, and no byte of what was read on the way.
import { get_tiny_image } from 'host:mcp-everything'
import { directory_tree, read_text_file } from 'host:mcp-files'
import { create_entities, create_relations, open_nodes, read_graph, search_nodes } from 'host:mcp-memory'

const KINDS = {
  rs: 'Rust',
  js: 'JavaScript',
  mjs: 'JavaScript',
  cjs: 'JavaScript',
  ts: 'TypeScript',
  md: 'Markdown',
  json: 'JSON',
  toml: 'TOML',
  lock: 'lock file',
}
const BATCH = 50

// The demo passes `input`, and gets back what this returns.
export function handler({ root, skip, topic, room }) {
  const files = readFiles(root, skip)
  const graph = buildGraph(files)
  checkLimits(root)
  const sum = (key) => files.reduce((total, file) => total + file[key], 0)
  return {
    files: files.length,
    lines: sum('lines'),
    characters: sum('characters'),
    byFolder: totals(files, (file) => file.path.split('/').slice(0, -1)[0] ?? '.'),
    byKind: totals(files, (file) => file.kind),
    largest: [...files]
      .sort((a, b) => b.lines - a.lines)
      .slice(0, 5)
      .map(({ path, lines }) => ({ path, lines })),
    graph,
    answers: { [`files about "${topic}"`]: filesAbout(topic), [`who uses ${room}`]: usersOf(room) },
    image: describeImage(),
  }
}

/** Every text file beneath the root, read through the filesystem server. */
function readFiles(root, skip) {
  // This server answers with an object that has one text, `content`; here that text is JSON.
  const tree = JSON.parse(directory_tree({ path: root, excludePatterns: skip }).content)
  const paths = flatten(tree, '')
  console.info(`${paths.length} files beneath ${root}`)
  const files = []
  for (const path of paths) {
    try {
      files.push(describe(path, read_text_file({ path: `${root}/${path}` }).content))
    } catch (error) {
      // The tool failed, or a limit was exceeded. The run continues without this file.
      console.warn(`left out ${path}: ${error.message.split('\n')[0]}`)
    }
    if (files.length % BATCH === 0) console.debug(`read ${files.length} files`)
  }
  return files
}

function flatten(entries, folder) {
  return entries.flatMap(({ name, children }) => (children ? flatten(children, `${folder}${name}/`) : [`${folder}${name}`]))
}

function describe(path, text) {
  const name = path.split('/').at(-1)
  const extension = name.includes('.', 1) ? name.split('.').at(-1) : ''
  const kind = KINDS[extension] ?? (text.startsWith('#!') ? 'script' : 'other')
  // The first line of prose tells what a file is for.
  const summary =
    text
      .split('\n')
      .map((line) => line.replace(/^(\/\/!?|#+!?|\/\*+)\s*/, ''))
      .find((line) => /^[A-Z`]\w+.* /.test(line)) ?? ''
  const uses = kind === 'Rust' ? [...new Set([...text.matchAll(/\bcrate::([a-z_]+)\b/g)].map(([, used]) => `src/${used}`))] : []
  return { path, kind, summary, uses, lines: text.split('\n').length - 1, characters: text.length }
}

/** Files and folders become entities; being in a folder, and one room of the crate using another, become relations. */
function buildGraph(files) {
  const folderOf = (path) => path.split('/').slice(0, -1).join('/') || '.'
  const folders = new Set(files.flatMap(({ path }) => ancestors(folderOf(path))))
  const entities = [...folders].map((name) => ({ name, entityType: 'folder', observations: [] }))
  for (const { path, kind, summary, lines } of files)
    entities.push({ name: path, entityType: kind, observations: [summary, `${lines} lines`] })

  const relations = files.map(({ path }) => ({ from: path, to: folderOf(path), relationType: 'in' }))
  for (const folder of folders) if (folder !== '.') relations.push({ from: folder, to: folderOf(folder), relationType: 'in' })
  // One folder uses another where any of its files does.
  const pairs = new Map(
    files.flatMap(({ path, uses }) => uses.map((to) => [`${folderOf(path)} ${to}`, { from: folderOf(path), to, relationType: 'uses' }])),
  )
  for (const pair of pairs.values()) if (folders.has(pair.to) && pair.to !== pair.from) relations.push(pair)
  // Both are writes: the agent's `onApproval` is asked before the first one.
  for (const batch of batches(entities)) create_entities({ entities: batch })
  for (const batch of batches(relations)) create_relations({ relations: batch })
  const stored = read_graph()
  console.log(`the graph has ${stored.entities.length} entities and ${stored.relations.length} relations`)
  return { entities: stored.entities.length, relations: stored.relations.length }
}

function ancestors(folder) {
  const parts = folder.split('/')
  return ['.', ...parts.map((_, index) => parts.slice(0, index + 1).join('/'))]
}

function batches(items) {
  return Array.from({ length: Math.ceil(items.length / BATCH) }, (_, index) => items.slice(index * BATCH, (index + 1) * BATCH))
}

function filesAbout(topic) {
  return search_nodes({ query: topic })
    .entities.filter(({ entityType }) => entityType !== 'folder')
    .map(({ name }) => name)
    .slice(0, 6)
}

function usersOf(room) {
  const { relations } = open_nodes({ names: [room] })
  return relations.filter(({ to, relationType }) => to === room && relationType === 'uses').map(({ from }) => from)
}

/** The server's own limits hold as well: it was started for one folder. */
function checkLimits(root) {
  try {
    read_text_file({ path: `${root}/../../etc/passwd` })
  } catch (error) {
    console.error(`as it should be: ${error.message}`)
  }
}

/** Text and images arrive as a list of blocks; an image's data is bytes. */
function describeImage() {
  const { mimeType, data } = get_tiny_image().find((block) => block.mimeType)
  const signature = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]
  const view = new DataView(data.buffer, data.byteOffset)
  return {
    mimeType,
    bytes: data.length,
    isPng: signature.every((byte, index) => data[index] === byte),
    width: view.getUint32(16),
    height: view.getUint32(20),
  }
}

function totals(files, key) {
  const result = {}
  for (const file of files) {
    const name = key(file)
    result[name] ??= { files: 0, lines: 0 }
    const entry = result[name]
    entry.files += 1
    entry.lines += file.lines
  }
  return result
}
