// Writes index.d.ts: the types of src/node/*.d.ts, and what napi-derive noted of the classes.
//
//   node scripts/lib/types.mjs NOTES INDEX
import { readFileSync, writeFileSync } from 'node:fs'
import { generateTypeDef } from '@napi-rs/cli'

const [typeDefDir, index] = process.argv.slice(2)
const dtsHeader = ['types', 'event-types', 'offer-types', 'approval-types', 'catalog-types', 'agent-types', 'command-types']
  .map((name) => readFileSync(`src/node/${name}.d.ts`, 'utf8'))
  .join('\n')
const { dts } = await generateTypeDef({ typeDefDir, dtsHeader, cwd: process.cwd() })
writeFileSync(index, dts)
