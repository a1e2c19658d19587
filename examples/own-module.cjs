// Modules of the agent's own, beside those of MCP servers: functions of this program that code in the micro-VM calls as if they
// were local. To the guest all of them are synchronous, those that give a promise here as well.
//
//   node examples/own-module.cjs
const { createHash } = require('node:crypto')
const { setTimeout: pause } = require('node:timers/promises')
const { Gateway } = require('hyperlight-mcp')

const orders = new Map([
  ['A-1', { customer: 'Ada', total: 120 }],
  ['A-2', { customer: 'Grace', total: 80 }],
])

// The guest only gets the results of these functions. It cannot reach `orders`, `require` or anything else of this process.
const shop = {
  // Synchronous.
  order: (id) => orders.get(id) ?? null,
  // Returns a promise. The guest waits for it, and this process continues.
  rate: async (currency) => {
    await pause(20) // a database, a web service
    return { EUR: 1, USD: 1.08 }[currency]
  },
  // Bytes go both ways, as Uint8Array.
  sign: (bytes) => new Uint8Array(createHash('sha256').update(bytes).digest()),
  // An error that is thrown here is thrown in the guest.
  refund: (id) => {
    throw new Error(`order ${id} is paid out already`)
  },
}

const code = `
  import { order, rate, sign, refund } from "host:shop";

  export function handler({ ids, currency }) {
    const total = ids.map((id) => order(id).total).reduce((sum, value) => sum + value, 0) * rate(currency);
    const receipt = Uint8Array.from(ids.join("\\n") + "\\n" + total, (character) => character.charCodeAt(0));
    let refused;
    try { refund(ids[0]) } catch (error) { refused = error.message }
    return { total, unknown: order("A-3"), receipt, signature: sign(receipt), refused };
  }
`

async function main() {
  // No servers at all: own modules need no approval, since they are part of this program.
  const gateway = await Gateway.open({ config: {} })
  try {
    const sandbox = await gateway.sandbox()
    sandbox.hostModule('shop', shop)
    const { value, stats } = await sandbox.run(code, { input: { ids: ['A-1', 'A-2'], currency: 'USD' } })
    console.log(`total: ${value.total}, of an unknown order: ${value.unknown}`)
    console.log(`receipt: ${value.receipt.length} bytes, signature: ${Buffer.from(value.signature).toString('hex').slice(0, 16)}…`)
    console.log(`refused: ${value.refused}`)
    console.log(`${stats.calls} calls out of the micro-VM in ${stats.callMs.toFixed(1)} ms`)
  } finally {
    await gateway.close()
  }
}

main().catch((error) => {
  console.error(`own-module: ${error.message}`)
  process.exitCode = 1
})
