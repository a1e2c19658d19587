// FormData (https://xhr.spec.whatwg.org/#interface-formdata), and its encoding in a body, multipart/form-data
// (https://html.spec.whatwg.org/#multipart-form-data).
(web) => {
  const { expose, dress, need, isObject, text, iterable, joinBytes, latin1, toUtf8, fromUtf8, Blob, File, isBlob, isFile, blobBytes } = web;
  const { URLSearchParams } = globalThis;
  let entriesOf;

  /** Makes an entry. A Blob becomes a File. If `filename` is given, it becomes the name of the file. */
  function entry(given, what) {
    const [name, value, filename] = given;
    if (given.length > 2 && !isBlob(value)) throw new TypeError(`${what}: the second argument must be a Blob if there is a file name`);
    if (!isBlob(value)) return [text(name), text(value)];
    if (isFile(value) && given.length < 3) return [text(name), value];
    const options = { __proto__: null, type: value.type, lastModified: isFile(value) ? value.lastModified : undefined };
    return [text(name), new File([value], given.length > 2 ? text(filename) : "blob", options)];
  }

  class FormData {
    /** Entries are [name, value]; a value is a text or a File. */
    #entries = [];
    static {
      entriesOf = (form) => form.#entries;
      web.isForm = (value) => isObject(value) && #entries in value;
    }
    constructor(form = undefined) {
      if (form !== undefined) throw new TypeError("FormData takes no form here: there is no document");
    }
    append(name, value, filename = undefined) {
      need(arguments, 2, "append");
      this.#entries.push(entry(filename === undefined ? [name, value] : [name, value, filename], "append"));
    }
    delete(name) {
      need(arguments, 1, "delete");
      const wanted = text(name);
      this.#entries = this.#entries.filter(([found]) => found !== wanted);
    }
    get(name) {
      need(arguments, 1, "get");
      const wanted = text(name);
      return this.#entries.find(([found]) => found === wanted)?.[1] ?? null;
    }
    getAll(name) {
      need(arguments, 1, "getAll");
      const wanted = text(name);
      return this.#entries.filter(([found]) => found === wanted).map(([, value]) => value);
    }
    has(name) {
      need(arguments, 1, "has");
      const wanted = text(name);
      return this.#entries.some(([found]) => found === wanted);
    }
    set(name, value, filename = undefined) {
      need(arguments, 2, "set");
      const added = entry(filename === undefined ? [name, value] : [name, value, filename], "set");
      const first = this.#entries.findIndex(([found]) => found === added[0]);
      if (first < 0) this.#entries.push(added);
      else this.#entries = this.#entries.filter(([found], index) => found !== added[0] || index === first).with(first, added);
    }
  }

  // ---- to the wire -------------------------------------------------------------------------------------------------
  const newlines = (value) => value.replace(/\r\n?|\n/g, "\r\n");
  const escaped = (value) => value.replace(/\n/g, "%0A").replace(/\r/g, "%0D").replace(/"/g, "%22");

  /** Returns the bytes of a form and the type with its boundary. */
  function writeMultipart(form) {
    const random = () => Math.random().toString(36).slice(2, 12).padEnd(10, "0");
    const boundary = `----formdata-${random()}${random()}`;
    const parts = [];
    for (const [name, value] of entriesOf(form)) {
      const head = `--${boundary}\r\nContent-Disposition: form-data; name="${escaped(newlines(name))}"`;
      if (typeof value === "string") {
        parts.push(toUtf8(`${head}\r\n\r\n${newlines(value)}\r\n`));
      } else {
        const type = value.type || "application/octet-stream";
        parts.push(toUtf8(`${head}; filename="${escaped(value.name)}"\r\nContent-Type: ${type}\r\n\r\n`), blobBytes(value), toUtf8("\r\n"));
      }
    }
    parts.push(toUtf8(`--${boundary}--\r\n`));
    return { __proto__: null, bytes: joinBytes(parts), type: `multipart/form-data; boundary=${boundary}` };
  }

  // ---- from the wire -----------------------------------------------------------------------------------------------
  const broken = (problem) => new TypeError(`the body is not multipart/form-data: ${problem}`);
  const unescaped = (value) => value.replace(/%0A/gi, "\n").replace(/%0D/gi, "\r").replace(/%22/g, '"');

  /** Reads a parameter of Content-Disposition, such as `name="a"`. Quotes within the value are written as %22. */
  function parameter(header, wanted) {
    const found = new RegExp(`;[\\t ]*${wanted}="([^"]*)"`, "i").exec(header);
    return found === null
      ? undefined
      : unescaped(
          fromUtf8(
            Uint8Array.from(found[1], (byte) => byte.charCodeAt(0)),
            true,
          ),
        );
  }

  /** Reads the headers of a part. `lines` is a text in which each character is one byte. */
  function readHeaders(lines) {
    const headers = { __proto__: null, disposition: undefined, type: undefined };
    for (const line of lines === "" ? [] : lines.split("\r\n")) {
      const [whole, name] = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[\t ]*:/.exec(line) ?? [];
      if (whole === undefined || /[\0\r\n]/.test(line)) throw broken("a header of a part is not valid");
      const value = web.trimmed(line.slice(whole.length), "\t ");
      if (name.toLowerCase() === "content-disposition") headers.disposition = value;
      if (name.toLowerCase() === "content-type") headers.type = value;
    }
    const { disposition } = headers;
    if (disposition === undefined || !/^form-data[\t ]*;/i.test(disposition)) throw broken("a part has no Content-Disposition: form-data");
    const name = parameter(disposition, "name");
    if (name === undefined) throw broken("a part has no name");
    return { __proto__: null, name, filename: parameter(disposition, "filename"), type: headers.type };
  }

  /** Reads a form from the bytes of a body. */
  function readMultipart(bytes, boundary) {
    const form = new FormData();
    const body = latin1(bytes);
    const mark = `--${boundary}`;
    let at = body.startsWith("\r\n") ? 2 : 0;
    for (;;) {
      if (!body.startsWith(mark, at)) throw broken("it does not begin with its boundary");
      at += mark.length;
      if (body.startsWith("--", at)) return form;
      if (!body.startsWith("\r\n", at)) throw broken("a boundary is not at the end of its line");
      at += 2;
      const content = body.startsWith("\r\n", at) ? at : body.indexOf("\r\n\r\n", at) + 2;
      if (content < at) throw broken("the headers of a part have no end");
      const { name, filename, type } = readHeaders(body.slice(at, Math.max(at, content - 2)));
      const begin = content + 2;
      const end = body.indexOf(`\r\n${mark}`, begin);
      if (end < 0) throw broken("a part has no end");
      const value = bytes.subarray(begin, end);
      if (filename === undefined) {
        entriesOf(form).push([name, fromUtf8(value, true)]);
      } else {
        const written = type === undefined ? "text/plain" : type;
        entriesOf(form).push([name, new File([new Blob([value])], filename, { __proto__: null, type: written })]);
      }
      at = end + 2;
    }
  }

  /** Reads the form of a body with this type, or throws a TypeError. */
  function readForm(bytes, mime) {
    if (mime?.essence === "multipart/form-data") {
      const boundary = mime.parameters.get("boundary");
      if (boundary === undefined) throw broken("its type has no boundary");
      return readMultipart(bytes, boundary);
    }
    if (mime?.essence !== "application/x-www-form-urlencoded")
      throw new TypeError("formData() needs a body of type multipart/form-data or application/x-www-form-urlencoded");
    const form = new FormData();
    // A question mark at the beginning is part of the data in this case.
    for (const [name, value] of new URLSearchParams(`?${fromUtf8(bytes, true)}`)) entriesOf(form).push([name, value]);
    return form;
  }

  dress(FormData);
  iterable(FormData, (form) => entriesOf(form));
  expose(FormData);
  Object.assign(web, { writeMultipart, readForm });
};
