// Servers of other authors from npm and PyPI that need no key: how each is started in a box, agent code that reads and writes, and what is left
// on the disk afterwards. docs/BOXES.md has a table of the same servers, which published.test.mjs compares with this one.
import assert from 'node:assert/strict'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { nodeServer, olderPythonServer, pythonServer } from '../scripts/lib/tools.mjs'
import { outputOf, root } from './support.mjs'

const node = (program, ...args) => ({ command: process.execPath, args: [nodeServer(program), ...args] })
const official = (name, ...args) => ({
  command: process.execPath,
  args: [join(root, `node_modules/@modelcontextprotocol/server-${name}/dist/index.js`), ...args],
})
const writing = (path) => ({ write: [path] })
const text = (path) => readFileSync(path, 'utf8')
const commit = (path) => {
  const identity = ['-c', 'user.name=Ada', '-c', 'user.email=ada@example.com']
  outputOf('git', ['-C', path, 'init', '--quiet', '--initial-branch', 'main'])
  writeFileSync(join(path, 'a.txt'), 'first\n')
  outputOf('git', ['-C', path, 'add', 'a.txt'])
  outputOf('git', ['-C', path, ...identity, 'commit', '--quiet', '-m', 'Begin'])
  writeFileSync(join(path, 'b.txt'), 'second\n')
}
const staged = (path) => outputOf('git', ['-C', path, 'diff', '--cached', '--name-only'])

/**
 * One server each.
 *
 * - `entry` returns its entry in the config; `path` is a folder only for this server, without links. `needs` says what the entry has beside
 * `standard`, in the words of docs/BOXES.md. An entry that needs nothing has no `box`, as `standard` is the default. - `code` is the
 * handler of the agent's code, which gets the server's module and the folder. `reads` and `writes` are the tools that it calls. A server
 * without a tool that writes has no `writes`, and `only` says what it does instead. - `prepare` makes what the server expects in the
 * folder. - `check` compares the value, and what is left: `home(name)` is the path of a file in the server's private home. - `image` is the
 * MIME type of an image in the value.
 */
