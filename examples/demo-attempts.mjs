// Attempts of agent code that must fail. demo.mjs makes them.
export const attempts = [
  { aim: 'read a file', code: `import { readFileSync } from 'node:fs'\nexport const handler = () => readFileSync('/etc/passwd', 'utf8')` },
  {
    aim: 'read a file that the filesystem server was not started for',
    code: `import { read_text_file } from 'host:mcp-files'\nexport const handler = () => read_text_file({ path: '/etc/passwd' })`,
  },
  { aim: 'reach the network', code: `export const handler = () => fetch('https://example.com')` },
  { aim: 'open a socket', code: `import { connect } from 'node:net'\nexport const handler = () => connect(443, 'example.com')` },
  { aim: 'import a server that is not approved', code: `export const handler = () => import('host:mcp-secrets')` },
  {
    aim: 'call a server that is not approved',
    code: `import { call } from 'host:mcp'\nexport const handler = () => call('secrets', 'get-env', {})`,
  },
  {
    aim: 'call a tool that may write, where a person says no',
    code: `import { delete_entities } from 'host:mcp-memory'\nexport const handler = () => delete_entities({ entityNames: ['src'] })`,
  },
]
