// The state machine of a readable stream (https://streams.spec.whatwg.org/#rs): its states, its queue, and tee. Only default streams exist.
// There are no byte streams, writable streams or transform streams. stream_classes.js contains the classes for agent code.
//
// Every object here is a record without a prototype, so that nothing depends on what agent code sets on `Object.prototype`.
(web) => {
  const { react, quiet, isBytes } = web;
  const { apply } = Reflect;

  /** Makes a record of a promise and the functions that settle this promise. */
  function deferred() {
    const made = { __proto__: null, promise: undefined, resolve: undefined, reject: undefined };
    made.promise = new Promise((resolve, reject) => {
      made.resolve = resolve;
      made.reject = reject;
    });
    return made;
  }

  // ---- the stream --------------------------------------------------------------------------------------------------
  const isLocked = (stream) => stream.reader !== null;

  function closeStream(stream) {
    stream.state = "closed";
    const { reader } = stream;
    if (reader === null) return;
    reader.closed.resolve(undefined);
    const requests = reader.requests.splice(0);
    for (let index = 0; index < requests.length; index += 1) requests[index].close();
  }

  function errorStream(stream, error) {
    stream.state = "errored";
    stream.error = error;
    const { reader } = stream;
    if (reader === null) return;
    reader.closed.reject(error);
    quiet(reader.closed.promise);
    const requests = reader.requests.splice(0);
    for (let index = 0; index < requests.length; index += 1) requests[index].error(error);
  }

  /** Cancels a stream. Returns a promise that is fulfilled when the stream's source has handled the cancellation. */
  function cancelStream(stream, reason) {
    stream.disturbed = true;
    if (stream.state === "closed") return Promise.resolve(undefined);
    if (stream.state === "errored") return Promise.reject(stream.error);
    closeStream(stream);
    const { controller } = stream;
    clearQueue(controller);
    const { cancel } = controller;
    clearAlgorithms(controller);
    return react(cancel(reason), () => undefined);
  }

  // ---- the controller ----------------------------------------------------------------------------------------------
  function clearQueue(controller) {
    controller.queue = [];
    controller.total = 0;
  }

  function clearAlgorithms(controller) {
    const nothing = () => Promise.resolve(undefined);
    controller.pull = nothing;
    controller.cancel = nothing;
    controller.size = () => 1;
  }

  const canAdd = (controller) => !controller.closeRequested && controller.stream.state === "readable";

  function desiredSize(controller) {
    const { state } = controller.stream;
    if (state === "errored") return null;
    return state === "closed" ? 0 : controller.highWaterMark - controller.total;
  }

  function shouldPull(controller) {
    if (!canAdd(controller) || !controller.started) return false;
    const { reader } = controller.stream;
    return (reader !== null && reader.requests.length > 0) || desiredSize(controller) > 0;
  }

  function pullIfNeeded(controller) {
    if (!shouldPull(controller)) return;
    if (controller.pulling) {
      controller.pullAgain = true;
      return;
    }
    controller.pulling = true;
    const ended = () => {
      controller.pulling = false;
      if (!controller.pullAgain) return;
      controller.pullAgain = false;
      pullIfNeeded(controller);
    };
    react(controller.pull(), ended, (error) => errorController(controller, error));
  }

  function errorController(controller, error) {
    if (controller.stream.state !== "readable") return;
    clearQueue(controller);
    clearAlgorithms(controller);
    errorStream(controller.stream, error);
  }

  function closeController(controller) {
    if (!canAdd(controller)) return;
    controller.closeRequested = true;
    if (controller.queue.length > 0) return;
    clearAlgorithms(controller);
    closeStream(controller.stream);
  }

  function sizeOf(controller, chunk) {
    const size = Number(controller.size(chunk));
    if (!(size >= 0) || size === Infinity) throw new RangeError("the size of a chunk must be a finite number that is not negative");
    return size;
  }

  function enqueue(controller, chunk) {
    if (!canAdd(controller)) return;
    const { reader } = controller.stream;
    if (reader !== null && reader.requests.length > 0) {
      reader.requests.shift().chunk(chunk);
    } else {
      try {
        const size = sizeOf(controller, chunk);
        controller.queue[controller.queue.length] = { __proto__: null, chunk, size };
        controller.total += size;
      } catch (error) {
        errorController(controller, error);
        throw error;
      }
    }
    pullIfNeeded(controller);
  }

  /** Answers a read request from the queue. If the queue is empty, keeps the request until there is a chunk. */
  function pullSteps(controller, request) {
    const { stream } = controller;
    if (controller.queue.length === 0) {
      stream.reader.requests.push(request);
      pullIfNeeded(controller);
      return;
    }
    const { chunk, size } = controller.queue.shift();
    controller.total = Math.max(0, controller.total - size);
    if (controller.closeRequested && controller.queue.length === 0) {
      clearAlgorithms(controller);
      closeStream(stream);
    } else {
      pullIfNeeded(controller);
    }
    request.chunk(chunk);
  }

  /**
   * Makes a stream. `pull` and `cancel` return promises. The source has started when the promise that `start` returns is fulfilled. `start`
   * may throw.
   */
  function makeStream({ start, pull, cancel, highWaterMark, size }) {
    const stream = { __proto__: null, state: "readable", reader: null, error: undefined, disturbed: false, controller: undefined };
    const controller = { __proto__: null, stream, queue: [], total: 0, highWaterMark, size, pull, cancel };
    Object.assign(controller, { started: false, pulling: false, pullAgain: false, closeRequested: false });
    stream.controller = controller;
    const started = Promise.resolve(start(controller));
    const begin = () => {
      controller.started = true;
      pullIfNeeded(controller);
    };
    react(started, begin, (error) => errorController(controller, error));
    return stream;
  }

  const nothing = () => Promise.resolve(undefined);
  /** Makes a stream whose chunks are requested one by one. `pull` gets the controller. */
  function pulledStream(pull, cancel = nothing) {
    const source = { __proto__: null, start: () => undefined, cancel, highWaterMark: 0, size: () => 1 };
    const stream = makeStream({ ...source, pull: () => pull(stream.controller) });
    return stream;
  }

  /** Makes a stream of these bytes, which arrive in one chunk. */
  function streamOf(bytes) {
    return pulledStream(async (controller) => {
      if (bytes.length > 0) enqueue(controller, bytes);
      closeController(controller);
    });
  }

  // ---- the reader --------------------------------------------------------------------------------------------------
  function acquireReader(stream) {
    if (isLocked(stream)) throw new TypeError("the stream has a reader already: release its lock, or use tee()");
    const reader = { __proto__: null, stream, requests: [], closed: deferred() };
    stream.reader = reader;
    if (stream.state === "closed") reader.closed.resolve(undefined);
    if (stream.state === "errored") {
      reader.closed.reject(stream.error);
      quiet(reader.closed.promise);
    }
    return reader;
  }

  /** Reads a chunk. The request is a record of the functions `chunk`, `close` and `error`. Exactly one of them is called. */
  function read(reader, request) {
    const { stream } = reader;
    stream.disturbed = true;
    if (stream.state === "closed") request.close();
    else if (stream.state === "errored") request.error(stream.error);
    else pullSteps(stream.controller, request);
  }

  function release(reader) {
    const { stream } = reader;
    const error = new TypeError("the reader was released");
    if (stream.state === "readable") {
      reader.closed.reject(error);
    } else {
      reader.closed = deferred();
      reader.closed.reject(error);
    }
    quiet(reader.closed.promise);
    stream.reader = null;
    reader.stream = undefined;
    const requests = reader.requests.splice(0);
    for (let index = 0; index < requests.length; index += 1) requests[index].error(error);
  }

  /**
   * Reads all bytes of a stream, and calls `done` with the list of chunks. If this fails, calls `failed`. This function resolves no promise
   * with an object, because a promise would look for `then` on `Object.prototype`.
   */
  function readAll(stream, done, failed) {
    const chunks = [];
    const reader = acquireReader(stream);
    const next = () => read(reader, request);
    const request = {
      __proto__: null,
      chunk(chunk) {
        if (!isBytes(chunk)) {
          const error = new TypeError("a chunk of the body is not a Uint8Array");
          quiet(cancelStream(stream, error));
          failed(error);
          return;
        }
        chunks[chunks.length] = chunk;
        // The next step runs in a separate job, so that the stack does not grow with the number of chunks.
        react(Promise.resolve(undefined), next);
      },
      close: () => done(chunks),
      error: failed,
    };
    next();
  }

  // ---- tee ---------------------------------------------------------------------------------------------------------
  /** Splits a stream in two. If `copies` is true, the chunks of the second branch are copies. */
  function tee(stream, copies) {
    const reader = acquireReader(stream);
    const state = { __proto__: null, reading: false, again: false, cancelled: [false, false], reasons: [undefined, undefined] };
    const ended = deferred();
    const branches = [];
    const open = (action) => {
      for (const index of [0, 1]) if (!state.cancelled[index]) action(branches[index].controller, index);
    };
    const pull = () => {
      if (state.reading) {
        state.again = true;
        return Promise.resolve(undefined);
      }
      state.reading = true;
      read(reader, request);
      return Promise.resolve(undefined);
    };
    const deliver = (chunk) => {
      state.again = false;
      let copy = chunk;
      if (copies && !state.cancelled[1]) {
        try {
          copy = web.copyChunk(chunk);
        } catch (error) {
          for (const branch of branches) errorController(branch.controller, error);
          ended.resolve(cancelStream(stream, error));
          return;
        }
      }
      open((controller, index) => enqueue(controller, index === 0 ? chunk : copy));
      state.reading = false;
      if (state.again) pull();
    };
    const request = {
      __proto__: null,
      chunk: (chunk) => void react(Promise.resolve(undefined), () => deliver(chunk)),
      close() {
        state.reading = false;
        open((controller) => closeController(controller));
        if (state.cancelled.includes(false)) ended.resolve(undefined);
      },
      error() {
        state.reading = false;
      },
    };
    const cancel = (index) => (reason) => {
      state.cancelled[index] = true;
      state.reasons[index] = reason;
      if (!state.cancelled.includes(false)) ended.resolve(cancelStream(stream, [...state.reasons]));
      return ended.promise;
    };
    for (const index of [0, 1]) branches[index] = pulledOrQueued(pull, cancel(index));
    react(reader.closed.promise, undefined, (error) => {
      for (const branch of branches) errorController(branch.controller, error);
      if (state.cancelled.includes(false)) ended.resolve(undefined);
    });
    return branches;
  }

  /** Makes a branch of tee. Its queue requests one chunk in advance, as the standard requires. */
  const pulledOrQueued = (pull, cancel) => makeStream({ start: () => undefined, pull, cancel, highWaterMark: 1, size: () => 1 });

  /** Returns a stream with the chunks that `stream` still has. From this time, `stream` is locked and is treated as used. */
  function takeOver(stream) {
    const reader = acquireReader(stream);
    stream.disturbed = true;
    const pull = (controller) => {
      const { promise, resolve, reject } = deferred();
      const chunk = (value) => resolve(enqueue(controller, value));
      const close = () => resolve(closeController(controller));
      read(reader, { __proto__: null, chunk, close, error: reject });
      return promise;
    };
    return pulledStream(pull, (reason) => cancelStream(stream, reason));
  }

  web.copyChunk = (chunk) => (isBytes(chunk) ? apply(Uint8Array.prototype.slice, chunk, []) : structuredClone(chunk));
  const controller = { enqueue, close: closeController, error: errorController, desiredSize, canAdd };
  const reading = { acquireReader, read, release, readAll, deferred };
  web.streams = { __proto__: null, makeStream, pulledStream, streamOf, isLocked, cancelStream, tee, takeOver, controller, ...reading };
};
