// Defines console (https://console.spec.whatwg.org). Each call writes one entry to the run's log. Returns the function that formats values.
(_web, { kindOf }, timers, log) => {
  const { create, defineProperty, getOwnPropertyDescriptor, getPrototypeOf, keys } = Object;
  const MAX_DEPTH = 4;
  /** The largest number of items in a list, set or map that is shown. More would make the log hard to read. */
  const MAX_ITEMS = 100;

  // ---- how values are written --------------------------------------------------------------------------------------
  function inspect(value, depth, seen) {
    if (typeof value === "string") return depth === 0 ? value : JSON.stringify(value);
    if (typeof value === "bigint") return `${value}n`;
    if (typeof value === "function") return `[${/^class\b/.test(String(value)) ? "class" : "Function"} ${value.name || "(anonymous)"}]`;
    if (typeof value !== "object" || value === null) return Object.is(value, -0) ? "-0" : String(value);
    if (seen.includes(value)) return "[Circular]";
    const show = (item) => inspect(item, depth + 1, [...seen, value]);
    if (value instanceof Error) return inspectError(value, show);
    if (depth > MAX_DEPTH) return Array.isArray(value) ? "[Array]" : "[Object]";
    if (ArrayBuffer.isView(value)) return `${value[Symbol.toStringTag] ?? "DataView"}(${value.byteLength})`;
    switch (kindOf(value)) {
      case "Array":
        return `[${some(value.length, (index) => (index in value ? show(value[index]) : "<empty>"))}]`;
      case "Map": {
        const entries = [...value];
        return `Map(${value.size}) {${some(entries.length, (index) => entries[index].map(show).join(" => "))}}`;
      }
      case "Set": {
        const items = [...value];
        return `Set(${value.size}) {${some(items.length, (index) => show(items[index]))}}`;
      }
      case "Date":
        return Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
      case "RegExp":
        return String(value);
      case "ArrayBuffer":
      case "SharedArrayBuffer":
        return `${kindOf(value)}(${value.byteLength})`;
      case "Promise":
        return "Promise {}";
      case "Number":
      case "String":
      case "Boolean":
      case "BigInt":
        return `[${kindOf(value)}: ${show(value.valueOf())}]`;
      default:
        return inspectObject(value, show);
    }
  }

  function inspectError(error, show) {
    const cause = Object.hasOwn(error, "cause") ? `\n[cause]: ${show(error.cause)}` : "";
    return `${error.name}: ${error.message}${error.stack ? `\n${error.stack}` : ""}${cause}`;
  }

  /** Writes the items separated by commas, and the number of items that are left out. */
  function some(count, show) {
    const items = Array.from({ length: Math.min(count, MAX_ITEMS) }, (_, index) => show(index));
    if (count > MAX_ITEMS) items.push(`… ${count - MAX_ITEMS} more`);
    return items.join(", ");
  }

  function inspectObject(value, show) {
    if (value instanceof URL || value instanceof URLSearchParams) return `${value.constructor.name} { ${value} }`;
    const type = getPrototypeOf(value)?.constructor;
    const name = typeof type === "function" && type !== Object && type.name ? `${type.name} ` : "";
    const names = keys(value);
    const field = (index) => {
      const property = getOwnPropertyDescriptor(value, names[index]);
      const key = /^[A-Za-z_$][\w$]*$/.test(names[index]) ? names[index] : JSON.stringify(names[index]);
      // A getter is not called, because it may have side effects.
      return `${key}: ${property !== undefined && "get" in property ? "[Getter]" : show(value[names[index]])}`;
    };
    return names.length === 0 ? `${name}{}` : `${name}{ ${some(names.length, field)} }`;
  }

  /** Writes a value and never throws, even if the value has getters or proxy traps that throw. */
  function write(value, depth = 0) {
    try {
      return inspect(value, depth, []);
    } catch {
      return `[${typeof value} that cannot be shown]`;
    }
  }

  // ---- the arguments of one call -----------------------------------------------------------------------------------
  const DIRECTIVES = {
    s: (value) => (typeof value === "string" ? value : write(value, 1)),
    d: (value) => (typeof value === "bigint" ? `${value}n` : typeof value === "object" ? "NaN" : String(Number(value))),
    i: (value) => (typeof value === "bigint" ? `${value}n` : String(Number.parseInt(value, 10))),
    f: (value) => String(Number.parseFloat(value)),
    j: (value) => JSON.stringify(value) ?? "undefined",
    o: (value) => write(value, 1),
    O: (value) => write(value, 1),
    c: () => "",
  };

  function format(values) {
    let rest = values;
    const texts = [];
    if (typeof values[0] === "string" && values.length > 1 && values[0].includes("%")) {
      rest = values.slice(1);
      texts.push(
        values[0].replace(/%([sdifjoOc%])/g, (whole, kind) => {
          if (kind === "%") return "%";
          if (rest.length === 0) return whole;
          const [value, ...others] = rest;
          rest = others;
          try {
            return DIRECTIVES[kind](value);
          } catch {
            return write(value, 1);
          }
        }),
      );
    }
    // map would pass the index as the depth of `write`.
    for (const value of rest) texts.push(write(value));
    return texts.join(" ");
  }

  // ---- tables --------------------------------------------------------------------------------------------------------
  /** Returns the number of terminal columns of a text: 2 for wide characters, 0 for combining ones. */
  function width(text) {
    let columns = 0;
    for (const character of text) {
      if (/\p{Mark}|\p{Cf}/u.test(character)) continue;
      columns +=
        /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u.test(
          character,
        )
          ? 2
          : 1;
    }
    return columns;
  }

  function table(rows, head) {
    const widths = head.map((_, column) => Math.max(...[head, ...rows].map((row) => width(row[column]))) + 2);
    const line = (left, middle, right) => left + widths.map((size) => "─".repeat(size)).join(middle) + right;
    const cell = (text, column) => ` ${text}${" ".repeat(widths[column] - 1 - width(text))}`;
    const row = (cells) => `│${cells.map(cell).join("│")}│`;
    return [line("┌", "┬", "┐"), row(head), line("├", "┼", "┤"), ...rows.map(row), line("└", "┴", "┘")].join("\n");
  }

  /** Returns [index, value] for each row, or undefined if the data has no rows. */
  function rowsOf(data) {
    if (typeof data !== "object" || data === null) return undefined;
    if (kindOf(data) === "Map") return [...data].map(([key, value], index) => [String(index), { Key: key, Values: value }]);
    if (kindOf(data) === "Set") return [...data].map((value, index) => [String(index), value]);
    return keys(data).map((key) => [key, data[key]]);
  }

  function tabulate(data, wanted) {
    const all = rowsOf(data);
    if (all === undefined) return write(data);
    const rows = all.slice(0, MAX_ITEMS);
    const isRecord = (value) => typeof value === "object" && value !== null && ["Object", "Array"].includes(kindOf(value));
    const columns = wanted ?? [...new Set(rows.flatMap(([, value]) => (isRecord(value) ? keys(value) : [])))];
    const hasValues = rows.some(([, value]) => !isRecord(value));
    const flat = (value) => write(value, 1).replaceAll("\n", " ");
    const texts = rows.map(([index, value]) => [
      index,
      ...columns.map((column) => (isRecord(value) && Object.hasOwn(value, column) ? flat(value[column]) : "")),
      ...(hasValues ? [isRecord(value) ? "" : flat(value)] : []),
    ]);
    const drawn = table(texts, ["(index)", ...columns.map(String), ...(hasValues ? ["Values"] : [])]);
    return all.length > rows.length ? `${drawn}\n… ${all.length - rows.length} more rows` : drawn;
  }

  // ---- console -------------------------------------------------------------------------------------------------------
  let indent = "";
  const counts = new Map();
  const clocks = new Map();
  const put = (level, text) => log(level, indent === "" ? text : text.replace(/^/gm, indent));

  const console = create(null);
  const methods = {
    trace: (...values) => put("debug", format(values)),
    assert(condition, ...values) {
      if (!condition) put("error", `Assertion failed${values.length > 0 ? `: ${format(values)}` : ""}`);
    },
    table: (data, columns = undefined) => put("log", tabulateSafely(data, columns)),
    dir: (value) => put("log", write(value, 1)),
    dirxml: (...values) => put("log", format(values)),
    group(...labels) {
      if (labels.length > 0) put("log", format(labels));
      indent += "  ";
    },
    groupEnd() {
      indent = indent.slice(2);
    },
    count(label = "default") {
      counts.set(`${label}`, (counts.get(`${label}`) ?? 0) + 1);
      put("log", `${label}: ${counts.get(`${label}`)}`);
    },
    countReset: (label = "default") => void counts.delete(`${label}`),
    time: (label = "default") => void clocks.set(`${label}`, timers.now()),
    timeLog: (label = "default", ...values) => lap(label, values),
    timeEnd(label = "default") {
      lap(label, []);
      clocks.delete(`${label}`);
    },
    clear() {},
  };
  methods.groupCollapsed = methods.group;

  function tabulateSafely(data, columns) {
    try {
      return tabulate(data, columns === undefined ? undefined : [...columns].map(String));
    } catch {
      return write(data);
    }
  }

  function lap(label, values) {
    const begun = clocks.get(`${label}`);
    if (begun === undefined) return put("warn", `Timer "${label}" does not exist`);
    const more = values.length > 0 ? ` ${format(values)}` : "";
    put("log", `${label}: ${(timers.now() - begun).toFixed(3)} ms${more}`);
  }

  for (const level of ["log", "info", "warn", "error", "debug"]) methods[level] = (...values) => put(level, format(values));
  for (const [name, method] of Object.entries(methods)) console[name] = defineProperty(method, "name", { value: name });
  defineProperty(console, Symbol.toStringTag, { value: "console" });
  globalThis.console = console;
  globalThis.print = console.log;
  return (values) => format(values);
};
