#!/usr/bin/env node
// The program itself is in the addon; signals and the terminal's width are Node's to know.
import { isatty } from 'node:tty'
import { fileURLToPath } from 'node:url'
import addon from '../index.js'

const columns = isatty(1) ? process.stdout.columns : isatty(2) ? process.stderr.columns : undefined
const [exitCode, stop] = addon.commandLine(process.argv.slice(2), columns, [process.execPath, fileURLToPath(import.meta.url)])
// A second one ends this process at once; the watchdog ends the servers.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, stop)
process.exit(await exitCode)
