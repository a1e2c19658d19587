// A package that brings servers (examples/acme-mcp): found, approved by its digest, and then each of its servers approved and called.
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Gateway } from 'hyperlight-mcp'

// Installs the package as `npm install acme-mcp` would.
const project = mkdtempSync(join(tmpdir(), 'provider-example-'))
cpSync(new URL('./acme-mcp', import.meta.url), join(project, 'node_modules/acme-mcp'), { recursive: true })

const gateway = await Gateway.open({
  config: { providers: ['acme-mcp'] },
  workspaceFolder: project,
  stateDir: join(project, 'state'),
})
console.log('before:', gateway.providers()[0].state, gateway.servers().length, 'servers')

const request = await gateway.providerRequest('acme-mcp') // a person reads it before the next line
console.log('asked: ', request.package, request.version, request.file, `${request.files} files`)
await gateway.approveProvider('acme-mcp', request.digest)
for (const { name, state, missing } of gateway.servers()) console.log('brings:', name, state, ...(missing ?? []))

await gateway.approve('acme-mcp--greeter') // its servers need their own approval
await gateway.enable('acme-mcp--greeter')
const { content } = await gateway.callTool('acme-mcp--greeter', 'greet', { name: 'Ada' })
console.log('says:  ', content[0].text)

await gateway.close()
rmSync(project, { recursive: true })
