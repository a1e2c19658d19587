// Measures a hundred calls of a tool that takes 50 ms, from one run, with `Promise.all` of their asynchronous form. Compares them with one
// such call.
import { alternate, beside, entry, withGateway } from './common.mjs'

const [CALLS, WAIT] = [100, 50]

const CODE = (module) => `
  import * as slow from "host:${module}";
  const time = async (work) => {
    const started = performance.now();
    await work();
    return performance.now() - started;
  };
  export async function handler({ calls, ms, ones }) {
    if (typeof slow.sleep.async !== "function") return null;
    slow.sleep({ ms: 0 });
    const times = [];
    for (let index = 0; index < ones; index += 1) times.push(await time(() => slow.sleep({ ms })));
    let answers;
    const all = await time(async () => {
      answers = await Promise.all(Array.from({ length: calls }, () => slow.sleep.async({ ms })));
    });
    if (!answers.every((answer) => answer === "slept")) throw new Error("a call answered something else: " + JSON.stringify(answers.slice(0, 3)));
    return { one: times.sort((a, b) => a - b)[Math.floor(ones / 2)], all };
  }`

const measure = async (sandbox, module) => (await sandbox.run(CODE(module), { input: { calls: CALLS, ms: WAIT, ones: 5 } })).value

export async function parallel({ rounds, server, nodeServer, guest }) {
  const servers = { fixture: entry(server), node: entry(process.execPath, nodeServer) }
  const found = await withGateway({ servers, guest }, async (gateway) => {
    const sandbox = await gateway.sandbox()
    if ((await measure(sandbox, 'mcp-fixture')) === null) return undefined
    return alternate(
      rounds,
      async () => ({ rust: await measure(sandbox, 'mcp-fixture') }),
      async () => ({ node: await measure(sandbox, 'mcp-node') }),
    )
  })
  if (found === undefined) return { parallel: { unavailable: 'functions of modules have no .async here' } }
  return {
    parallel: {
      rounds: found.map(({ rust }) => ({ value: rust.all, reference: rust.one })),
      details: [
        beside('a Node server, all', 'ms', found, ({ node }) => node.all),
        beside('a Node server, one call', 'ms', found, ({ node }) => node.one),
        beside('a Node server, all to one', 'times', found, ({ node }) => node.all / node.one),
      ],
    },
  }
}
