// fetch (https://fetch.spec.whatwg.org/#fetch-method). The host sends the request: it checks each address, follows redirects and limits
// sizes. This file is not a protection, because agent code could call the host without this file.
(web) => {
  const { expose, need, isBytes, react, quiet, streams, readBody, extractBody, readDataUrl, makeHeaders, stateOfHeaders, combined } = web;
  const { Request, stateOfRequest, makeResponse, NULL_BODY } = web;
  const { error: failStream, enqueue, close } = streams.controller;
  const { bind } = globalThis[Symbol.for("hyperlight-mcp")];
  const MODULE = "fetch:";
  const [open, read, cancel, abort] = ["open", "read", "cancel", "abort"].map((name) => bind(MODULE, name));
  const { addEventListener, removeEventListener } = EventTarget.prototype;
  const { apply } = Reflect;
  const descriptor = (name) => Object.getOwnPropertyDescriptor(AbortSignal.prototype, name).get;
  const [isAborted, reasonOf] = [descriptor("aborted"), descriptor("reason")];
  let count = 0;

  /** Makes the TypeError that the standard requires. If there is an error of the host, the TypeError has the code of this error. */
  function failure(error) {
    const made = new TypeError(error?.message ?? "fetch failed");
    if (error?.code !== undefined) made.code = error.code;
    return made;
  }

  /** Calls the host and does not wait for a result, because no code needs it. */
  function tell(call, argument) {
    try {
      call(argument);
    } catch {
      // The request or the body has ended already.
    }
  }

  /** Calls `action` when a signal is aborted. Returns a function that removes the listener. */
  function onAbort(signal, action) {
    const listener = () => action(apply(reasonOf, signal, []));
    apply(addEventListener, signal, ["abort", listener]);
    return () => apply(removeEventListener, signal, ["abort", listener]);
  }

  /** Returns the stream of a response's body. Each chunk is read from the host only when code reads the chunk from the stream. */
  function bodyStream(id, signal) {
    let over = false;
    const finish = () => {
      over = true;
      unlisten();
    };
    const pull = async (controller) => {
      try {
        const chunk = await read.async(id);
        if (over) return;
        if (isBytes(chunk)) return enqueue(controller, chunk);
        finish();
        close(controller);
      } catch (error) {
        if (over) return;
        finish();
        throw failure(error);
      }
    };
    const stream = streams.pulledStream(pull, async () => {
      finish();
      tell(cancel, id);
    });
    const unlisten = onAbort(signal, (reason) => {
      finish();
      tell(cancel, id);
      failStream(stream.controller, reason);
    });
    return stream;
  }

  function dataResponse(request) {
    const { type, bytes } = readDataUrl(request.url);
    const body = request.method === "HEAD" ? null : extractBody(bytes);
    const [headers, url] = [makeHeaders([["Content-Type", type]], "immutable"), request.url.href.replace(/#.*$/s, "")];
    return makeResponse({ __proto__: null, type: "basic", url, redirected: false, status: 200, statusText: "OK", headers, body });
  }

  function responseOf(reply, method, signal) {
    const body = reply.body === null ? null : { __proto__: null, stream: bodyStream(reply.body, signal), type: undefined, isStream: true };
    const { status, statusText, url, redirected } = reply;
    const headers = makeHeaders(reply.headers, "immutable");
    const usable = method === "HEAD" || NULL_BODY.includes(status) ? null : body;
    return makeResponse({
      __proto__: null,
      type: "basic",
      url: url.replace(/#.*$/s, ""),
      redirected,
      status,
      statusText,
      headers,
      body: usable,
    });
  }

  /** Headers that each request has, unless agent code sets others. */
  const DEFAULTS = [
    ["accept", "*/*"],
    ["accept-language", "*"],
  ];

  /** Returns the request in the form that the host's `open` accepts. Adds the default headers that agent code has not set. */
  function wireOf(request, body, id) {
    const { method, url, redirect } = request;
    const given = stateOfHeaders(request.headers).list;
    const headers = [...given, ...DEFAULTS.filter(([name]) => combined(given, name) === null)];
    const wire = { __proto__: null, id, method, url: url.href, headers, redirect };
    return body === null ? wire : { __proto__: null, ...wire, body };
  }

  /** Sends a request whose body has been read. `done` is called with the host's reply. */
  function send(request, body, id, control, done, failed) {
    if (control.over) return;
    control.opened = true;
    const ended = (action) => (value) => {
      control.opened = false;
      action(value);
    };
    react(
      open.async(wireOf(request, body, id)),
      ended(done),
      ended((error) => failed(failure(error))),
    );
  }

  function start(request, resolve, reject) {
    const { signal, body } = request;
    const control = { __proto__: null, over: false, opened: false };
    const id = ++count;
    const stop = (reason) => {
      control.over = true;
      unlisten();
      reject(reason);
      if (body !== null && !streams.isLocked(body.stream)) quiet(streams.cancelStream(body.stream, reason));
      if (control.opened) tell(abort, id);
    };
    const unlisten = onAbort(signal, stop);
    if (apply(isAborted, signal, [])) return stop(apply(reasonOf, signal, []));
    const settle = (action) => (value) => {
      if (control.over) return;
      control.over = true;
      unlisten();
      action(value);
    };
    const done = settle((reply) => resolve(responseOf(reply, request.method, signal)));
    const failed = settle(reject);
    if (request.integrity !== "") return failed(new TypeError("fetch: integrity is not supported"));
    if (request.url.protocol === "data:") {
      try {
        return settle(resolve)(dataResponse(request));
      } catch (error) {
        return failed(error);
      }
    }
    if (body === null) return send(request, null, id, control, done, failed);
    readBody(body, (bytes) => send(request, bytes, id, control, done, failed), failed);
  }

  function fetch(input, init = undefined) {
    return new Promise((resolve, reject) => {
      need(arguments, 1, "fetch");
      start(stateOfRequest(new Request(input, init)), resolve, reject);
    });
  }

  expose(fetch);
};