export const published = {
  everything: {
    package: '@modelcontextprotocol/server-everything',
    needs: 'nothing',
    entry: () => official('everything'),
    reads: ['echo', 'get-tiny-image'],
    writes: ['toggle-simulated-logging'],
    image: 'image/png',
    code: (it) => {
      const image = it.get_tiny_image({})
      return { said: it.echo({ message: 'ä€😀' }), toggled: it.toggle_simulated_logging({}), image }
    },
    check: ({ said, toggled }) => {
      assert.equal(said, 'Echo: ä€😀')
      assert.match(toggled, /^Started simulated/)
    },
  },
  filesystem: {
    package: '@modelcontextprotocol/server-filesystem',
    needs: 'nothing: its folders are arguments',
    entry: (path) => official('filesystem', path),
    prepare: (path) => writeFileSync(join(path, 'dot.png'), Buffer.from(DOT, 'base64')),
    reads: ['read_media_file', 'read_text_file'],
    writes: ['write_file'],
    image: 'image/png',
    code: (it, path) => {
      it.write_file({ path: `${path}/b.txt`, content: 'kept' })
      return { text: it.read_text_file({ path: `${path}/b.txt` }), media: it.read_media_file({ path: `${path}/dot.png` }) }
    },
    check: (value, { path }) => {
      assert.deepEqual(value.text, { content: 'kept' })
      assert.equal(text(join(path, 'b.txt')), 'kept')
    },
  },
  memory: {
    package: '@modelcontextprotocol/server-memory',
    needs: '`write` for the folder of `MEMORY_FILE_PATH`',
    entry: (path) => ({ ...official('memory'), env: { MEMORY_FILE_PATH: join(path, 'memory.jsonl') }, box: writing(path) }),
    reads: ['search_nodes'],
    writes: ['create_entities'],
    code: (it) => {
      it.create_entities({ entities: [{ name: 'Ada', entityType: 'person', observations: ['counts'] }] })
      return it.search_nodes({ query: 'counts' }).entities.map(({ name }) => name)
    },
    check: (value, { path }) => {
      assert.deepEqual(value, ['Ada'])
      assert.match(text(join(path, 'memory.jsonl')), /"Ada"/)
    },
  },
  'thinking-npm': {
    package: '@modelcontextprotocol/server-sequential-thinking',
    needs: 'nothing',
    only: 'its one tool adds a thought to the history in its memory',
    entry: () => node('@modelcontextprotocol/server-sequential-thinking/dist/index.js'),
    reads: ['sequentialthinking'],
    writes: [],
    code: (it) =>
      [1, 2].map((thoughtNumber) => {
        const thought = it.sequentialthinking({
          thought: `step ${thoughtNumber}`,
          thoughtNumber,
          totalThoughts: 2,
          nextThoughtNeeded: thoughtNumber < 2,
        })
        return thought.thoughtHistoryLength
      }),
    check: (value) => assert.deepEqual(value, [1, 2]),
  },
  graph: {
    package: '@itseasy21/mcp-knowledge-graph',
    needs: '`write` for the folder of `--memory-path`',
    entry: (path) => ({
      ...node('@itseasy21/mcp-knowledge-graph/dist/index.js', '--memory-path', join(path, 'graph.jsonl')),
      box: writing(path),
    }),
    reads: ['open_nodes'],
    writes: ['create_entities'],
    code: (it) => {
      it.create_entities({ entities: [{ name: 'Engine', entityType: 'machine', observations: ['was never built'] }] })
      return it.open_nodes({ names: ['Engine'] }).entities[0].observations
    },
    check: (value, { path }) => {
      assert.deepEqual(value, ['was never built'])
      assert.match(text(join(path, 'graph.jsonl')), /"Engine"/)
    },
  },
  bank: {
    package: '@allpepper/memory-bank-mcp',
    needs: '`write` for `MEMORY_BANK_ROOT`',
    entry: (path) => ({ ...node('@allpepper/memory-bank-mcp/dist/main/index.js'), env: { MEMORY_BANK_ROOT: path }, box: writing(path) }),
    reads: ['memory_bank_read', 'list_projects'],
    writes: ['memory_bank_write'],
    code: (it) => {
      it.memory_bank_write({ projectName: 'loom', fileName: 'brief.md', content: '# Loom' })
      return [it.list_projects({}), it.memory_bank_read({ projectName: 'loom', fileName: 'brief.md' })]
    },
    check: (value, { path }) => {
      assert.deepEqual(value, ['loom', '# Loom'])
      assert.equal(text(join(path, 'loom/brief.md')), '# Loom')
    },
  },
  tasks: {
    package: '@kazuph/mcp-taskmanager',
    needs: 'nothing: its file is in the private home',
    entry: () => node('@kazuph/mcp-taskmanager/dist/index.js'),
    reads: ['list_requests'],
    writes: ['request_planning'],
    code: (it) => {
      it.request_planning({ originalRequest: 'weave', tasks: [{ title: 'warp', description: 'first' }] })
      return it.list_requests({}).requests[0].originalRequest
    },
    check: (value, { home }) => {
      assert.equal(value, 'weave')
      assert.match(text(home('Documents/tasks.json')), /"warp"/)
    },
  },
  shrimp: {
    package: 'mcp-shrimp-task-manager',
    needs: 'nothing: its folder is a root',
    entry: (path) => ({ ...node('mcp-shrimp-task-manager/dist/index.js'), roots: [path] }),
    reads: ['query_task'],
    writes: ['split_tasks'],
    code: (it) => {
      const task = { name: 'weave', description: 'weave the cloth on the loom', implementationGuide: 'thread by thread' }
      it.split_tasks({ updateMode: 'append', tasksRaw: JSON.stringify([task]) })
      return it.query_task({ query: 'weave' })
    },
    check: (value, { path }) => {
      assert.match(value, /weave the cloth/)
      assert.match(text(join(path, 'data/tasks.json')), /"weave"/)
    },
  },
  drawio: {
    package: '@drawio/mcp',
    needs: '`write` for the folder of the diagrams',
    entry: (path) => ({ ...node('@drawio/mcp/src/index.js'), box: writing(path) }),
    prepare: (path) => writeFileSync(join(path, 'a.drawio'), `<mxfile><diagram id="1" name="One">${diagram('')}</diagram></mxfile>`),
    reads: ['list_pages', 'get_page'],
    writes: ['set_page'],
    code: (it, path) => {
      const file = { path: `${path}/a.drawio`, page: 'One' }
      it.set_page({ ...file, content: it.get_page(file).replace('</root>', '<mxCell id="2" value="loom" vertex="1" parent="1"/></root>') })
      return it.list_pages({ path: file.path })
    },
    check: (value, { path }) => {
      assert.match(JSON.stringify(value), /One/)
      assert.match(text(join(path, 'a.drawio')), /value="loom"/)
    },
  },
  libsql: {
    package: 'mcp-memory-libsql',
    needs: '`write` for the folder of `LIBSQL_URL`',
    entry: (path) => ({
      ...node('mcp-memory-libsql/dist/index.js'),
      env: { LIBSQL_URL: `file:${join(path, 'memory.db')}` },
      box: writing(path),
    }),
    reads: ['search_nodes'],
    writes: ['create_entities'],
    code: (it) => {
      it.create_entities({ entities: [{ name: 'Loom', entityType: 'machine', observations: ['weaves'] }] })
      return it.search_nodes({ query: 'weaves' })
    },
    check: (value, { path }) => {
      assert.match(JSON.stringify(value), /Loom/)
      assert.match(text(join(path, 'memory.db')), /^SQLite format 3/)
    },
  },
  'git-npm': {
    package: 'mcp-git',
    needs: '`write` for the repository',
    entry: (path) => ({ ...node('mcp-git/dist/cli.js'), box: writing(path) }),
    prepare: commit,
    reads: ['git_status'],
    writes: ['git_add'],
    code: (it, path) => {
      it.git_add({ repo_path: path, files: ['b.txt'] })
      return it.git_status({ repo_path: path })
    },
    check: (value, { path }) => {
      assert.match(JSON.stringify(value), /b\.txt/)
      assert.equal(staged(path), 'b.txt\n')
    },
  },
  'time-npm': {
    package: 'time-mcp',
    needs: 'nothing',
    only: 'none: the server only calculates',
    entry: () => node('time-mcp/dist/index.js'),
    reads: ['days_in_month'],
    writes: [],
    code: (it) => it.days_in_month({ date: '2028-02-01' }),
    check: (value) => assert.match(JSON.stringify(value), /29/),
  },
  git: {
    package: 'mcp-server-git',
    python: true,
    needs: 'nothing: its repository is an argument',
    entry: (path) => ({ command: pythonServer('mcp-server-git'), args: ['--repository', path] }),
    prepare: commit,
    reads: ['git_log', 'git_status'],
    writes: ['git_add'],
    code: (it, path) => {
      it.git_add({ repo_path: path, files: ['b.txt'] })
      return [it.git_log({ repo_path: path }), it.git_status({ repo_path: path })]
    },
    check: ([log, status], { path }) => {
      assert.match(log, /Begin/)
      assert.match(status, /new file: +b\.txt/)
      assert.equal(staged(path), 'b.txt\n')
    },
  },
  time: {
    package: 'mcp-server-time',
    python: true,
    needs: 'nothing',
    only: 'none: the server only calculates',
    entry: () => ({ command: pythonServer('mcp-server-time') }),
    reads: ['convert_time'],
    writes: [],
    code: (it) => it.convert_time({ source_timezone: 'Europe/Paris', time: '12:00', target_timezone: 'Asia/Tokyo' }),
    check: (value) => assert.match(JSON.stringify(value), /T(19|20):00/),
  },
  excel: {
    package: 'excel-mcp-server',
    python: true,
    needs: 'nothing: its folder is an argument',
    entry: (path) => ({ command: pythonServer('excel-mcp-server'), args: ['stdio', '--allow-dir', path] }),
    reads: ['read_range'],
    writes: ['create_workbook', 'write_range'],
    code: (it, path) => {
      const sheet = { path: `${path}/a.xlsx`, sheet: 'Sheet1' }
      it.create_workbook({ path: sheet.path })
      it.write_range({
        ...sheet,
        at: 'A1',
        rows: [
          ['warp', 1],
          ['weft', 2],
          ['all', '=SUM(B1:B2)'],
        ],
      })
      return it.read_range({ ...sheet, range: 'A1:B3' })
    },
    check: (value, { path }) => {
      assert.match(JSON.stringify(value), /\["all",3\]/)
      assert.match(readFileSync(join(path, 'a.xlsx'), 'latin1'), /^PK/)
    },
  },
  'thinking-py': {
    package: 'mcp-sequential-thinking',
    python: true,
    needs: 'nothing: its files are in the private home',
    entry: () => ({ command: pythonServer('mcp-sequential-thinking') }),
    reads: ['read_session'],
    writes: ['create_session', 'add_step'],
    code: (it) => {
      const { session_id } = it.create_session({ title: 'loom' })
      it.add_step({ session_id, content: 'warp first', request_id: 'one' })
      return it.read_session({ session_id })
    },
    check: (value, { home }) => {
      assert.match(JSON.stringify(value), /warp first/)
      assert.ok(existsSync(home('.mcp_sequential_thinking')))
    },
  },
  sqlite: {
    package: 'mcp-server-sqlite',
    python: true,
    needs: '`write` for the folder of `--db-path`',
    entry: (path) => ({ command: olderPythonServer('mcp-server-sqlite'), args: ['--db-path', join(path, 'a.db')], box: writing(path) }),
    reads: ['read_query'],
    writes: ['create_table', 'write_query'],
    code: (it) => {
      it.create_table({ query: 'CREATE TABLE looms (name TEXT)' })
      it.write_query({ query: "INSERT INTO looms VALUES ('Jacquard')" })
      return it.read_query({ query: 'SELECT name FROM looms' })
    },
    check: (value, { path }) => {
      assert.match(JSON.stringify(value), /Jacquard/)
      assert.match(text(join(path, 'a.db')), /^SQLite format 3.*Jacquard/s)
    },
  },
  shell: {
    package: 'mcp-shell-server',
    python: true,
    needs: '`write` for the folder of its commands',
    entry: (path) => ({ command: olderPythonServer('mcp-shell-server'), env: { ALLOW_COMMANDS: 'cat,tee' }, box: writing(path) }),
    reads: ['shell_execute'],
    writes: ['shell_execute'],
    code: (it, directory) => {
      it.shell_execute({ command: ['tee', 'a.txt'], stdin: 'woven', directory })
      return it.shell_execute({ command: ['cat', 'a.txt'], directory })
    },
    check: (value, { path }) => {
      assert.match(JSON.stringify(value), /woven/)
      assert.equal(text(join(path, 'a.txt')), 'woven')
    },
  },
  editor: {
    package: 'mcp-text-editor',
    python: true,
    needs: '`write` for the folder of the texts',
    entry: (path) => ({ command: olderPythonServer('mcp-text-editor'), box: writing(path) }),
    reads: ['get_text_file_contents'],
    writes: ['edit_text_file_contents'],
    code: (it, path) => {
      const file = `${path}/new.txt`
      it.edit_text_file_contents({ files: [{ path: file, file_hash: '', patches: [{ contents: 'woven\n' }] }] })
      return it.get_text_file_contents({ files: [{ file_path: file, ranges: [{ start: 1 }] }] })
    },
    check: (value, { path }) => {
      assert.match(JSON.stringify(value), /woven/)
      assert.equal(text(join(path, 'new.txt')), 'woven\n')
    },
  },
  todo: {
    package: 'mcp-todo',
    python: true,
    needs: 'nothing: its files are in the private home',
    entry: () => ({ command: olderPythonServer('mcp-todo') }),
    reads: ['task_list'],
    writes: ['task_create'],
    code: (it) => {
      it.task_create({ name: 'weave', priority: 'high' })
      return it.task_list({ keyword: 'weave' })
    },
    check: (value, { home }) => {
      assert.match(JSON.stringify(value), /weave/)
      assert.match(text(home('.local/share/todo/tasks.jsonl')), /weave/)
    },
  },
  slides: {
    package: 'office-powerpoint-mcp-server',
    python: true,
    needs: '`write` for the folder of the presentations',
    entry: (path) => ({ command: olderPythonServer('ppt_mcp_server'), box: writing(path) }),
    reads: ['extract_presentation_text'],
    writes: ['create_presentation', 'add_slide', 'save_presentation'],
    code: (it, path) => {
      const { presentation_id } = it.create_presentation({}).result
      it.add_slide({ layout_index: 0, title: 'The loom', presentation_id })
      it.save_presentation({ file_path: `${path}/a.pptx`, presentation_id })
      return it.extract_presentation_text({ presentation_id })
    },
    check: (value, { path }) => {
      assert.match(JSON.stringify(value), /The loom/)
      assert.match(readFileSync(join(path, 'a.pptx'), 'latin1'), /^PK/)
    },
  },
  draw: {
    package: 'omnidraw',
    python: true,
    needs: '`write` for the folder of the projects',
    entry: (path) => ({ command: olderPythonServer('omnidraw'), box: writing(path) }),
    reads: ['get_canvas'],
    writes: ['create_project', 'create_composition', 'draw'],
    image: 'image/png',
    code: (it, path) => {
      it.create_project({ parent_dir: path, project_name: 'loom' })
      const { composition_id } = it.create_composition({ name: 'cloth', width: 8, height: 8, background: '#ff0000' })
      it.draw({ composition_id, commands: [{ type: 'rect', x: 2, y: 2, width: 4, height: 4, color: '#0000ff' }] })
      return it.get_canvas({ composition_id })
    },
    check: (_, { path }) => assert.match(text(join(path, 'loom/project.omnidraw')), /loom/),
  },
  toolkit: {
    package: 'agent-toolkit-mcp-server',
    python: true,
    needs: 'nothing: its files are in the private home',
    entry: () => ({ command: olderPythonServer('agent-toolkit-mcp-server') }),
    reads: ['note_read'],
    writes: ['note_write'],
    code: (it) => {
      it.note_write({ name: 'loom', content: '# Loom\nwarp first' })
      return it.note_read({ name: 'loom' })
    },
    check: (value, { home }) => {
      assert.match(JSON.stringify(value), /warp first/)
      assert.match(text(home('.agent-toolkit/notes/_global/loom.md')), /warp first/)
    },
  },
}

/** An image of one pixel. */
const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

const diagram = (cells) => `<mxGraphModel><root><mxCell id="0"/><mxCell id="1" parent="0"/>${cells}</root></mxGraphModel>`
