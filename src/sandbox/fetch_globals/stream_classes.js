// ReadableStream, its default reader and its controller (https://streams.spec.whatwg.org/#rs-class).
(web) => {
  const { expose, dress, need, isObject, dictionary, oneOf, react, streams } = web;
  const { isLocked, cancelStream, acquireReader, read, release, deferred, controller: control } = streams;
  const { defineProperty, getPrototypeOf } = Object;
  const { apply } = Reflect;

  /** Maps between the objects that agent code has and the records of this file, in both directions. */
  const streamOfObject = new WeakMap();
  const objectOfStream = new WeakMap();
  const readers = new WeakMap();
  const controllers = new WeakMap();
  const objectOfController = new WeakMap();

  /** True while code of this file, and not agent code, makes an object of a class. */
  let inside = false;
  function make(type) {
    inside = true;
    try {
      return new type();
    } finally {
      inside = false;
    }
  }

  function known(map, object, what) {
    const record = isObject(object) ? map.get(object) : undefined;
    if (record === undefined) throw new TypeError(`this is not a ${what}`);
    return record;
  }
  const streamState = (object) => known(streamOfObject, object, "ReadableStream");
  const isStream = (value) => isObject(value) && streamOfObject.has(value);

  /** Returns the object of a stream for agent code. */
  function streamObject(stream) {
    let object = objectOfStream.get(stream);
    if (object === undefined) {
      object = make(ReadableStream);
      link(object, stream);
    }
    return object;
  }
  function link(object, stream) {
    streamOfObject.set(object, stream);
    objectOfStream.set(stream, object);
  }

  // ---- the controller ----------------------------------------------------------------------------------------------
  class ReadableStreamDefaultController {
    constructor() {
      if (!inside) throw new TypeError("Illegal constructor");
    }
    get desiredSize() {
      return control.desiredSize(known(controllers, this, "ReadableStreamDefaultController"));
    }
    close() {
      const state = known(controllers, this, "ReadableStreamDefaultController");
      if (!control.canAdd(state)) throw new TypeError("the stream is closed already, or has failed");
      control.close(state);
    }
    enqueue(chunk = undefined) {
      const state = known(controllers, this, "ReadableStreamDefaultController");
      if (!control.canAdd(state)) throw new TypeError("the stream is closed already, or has failed");
      control.enqueue(state, chunk);
    }
    error(reason = undefined) {
      control.error(known(controllers, this, "ReadableStreamDefaultController"), reason);
    }
  }

  function controllerObject(state) {
    let object = objectOfController.get(state);
    if (object === undefined) {
      object = make(ReadableStreamDefaultController);
      controllers.set(object, state);
      objectOfController.set(state, object);
    }
    return object;
  }

  // ---- the reader --------------------------------------------------------------------------------------------------
  class ReadableStreamDefaultReader {
    constructor(stream) {
      need(arguments, 1, "ReadableStreamDefaultReader");
      readers.set(this, acquireReader(streamState(stream)));
    }
    get closed() {
      try {
        return known(readers, this, "ReadableStreamDefaultReader").closed.promise;
      } catch (error) {
        return Promise.reject(error);
      }
    }
    async cancel(reason = undefined) {
      const reader = known(readers, this, "ReadableStreamDefaultReader");
      if (reader.stream === undefined) throw new TypeError("the reader was released");
      return cancelStream(reader.stream, reason);
    }
    read() {
      const { promise, resolve, reject } = deferred();
      try {
        const reader = known(readers, this, "ReadableStreamDefaultReader");
        if (reader.stream === undefined) throw new TypeError("the reader was released");
        read(reader, {
          __proto__: null,
          chunk: (value) => resolve({ value, done: false }),
          close: () => resolve({ value: undefined, done: true }),
          error: reject,
        });
      } catch (error) {
        reject(error);
      }
      return promise;
    }
    releaseLock() {
      const reader = known(readers, this, "ReadableStreamDefaultReader");
      if (reader.stream !== undefined) release(reader);
    }
  }

  // ---- the async iterator ------------------------------------------------------------------------------------------
  const asyncIterators = getPrototypeOf(getPrototypeOf(async function* () {}).prototype);
  const iterations = new WeakMap();

  /** Calls a step after all earlier steps of the iterator have ended. */
  function inOrder(iterator, step) {
    const state = iterations.get(iterator);
    if (state === undefined) return Promise.reject(new TypeError("this is not an iterator of a ReadableStream"));
    state.ongoing =
      state.ongoing === undefined
        ? step(state)
        : react(
            state.ongoing,
            () => step(state),
            () => step(state),
          );
    return state.ongoing;
  }

  function nextStep(state) {
    const { promise, resolve, reject } = deferred();
    if (state.finished) {
      resolve({ value: undefined, done: true });
      return promise;
    }
    const finish = () => {
      state.finished = true;
      release(state.reader);
    };
    read(state.reader, {
      __proto__: null,
      chunk: (value) => resolve({ value, done: false }),
      close() {
        finish();
        resolve({ value: undefined, done: true });
      },
      error(error) {
        finish();
        reject(error);
      },
    });
    return promise;
  }

  async function returnStep(state, value) {
    if (!state.finished) {
      state.finished = true;
      const { stream } = state.reader;
      const cancelled = state.preventCancel ? undefined : cancelStream(stream, value);
      release(state.reader);
      await cancelled;
    }
    return { value, done: true };
  }

  const iteratorPrototype = {
    __proto__: asyncIterators,
    next() {
      return inOrder(this, nextStep);
    },
    return(value = undefined) {
      return inOrder(this, (state) => returnStep(state, value));
    },
  };

  // ---- the stream --------------------------------------------------------------------------------------------------
  /** Reads the members of a source that agent code gives, in the order that the standard defines. */
  function sourceOf(source) {
    if (!isObject(source)) throw new TypeError("the source of a ReadableStream is not an object");
    const method = (name) => {
      const value = source[name];
      if (value !== undefined && typeof value !== "function") throw new TypeError(`${name} of the source is not a function`);
      return value;
    };
    void source.autoAllocateChunkSize;
    const [cancel, pull, start] = [method("cancel"), method("pull"), method("start")];
    const { type } = source;
    if (type !== undefined) {
      oneOf(type, ["bytes"], "the type of the source");
      throw new TypeError("byte streams are not supported here: leave out type, and enqueue Uint8Arrays");
    }
    return { __proto__: null, object: source, cancel, pull, start };
  }

  function strategyOf(given) {
    const strategy = dictionary(given, "the strategy of a ReadableStream");
    const { highWaterMark: mark, size } = strategy;
    if (size !== undefined && typeof size !== "function") throw new TypeError("size of the strategy is not a function");
    const highWaterMark = mark === undefined ? 1 : Number(mark);
    if (!(highWaterMark >= 0)) throw new RangeError("highWaterMark must be a number that is not negative");
    return { __proto__: null, highWaterMark, size: size === undefined ? () => 1 : (chunk) => size(chunk) };
  }

  /** Calls a function of agent code and returns a promise of its result. */
  async function promised(method, object, given) {
    if (method !== undefined) await apply(method, object, given);
  }

  class ReadableStream {
    constructor(underlyingSource = {}, strategy = undefined) {
      if (inside) return;
      const { object, cancel, pull, start } = sourceOf(underlyingSource);
      const { highWaterMark, size } = strategyOf(strategy);
      // `start` of agent code runs within this constructor, so the stream's object must be registered before `start` runs.
      const begin = (state) => {
        link(this, state.stream);
        return start === undefined ? undefined : apply(start, object, [controllerObject(state)]);
      };
      const stream = streams.makeStream({
        start: begin,
        pull: () => promised(pull, object, [controllerObject(stream.controller)]),
        cancel: (reason) => promised(cancel, object, [reason]),
        highWaterMark,
        size,
      });
    }
    static from(asyncIterable) {
      need(arguments, 1, "ReadableStream.from");
      return streamObject(fromIterable(asyncIterable));
    }
    get locked() {
      return isLocked(streamState(this));
    }
    async cancel(reason = undefined) {
      const stream = streamState(this);
      if (isLocked(stream)) throw new TypeError("a stream with a reader is cancelled by its reader");
      return cancelStream(stream, reason);
    }
    getReader(options = undefined) {
      const stream = streamState(this);
      const { mode } = dictionary(options, "the options of getReader");
      if (mode !== undefined) {
        oneOf(mode, ["byob"], "mode");
        throw new TypeError("readers with a buffer of their own are not supported here: leave out mode");
      }
      acquirable(stream);
      return new ReadableStreamDefaultReader(this);
    }
    tee() {
      return streams.tee(streamState(this), false).map(streamObject);
    }
    values(options = undefined) {
      const stream = streamState(this);
      const preventCancel = Boolean(dictionary(options, "the options of values").preventCancel);
      const iterator = { __proto__: iteratorPrototype };
      iterations.set(iterator, { __proto__: null, reader: acquireReader(stream), preventCancel, finished: false, ongoing: undefined });
      return iterator;
    }
    pipeTo() {
      return Promise.reject(new TypeError(`pipeTo is not supported here: ${INSTEAD}`));
    }
    pipeThrough() {
      throw new TypeError(`pipeThrough is not supported here: ${INSTEAD}`);
    }
  }
  const INSTEAD = "read with for await (const chunk of stream), and decode with new TextDecoder().decode(chunk, { stream: true })";

  function acquirable(stream) {
    if (isLocked(stream)) throw new TypeError("the stream has a reader already: release its lock, or use tee()");
  }

  /** Returns a stream of the values that a synchronous or asynchronous iterable gives. */
  function fromIterable(iterable) {
    if (iterable === null || iterable === undefined) throw new TypeError("ReadableStream.from takes an iterable");
    const method = iterable[Symbol.asyncIterator] ?? iterable[Symbol.iterator];
    if (typeof method !== "function") throw new TypeError("ReadableStream.from takes an iterable");
    const iterator = apply(method, iterable, []);
    if (!isObject(iterator)) throw new TypeError("the iterator is not an object");
    const { next } = iterator;
    const pull = async (controller) => {
      const step = await apply(next, iterator, []);
      if (!isObject(step)) throw new TypeError("the iterator gave no object");
      if (step.done) control.close(controller);
      else control.enqueue(controller, await step.value);
    };
    const cancel = async (reason) => {
      const end = iterator.return;
      if (end === undefined || end === null) return;
      if (!isObject(await apply(end, iterator, [reason]))) throw new TypeError("return of the iterator gave no object");
    };
    return streams.pulledStream(pull, cancel);
  }

  for (const type of [ReadableStream, ReadableStreamDefaultReader, ReadableStreamDefaultController]) {
    dress(type);
    expose(type);
  }
  const iterate = { value: ReadableStream.prototype.values, writable: true, configurable: true };
  defineProperty(ReadableStream.prototype, Symbol.asyncIterator, iterate);
  Object.assign(streams, { isStream, streamState, streamObject });
};
