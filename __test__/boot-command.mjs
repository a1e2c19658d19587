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

/** Starts the command, and returns the URL at which it serves. */
export async function serving(t, at, args, env = {}) {
  const child = listenTo(t, process.execPath, [program, ...args], { cwd: at.work, env: environment(at, env), limit: LIMIT })
  const ended = endOf(child)
  await waitFor('an address', () => /serving .* at (http\S+)/.test(child.output.stderr) || child.exitCode !== null, LIMIT)
  const url = /serving .* at (http\S+)/.exec(child.output.stderr)?.[1]
  assert.ok(url, child.output.stderr)
  return { url, child, ended }
}
