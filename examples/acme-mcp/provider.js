// The file that package.json names. It runs in a process of its own once a person has approved the package, without an environment, for at most 2 s.
import { fileURLToPath } from 'node:url'

export const servers = () => [
  {
    name: 'greeter',
    command: 'node',
    args: [fileURLToPath(new URL('./server.js', import.meta.url))],
    capabilities: ['greetings'],
    keywords: ['greet', 'good morning'],
    description: 'Greets people',
  },
  // A server that is a package of its own, and needs a key. Without the key it is "not-ready".
  { name: 'files', package: '@acme/mcp-files', envRequired: ['ACME_API_KEY'], capabilities: ['files'] },
]
