// Registries on loopback for `npx` and `uvx`: they serve the packages that scripts/setup has installed, so that no test needs the network.
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { pythonServer } from '../scripts/lib/tools.mjs'
import { outputOf, root, start } from './support.mjs'

async function listening(t, answer) {
  const server = createServer(answer).listen(0, '127.0.0.1')
  t.after(() => server.close() && server.closeAllConnections())
  await once(server, 'listening')
  return `http://127.0.0.1:${server.address().port}`
}

const asJson = (response, value) => response.setHeader('content-type', 'application/json').end(JSON.stringify(value))

/** Options of tar that leave out files that no server reads, which are most files: TypeScript, maps of sources, and documents. */
export const NO_CODE = ['*.ts', '*.cts', '*.mts', '*.map', '*.md'].map((pattern) => `--exclude=${pattern}`)

/** A registry of npm that has each package in node_modules, in the versions that are there. */
export async function npmRegistry(t) {
  const { packages } = JSON.parse(readFileSync(join(root, 'node_modules/.package-lock.json'), 'utf8'))
  const folders = new Map()
  for (const folder of Object.keys(packages)) {
    const name = folder.slice(folder.lastIndexOf('node_modules/') + 'node_modules/'.length)
    folders.set(name, [...(folders.get(name) ?? []), folder])
  }
  const manifest = (folder) => JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8'))
  return listening(t, (request, response) => {
    const path = decodeURIComponent(request.url.slice(1))
    if (path.startsWith('-/tarballs/')) {
      const folder = path.slice('-/tarballs/'.length).replace(/\.tgz$/, '')
      const packed = [
        '-c',
        '-I',
        'gzip -1',
        '--exclude=./node_modules',
        ...NO_CODE,
        '--transform=s,^\\.,package,',
        '-C',
        join(root, folder),
        '.',
      ]
      return start(t, 'tar', packed, { stdio: ['ignore', 'pipe', 'inherit'] }).stdout.pipe(response)
    }
    const found = folders.get(path)
    if (found === undefined) return response.writeHead(404).end()
    const versions = Object.fromEntries(
      found.map((folder) => {
        const { scripts, ...own } = manifest(folder)
        const dist = { tarball: `http://${request.headers.host}/-/tarballs/${encodeURIComponent(folder)}.tgz` }
        return [own.version, { ...own, dist }]
      }),
    )
    asJson(response, { name: path, 'dist-tags': { latest: Object.keys(versions)[0] }, versions })
  })
}

/** An index of PyPI's kind that has the packages of the environment for Python servers, as wheels in `folder`. Returns its address. */
export async function pythonIndex(t, folder) {
  const python = join(pythonServer('mcp-server-git'), '../python3')
  const wheels = JSON.parse(outputOf(python, [fileURLToPath(new URL('./fixtures/wheels.py', import.meta.url)), folder]))
  const served = await listening(t, (request, response) => {
    const [, kind, name] = request.url.split('/')
    if (kind === 'files') return response.end(readFileSync(join(folder, basename(decodeURIComponent(name)))))
    const wheel = wheels[name]
    if (kind !== 'simple' || wheel === undefined) return response.writeHead(404).end()
    response.setHeader('content-type', 'text/html').end(`<a href="/files/${encodeURIComponent(wheel)}">${wheel}</a>`)
  })
  return `${served}/simple`
}
