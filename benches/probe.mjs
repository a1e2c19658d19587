// Measures one group of rows in a separate process, for bench.mjs, and prints the result as JSON.
//
//   node --expose-gc benches/probe.mjs '{ "subject": "calls", "guest": "auto", "rounds": 5, … }'
import { boot } from './probes/boot.mjs'
import { boxes } from './probes/boxes.mjs'
import { busy, bytes, calls } from './probes/calls.mjs'
import { floods } from './probes/floods.mjs'
import { parallel } from './probes/parallel.mjs'
import { registry } from './probes/registry.mjs'
import { growth, guest, memory, start, throughput } from './probes/sandboxes.mjs'
import { serve } from './probes/serve.mjs'

const SUBJECTS = { boot, boxes, busy, bytes, calls, floods, growth, guest, memory, parallel, registry, serve, start, throughput }

const { subject, ...task } = JSON.parse(process.argv[2])
console.log(JSON.stringify(await SUBJECTS[subject](task)))
