#!/usr/bin/env node
// Starts the program, which is in the addon. Only Node can handle signals and get the width of the terminal.
import { isatty } from 'node:tty'
import { fileURLToPath } from 'node:url'
import addon from '../index.js'

const columns = isatty(1) ? process.stdout.columns : isatty(2) ? process.stderr.columns : undefined
const ended = new AbortController()
let client
const model = {
  /** Asks the model of `boot`. Its client is loaded only when tools have to be made. */
  async generate({ settings, request }) {
    client ??= import('./model.mjs').then(({ model }) => model(settings))
    try {
      return await (await client)({ ...request, signal: ended.signal })
    } catch (error) {
      if (error.refused) return { refused: error.message }
      throw error
    }
  },
}
let stop
const signals = ['SIGINT', 'SIGTERM', 'SIGHUP']
/** Ends the command. A second signal, also of another kind, ends this process at once; the watchdog ends the servers. */
function end() {
  for (const signal of signals) process.off(signal, end)
  ended.abort()
  stop()
}
// They are caught before the command begins, and handled after it has begun.
for (const signal of signals) process.on(signal, end)
const launch = [process.execPath, fileURLToPath(import.meta.url)]
const [exitCode, stopCommand] = addon.commandLine(process.argv.slice(2), columns, launch, model)
stop = stopCommand
process.exit(await exitCode)
