// structuredClone (https://html.spec.whatwg.org/#structured-cloning).
(_web, { expose, kindOf, isPlatform }) => {
  const { defineProperty, getPrototypeOf, hasOwn, keys } = Object;
  const ERRORS = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
  const refuse = (what) => new DOMException(`${what} cannot be cloned`, "DataCloneError");

  function name(value) {
    if (typeof value === "function") return `function ${value.name || "(anonymous)"}`;
    if (typeof value === "symbol") return String(value);
    return `an object of ${value.constructor?.name || "no class"}`;
  }

  const PLAIN = Object.prototype;

  /**
   * Clones a value. `met` maps each object that was already cloned to its clone, for cycles and shared objects. `moved` are the buffers to
   * transfer.
   */
  function clone(value, met, moved) {
    if (typeof value === "symbol" || typeof value === "function") throw refuse(name(value));
    if (typeof value !== "object" || value === null) return value;
    const before = met.get(value);
    if (before !== undefined) return before;
    const keep = (copy) => {
      met.set(value, copy);
      return copy;
    };
    const kind = kindOf(value);
    if (kind === "Object" || kind === "Array") return cloneFields(value, kind, keep, met, moved);
    const inner = (part) => clone(part, met, moved);
    if (ArrayBuffer.isView(value)) return keep(cloneView(value, inner));
    switch (kind) {
      case "Number":
      case "String":
      case "Boolean":
      case "BigInt":
        return keep(Object(value.valueOf()));
      case "Date":
        return keep(new Date(value.getTime()));
      case "RegExp":
        return keep(new RegExp(value.source, value.flags));
      case "ArrayBuffer":
        return keep(moved.has(value) ? value.transfer() : copyBuffer(value));
      case "SharedArrayBuffer":
        throw refuse("a SharedArrayBuffer");
      case "Map": {
        const copy = keep(new Map());
        for (const [key, part] of [...value]) copy.set(inner(key), inner(part));
        return copy;
      }
      case "Set": {
        const copy = keep(new Set());
        for (const part of [...value]) copy.add(inner(part));
        return copy;
      }
      case "Error":
        return cloneError(value, keep, inner);
      case "DOMException":
        return keep(new DOMException(value.message, value.name));
      default:
        throw refuse(name(value));
    }
  }

  function cloneFields(value, kind, keep, met, moved) {
    // A plain object cannot be an instance of a platform class, so the check is skipped for it.
    if (kind === "Object" && getPrototypeOf(value) !== PLAIN && isPlatform(value)) throw refuse(name(value));
    const copy = keep(kind === "Array" ? new Array(value.length) : {});
    for (const key of keys(value)) {
      // A getter may have deleted this key during the loop.
      if (!hasOwn(value, key)) continue;
      const part = value[key];
      const cloned = typeof part === "object" || typeof part === "function" || typeof part === "symbol" ? clone(part, met, moved) : part;
      // An assignment would call an inherited setter, so an inherited name is defined as an own property.
      if (key in copy) put(copy, key, cloned);
      else copy[key] = cloned;
    }
    return copy;
  }

  /** Defines an own property, even if a setter for this key is inherited. */
  const put = (target, key, value) => defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true });

  function copyBuffer(buffer) {
    if (buffer.detached) throw refuse("a detached ArrayBuffer");
    if (!buffer.resizable) return buffer.slice(0);
    const copy = new ArrayBuffer(buffer.byteLength, { maxByteLength: buffer.maxByteLength });
    new Uint8Array(copy).set(new Uint8Array(buffer));
    return copy;
  }

  function cloneView(view, inner) {
    const { byteOffset, byteLength } = view;
    const type = view[Symbol.toStringTag] === undefined ? DataView : globalThis[view[Symbol.toStringTag]];
    const length = type === DataView ? byteLength : view.length;
    return new type(inner(view.buffer), byteOffset, length);
  }

  function cloneError(error, keep, inner) {
    const type = hasOwn(ERRORS, error.name) ? ERRORS[error.name] : Error;
    const copy = keep(new type());
    for (const key of ["message", "stack"]) {
      if (!hasOwn(error, key)) continue;
      defineProperty(copy, key, { value: String(error[key]), writable: true, configurable: true, enumerable: false });
    }
    if (hasOwn(error, "cause"))
      defineProperty(copy, "cause", { value: inner(error.cause), writable: true, configurable: true, enumerable: false });
    return copy;
  }

  function structuredClone(value, options = undefined) {
    if (arguments.length === 0) throw new TypeError("structuredClone takes 1 argument, but got 0");
    const moved = new Set(options?.transfer ?? []);
    for (const part of moved) {
      if (kindOf(part) !== "ArrayBuffer") throw refuse("a value in the transfer list that is not an ArrayBuffer");
      if (part.detached) throw refuse("a detached ArrayBuffer");
    }
    const met = new Map();
    const copy = clone(value, met, moved);
    for (const part of moved) if (!met.has(part)) part.transfer();
    return copy;
  }
  expose("structuredClone", structuredClone);
};
