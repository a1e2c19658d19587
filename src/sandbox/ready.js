// Runs in a VM before the VM gets its run. This code writes to the memory pages to which nearly every run writes. So when the run starts,
// these pages have already been copied. The result of this code is not used, and the code leaves no state that a run could notice.
const { bind } = globalThis[Symbol.for("hyperlight-mcp")];
const call = bind("ready", "call");
class Row {
  #id;
  constructor(id) {
    this.#id = id;
  }
  get id() {
    return this.#id;
  }
}
export const handler = async (input) => {
  const rows = Array.from({ length: 400 }, (_, index) => ({ id: index, row: new Row(index), name: `row ${index}` }));
  const kept = rows.filter(({ row }) => row.id % 2 === 0).map(({ id, name }) => ({ id, name: name.toUpperCase() }));
  const { list } = call({ rows: kept });
  const text = JSON.stringify({ input, kept, list }).repeat(4);
  const found = new Map(Object.entries(JSON.parse(JSON.stringify(kept.slice(0, 20)))));
  await Promise.all(list.map(async (value) => String(value)));
  try {
    null.nothing();
  } catch (error) {
    console.log(error.message.length, found.size, text.replace(/row \d+/g, "").length);
  }
  return { kept: kept.slice(0, 3), bytes: new Uint8Array(16) };
};
