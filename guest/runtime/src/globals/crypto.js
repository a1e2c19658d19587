// Defines the random functions of `crypto`, and Math.random. All random values come from the host, so they differ in every run, although
// all runs start from one snapshot.
(web, { expose, dress }) => {
  const INTEGERS = new Set(
    ["Int8", "Uint8", "Uint8Clamped", "Int16", "Uint16", "Int32", "Uint32", "BigInt64", "BigUint64"].map((name) => `${name}Array`),
  );
  const QUOTA = 65_536;

  class Crypto {
    getRandomValues(array) {
      if (!ArrayBuffer.isView(array) || !INTEGERS.has(array[Symbol.toStringTag]))
        throw new DOMException("getRandomValues takes a typed array of integers", "TypeMismatchError");
      if (array.byteLength > QUOTA)
        throw new DOMException(`getRandomValues fills at most ${QUOTA} bytes, not ${array.byteLength}`, "QuotaExceededError");
      if (array.byteLength > 0) new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(web.randomBytes(array.byteLength));
      return array;
    }
    randomUUID() {
      const bytes = web.randomBytes(16);
      bytes[6] = (bytes[6] & 0x0f) | 0x40;
      bytes[8] = (bytes[8] & 0x3f) | 0x80;
      return bytes.toHex().replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
    }
  }
  dress(Crypto);
  expose("crypto", new Crypto());
  Object.defineProperty(web.random, "name", { value: "random", configurable: true });
  Object.defineProperty(Math, "random", { value: web.random, writable: true, configurable: true });
};
