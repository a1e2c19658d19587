// Code that the tests of the command `boot` share: a model with one tool, the command's arguments, and its start.
import assert from 'node:assert/strict'
import { code, MODEL_KEY, model, plan, planned } from './booting.mjs'
import { environment, LIMIT, program } from './command-line.mjs'
import { endOf, listenTo, waitFor } from './support.mjs'

export const number = { type: 'number' }
export const add = planned('add', { properties: { a: number, b: number } })
export const adding = () =>
  model({ plans: [plan(add)], handlers: { add: [code('console.log("adding")\nreturn { sum: args.a + args.b }')] } })
export const variables = { anthropic: 'ANTHROPIC_API_KEY', openai: 'OPENAI_API_KEY' }
export const text = (result) => result.content.map((block) => block.text).join()

/** Returns the arguments of a command with a provider of the test. */
export const words = (kind, { baseUrl }, ...more) => [
  'boot',
  '--prompt',
  'Add two numbers',
  '--provider',
  kind,
  '--base-url',
  baseUrl,
  ...more,
]
export const withKey = (kind) => ({ env: { [variables[kind]]: MODEL_KEY } })
export const digestIn = ({ stderr }) => /--digest ([0-9a-f]{64})/.exec(stderr)?.[1]

/** Starts the command, and returns the URL at which it serves, and the entry for a host's config, which it prints right afterwards. */
export async function serving(t, at, args, env = {}) {
  const child = listenTo(t, process.execPath, [program, ...args], { cwd: at.work, env: environment(at, env), limit: LIMIT })
  const ended = endOf(child)
  // The address comes on one pipe and the entry on another one, so either can be read first.
  const printed = () => /serving .* at (http\S+)\n/.test(child.output.stderr) && child.output.stdout.endsWith('\n}\n')
  await waitFor('an address and its entry', () => printed() || child.exitCode !== null, LIMIT)
  assert.ok(printed(), child.output.stderr + child.output.stdout)
  const url = /serving .* at (http\S+)/.exec(child.output.stderr)[1]
  const [entry] = Object.values(JSON.parse(child.output.stdout).mcpServers)
  return { url, entry, child, ended }
}
