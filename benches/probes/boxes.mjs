// Measures what a box costs: the start of a server, a call, and a download from a host on the list of a box.
import { once } from 'node:events'
import { createServer } from 'node:http'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { median } from '../lib/statistics.mjs'
import { alternate, beside, entry, milliseconds, withGateway } from './common.mjs'

const STARTS = 10
const DOWNLOADS = 5
const DOWNLOAD_BYTES = 32 << 20
/** A box may make the start of a server this much slower. */
const START_MS = 30
const downloader = join(dirname(dirname(fileURLToPath(import.meta.url))), 'download-server.mjs')

/** Returns the median of the milliseconds of a start: from the switch to the first answer of a tool. */
async function starts(gateway, name) {
  const times = []
  for (let index = 0; index < STARTS; index += 1) {
    await gateway.disable(name)
    await gateway.enable(name)
    times.push(await milliseconds(() => gateway.callTool(name, 'echo_text', { text: 'hello' })))
  }
  return median(times)
}

/** Returns the median of the microseconds of a call. */
async function call(gateway, name, calls) {
  const times = []
  for (let index = 0; index < calls; index += 1)
    times.push(1000 * (await milliseconds(() => gateway.callTool(name, 'echo_text', { text: 'hello' }))))
  return median(times)
}

/** Returns the median of MiB that a server downloads in a second. */
async function download(gateway, name, url) {
  const rates = []
  for (let index = 0; index < DOWNLOADS; index += 1) {
    let got
    const time = await milliseconds(async () => {
      got = await gateway.callTool(name, 'download', { url })
    })
    if (Number(got.content[0].text) !== DOWNLOAD_BYTES) throw new Error(`${name} got ${JSON.stringify(got)}`)
    rates.push((DOWNLOAD_BYTES / 2 ** 20 / time) * 1000)
  }
  return median(rates)
}

async function servedBytes(work) {
  const body = Buffer.alloc(DOWNLOAD_BYTES, 'some bytes')
  const http = createServer((_, response) => response.end(body)).listen(0, '127.0.0.1')
  await once(http, 'listening')
  try {
    return await work(`127.0.0.1:${http.address().port}`)
  } finally {
    http.closeAllConnections()
    http.close()
  }
}

export async function boxes({ rounds, calls, server, guest }) {
  return servedBytes(async (host) => {
    const node = entry(process.execPath, downloader)
    const servers = {
      without: { ...entry(server), box: 'off' },
      within: { ...entry(server), box: 'standard' },
      free: { ...node, box: 'off' },
      border: { ...node, box: { network: [host] } },
    }
    const url = `http://${host}/`
    const found = await withGateway({ servers, guest }, async (gateway) => {
      for (const name of ['without', 'within']) await call(gateway, name, 50)
      return alternate(
        rounds,
        async () => ({ startWithout: await starts(gateway, 'without') }),
        async () => ({ startWithin: await starts(gateway, 'within') }),
        async () => ({ callWithout: await call(gateway, 'without', calls) }),
        async () => ({ callWithin: await call(gateway, 'within', calls) }),
        async () => ({ free: await download(gateway, 'free', url) }),
        async () => ({ border: await download(gateway, 'border', url) }),
      )
    })
    return {
      boxStart: {
        rounds: found.map((round) => ({ value: round.startWithin, reference: round.startWithout + START_MS })),
        details: [beside('without a box', 'ms', found, ({ startWithout }) => startWithout)],
      },
      boxCall: { rounds: found.map((round) => ({ value: round.callWithin, reference: round.callWithout })) },
      boxDownload: { rounds: found.map((round) => ({ value: round.border, reference: round.free })) },
    }
  })
}
