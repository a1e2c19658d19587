// What the tests of providers share: a gateway with a folder of packages, and the approval of their code.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Gateway } from '../index.mjs'
import { afterwards, guest } from './support.mjs'

/** Opens a gateway whose config is in a separate folder. Returns it with its events. */
export async function open(t, path, config, options) {
  const configPath = join(path, 'config.json')
  const write = (content) => writeFileSync(configPath, JSON.stringify(content))
  write(config)
  const events = []
  const onEvent = (event) => events.push(event)
  const gateway = await Gateway.open({ configPath, stateDir: join(path, 'state'), workspaceFolder: path, guest, onEvent, ...options })
  afterwards(t, () => gateway.close())
  return { gateway, events, write }
}

export async function approve(gateway, name) {
  const { digest } = await gateway.providerRequest(name)
  return gateway.approveProvider(name, digest)
}

export const providerOf = (gateway, name) => gateway.providers().find((provider) => provider.name === name)
export const serverOf = (gateway, name) => gateway.servers().find((server) => server.name === name)
export const statesOf = (gateway) => Object.fromEntries(gateway.providers().map(({ name, state }) => [name, state]))
