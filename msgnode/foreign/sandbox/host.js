/**
 * The host of one foreign protostub, run by Deno: the MiniBUS, and the globals that a stub expects.
 *
 * The node speaks by lines of JSON on stdin and stdout (lines.py). The process has no network: WebSocket and fetch are
 * requests to the node. The node believes nothing of what comes out here; the care that this script takes of its own
 * primordials keeps a stub from breaking its host by accident, and a reader from wondering.
 */

const { parse, stringify } = JSON;
const { freeze, getOwnPropertyNames, create, defineProperty } = Object;
const { exit, inspect } = Deno;
const { setTimeout, TextDecoder, TextEncoder, EventTarget, Event, MessageEvent, CloseEvent, ErrorEvent } = globalThis;
const { URL, Request, Response, Headers, Blob, Uint8Array, ArrayBuffer, Error, Function, Promise } = globalThis;
const unbound = Function.prototype.bind.bind(Function.prototype.call);
const lower = unbound(String.prototype.toLowerCase);
const cut = unbound(String.prototype.slice);
const find = unbound(String.prototype.indexOf);
const has = unbound(Object.prototype.hasOwnProperty);
const encode = TextEncoder.prototype.encode.bind(new TextEncoder());
const decode = TextDecoder.prototype.decode.bind(new TextDecoder());
const read = Deno.stdin.read.bind(Deno.stdin);
const write = Deno.stdout.writeSync.bind(Deno.stdout);
const part = unbound(Uint8Array.prototype.subarray);
const toBase64 = unbound(Uint8Array.prototype.toBase64);
const fromBase64 = Uint8Array.fromBase64.bind(Uint8Array);
const addListener = globalThis.addEventListener.bind(globalThis);

const MAX_TEXT = 2000; // characters of a line of the console
const MAX_LISTENERS = 1000;
const MAX_CALLBACKS = 1000;
const MAX_BUFFERED = 16 * 1024 * 1024; // bytes that a socket has not sent yet
const CLOSE_MS = 700; // for sockets to close after disconnect()
const FIRST_RETRY_MS = 500; // connect() of a stub that does not come back by itself; then twice as long
const LAST_RETRY_MS = 30000;
// What a stub keeps of Deno's globals, beside those of the language.
const KEPT =
  'AbortController AbortSignal Blob CloseEvent CustomEvent DOMException ErrorEvent Event EventTarget FormData Headers ' +
  'MessageEvent Request Response TextDecoder TextEncoder URL URLSearchParams atob btoa clearInterval clearTimeout ' +
  'crypto global globalThis performance queueMicrotask self setInterval setTimeout structuredClone ReadableStream';
const LANGUAGE =
  'Object Function Array Number parseFloat parseInt Infinity NaN undefined Boolean String Symbol Date Promise RegExp ' +
  'Error AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError JSON Math Intl ArrayBuffer ' +
  'Uint8Array Int8Array Uint16Array Int16Array Uint32Array Int32Array BigUint64Array BigInt64Array Uint8ClampedArray ' +
  'Float32Array Float64Array Float16Array DataView Map BigInt Set Iterator WeakMap WeakSet Proxy Reflect WeakRef ' +
  'FinalizationRegistry decodeURI decodeURIComponent encodeURI encodeURIComponent escape unescape eval isFinite isNaN';

// -- lines --------------------------------------------------------------------

/** Blocks while the node does not read: a stub that writes too much waits here. */
function emit(line) {
  const bytes = encode(line + '\n');
  for (let at = 0; at < bytes.length; ) at += write(part(bytes, at));
}

function log(level, text) {
  emit(`{"k":"log","level":"${level}","text":${stringify(cut(`${text}`, 0, MAX_TEXT))}}`);
}

function wordsOf(why) {
  try {
    return `${why?.stack ?? why}`;
  } catch {
    return 'an exception that has no text';
  }
}

function guarded(what, call) {
  try {
    return call();
  } catch (why) {
    log('error', `${what}: ${wordsOf(why)}`);
  }
}

async function readLines(use) {
  const buffer = new Uint8Array(65536);
  let rest = '';
  for (let length; (length = await read(buffer)) !== null; ) {
    rest += decode(part(buffer, 0, length), { stream: true });
    for (let end; (end = find(rest, '\n')) >= 0; ) {
      const line = cut(rest, 0, end);
      rest = cut(rest, end + 1);
      use(parse(line));
    }
  }
  exit(0); // the node is gone
}

// -- the bus --------------------------------------------------------------------

class MiniBus {
  #url;
  #runtime;
  #limit;
  #listeners = create(null);
  #callbacks = create(null);
  #count = 0;
  #ids = 0;

  constructor({ url, limit, config }, status) {
    this.#url = url;
    this.#runtime = config.runtimeURL;
    this.#limit = limit;
    this.status = status;
  }

  /** What the stub gets. */
  get facade() {
    return freeze({
      addListener: (url, listener) => this.#add(url, listener),
      removeAllListenersOf: (url) => {
        this.#count -= this.#listeners[url]?.length ?? 0;
        delete this.#listeners[url];
      },
      postMessage: (message, callback) => this.#post(message, callback),
      addResponseListener: (url, id, callback) => this.#expect(url, id, callback),
      removeResponseListener: (url, id) => this.#answered(url, id),
      bind: () => {},
    });
  }

  #add(url, listener) {
    if (typeof listener !== 'function') throw new Error('a listener is a function');
    if (this.#count >= MAX_LISTENERS) throw new Error(`a bus has at most ${MAX_LISTENERS} listeners`);
    this.#count += 1;
    const before = this.#listeners[url];
    this.#listeners[url] = before ? [...before, listener] : [listener];
    const remove = () => {
      const all = this.#listeners[url] ?? [];
      const left = all.filter((each) => each !== listener);
      this.#count -= all.length - left.length;
      this.#listeners[url] = left;
    };
    return freeze({ url, remove });
  }

  #expect(url, id, callback) {
    if (this.#ids - MAX_CALLBACKS in this.#callbacks) delete this.#callbacks[this.#ids - MAX_CALLBACKS];
    this.#ids += 1;
    this.#callbacks[this.#ids] = { url, id, callback };
  }

  #answered(url, id) {
    for (const key in this.#callbacks) {
      const each = this.#callbacks[key];
      if (each.url === url && each.id === id) {
        delete this.#callbacks[key];
        return each.callback;
      }
    }
  }

  #post(message, callback) {
    const { type, from, to, body } = message;
    if (to === this.#url + '/status' && lower(`${type}`) === 'update') {
      this.status(body?.value, body?.desc);
      return message.id;
    }
    let sent = message;
    if (this.#isOwn(body?.via)) {
      sent = { ...message, body: { ...body } };
      delete sent.body.via;
    }
    if (typeof callback === 'function') this.#expect(from, message.id, callback);
    const text = stringify(sent);
    if (encode(text).length > this.#limit) throw new Error(`a message has at most ${this.#limit} bytes`);
    emit(`{"k":"posted","m":${text}}`);
    return message.id;
  }

  /** Stubs mark what they carry with their own address, or with that of their session. */
  #isOwn(via) {
    return via !== undefined && (via === this.#url || find(`${via}/`, `${this.#runtime}/`) === 0);
  }

  /** A message of the node's. Older stubs throw if there is no body. */
  deliver(message) {
    message.body ??= {};
    if (lower(`${message.type}`) === 'response') {
      const callback = this.#answered(message.to, message.id);
      if (callback) return guarded('a callback threw', () => callback(message));
    }
    this.#call(this.#listeners[message.to], message);
    if (message.to !== '*') this.#call(this.#listeners['*'], message);
  }

  #call(listeners, message) {
    for (let i = 0; listeners && i < listeners.length; i += 1) {
      guarded('a listener threw', () => listeners[i](message));
    }
  }
}

// -- the network, which is the node's ------------------------------------------------

const sockets = create(null);
const fetches = create(null);
let numbers = 0;

class WebSocket extends EventTarget {
  static CONNECTING = 0;
  static OPEN = 1;
  static CLOSING = 2;
  static CLOSED = 3;
  CONNECTING = 0;
  OPEN = 1;
  CLOSING = 2;
  CLOSED = 3;
  onopen = null;
  onmessage = null;
  onerror = null;
  onclose = null;
  binaryType = 'blob';
  extensions = '';
  protocol = '';
  readyState = 0;
  bufferedAmount = 0;
  #number = (numbers += 1);

  constructor(url, protocols = []) {
    super();
    this.url = `${new URL(url)}`.replace(/^http/, 'ws');
    const offered = stringify(typeof protocols === 'string' ? [protocols] : [...protocols]);
    sockets[this.#number] = this;
    emit(`{"k":"open","s":${this.#number},"url":${stringify(this.url)},"protocols":${offered}}`);
  }

  send(data) {
    if (this.readyState === 0) throw new Error('the WebSocket is still connecting');
    if (this.readyState !== 1) return;
    const isText = !(data instanceof ArrayBuffer || ArrayBuffer.isView(data) || data instanceof Blob);
    if (data instanceof Blob) {
      data.arrayBuffer().then((bytes) => this.send(bytes));
      return;
    }
    const bytes = isText ? encode(`${data}`) : new Uint8Array(data.buffer ?? data, data.byteOffset ?? 0, data.byteLength);
    if (this.bufferedAmount + bytes.length > MAX_BUFFERED) {
      this.close(1009, 'too much is buffered');
      return;
    }
    this.bufferedAmount += bytes.length;
    const content = isText ? `"text":${stringify(`${data}`)}` : `"base64":"${toBase64(bytes)}"`;
    emit(`{"k":"send","s":${this.#number},${content}}`);
  }

  close(code = 1000, reason = '') {
    if (this.readyState >= 2) return;
    this.readyState = 2;
    emit(`{"k":"close","s":${this.#number},"code":${+code || 1000},"reason":${stringify(cut(`${reason}`, 0, 123))}}`);
  }

  #fire(event) {
    this.dispatchEvent(event);
    const handler = this[`on${event.type}`];
    if (typeof handler === 'function') guarded(`on${event.type} threw`, () => handler.call(this, event));
  }

  static happened({ k, s, ...news }) {
    const socket = sockets[s];
    if (!socket) return;
    if (k === 'opened') {
      socket.readyState = 1;
      socket.protocol = news.protocol;
      socket.#fire(new Event('open'));
    } else if (k === 'sent') {
      socket.bufferedAmount -= news.n;
    } else if (k === 'closed') {
      delete sockets[s];
      socket.readyState = 3;
      if (!news.clean) socket.#fire(new ErrorEvent('error', { message: news.reason }));
      socket.#fire(new CloseEvent('close', { code: news.code, reason: news.reason, wasClean: news.clean }));
    } else {
      socket.#fire(new MessageEvent('message', { data: socket.#data(news), origin: new URL(socket.url).origin }));
    }
  }

  #data({ text, base64 }) {
    if (text !== undefined) return text;
    const bytes = fromBase64(base64);
    return this.binaryType === 'arraybuffer' ? bytes.buffer : new Blob([bytes]);
  }
}

async function fetch(input, init) {
  const request = new Request(input, init);
  const body = toBase64(new Uint8Array(await request.arrayBuffer()));
  const number = (numbers += 1);
  const { method, url } = request;
  request.signal.throwIfAborted();
  emit(stringify({ k: 'fetch', s: number, method, url, headers: [...request.headers], body }));
  return new Promise((answer, fail) => {
    fetches[number] = { answer, fail };
    request.signal.addEventListener('abort', () => {
      if (!fetches[number]) return;
      delete fetches[number];
      emit(`{"k":"abort","s":${number}}`);
      fail(request.signal.reason);
    });
  });
}

function fetched({ s, status, reason, headers, body, error }) {
  const { answer, fail } = fetches[s] ?? {};
  delete fetches[s];
  if (!answer) return;
  if (error !== undefined) return fail(new TypeError(error));
  const empty = status === 204 || status === 205 || status === 304;
  answer(new Response(empty ? null : fromBase64(body), { status, statusText: reason, headers: new Headers(headers) }));
}

// -- the code -----------------------------------------------------------------------

/** Deno's own globals go, but for those that belong to the web and reach nothing. */
function cleanGlobals() {
  const kept = create(null);
  for (const name of `${KEPT} ${LANGUAGE}`.split(' ')) kept[name] = true;
  for (const name of getOwnPropertyNames(globalThis)) {
    if (!kept[name] && !delete globalThis[name]) globalThis[name] = undefined;
  }
  // Deno's stdin uses them as they are at the time.
  for (const name of ['call', 'apply', 'bind']) {
    defineProperty(Function.prototype, name, { writable: false, configurable: false });
  }
}

function console() {
  const methods = create(null);
  const levels = { debug: 'debug', log: 'info', info: 'info', warn: 'warn', error: 'error', trace: 'debug', dir: 'info' };
  for (const name in levels) {
    methods[name] = (...args) => {
      let text = '';
      for (let i = 0; i < args.length && text.length < MAX_TEXT; i += 1) {
        text += (i ? ' ' : '') + (typeof args[i] === 'string' ? args[i] : guarded('console', () => inspect(args[i])));
      }
      log(levels[name], text);
    };
  }
  for (const name of ['assert', 'group', 'groupEnd', 'time', 'timeEnd', 'table', 'clear', 'count']) methods[name] = () => {};
  return methods;
}

/** Runs code as a script, as CommonJS and with SystemJS's `System.register`; what it defines, or what it exports. */
class Loader {
  #sources;
  #cache = create(null);
  #registered = create(null);
  #last;

  constructor(sources) {
    this.#sources = sources;
    this.system = freeze({
      register: (...args) => {
        const [name, dependencies, declare] = typeof args[0] === 'string' ? args : ['', ...args];
        this.#last = name;
        this.#registered[name] = { dependencies, declare };
      },
    });
  }

  require(name) {
    if (name === 'ws') return WebSocket;
    if (name === 'JSON') return JSON; // socket.io-client asks for it
    if (!has(this.#cache, name)) {
      if (!has(this.#sources, name)) throw new Error(`the stub asks for the module '${name}', which is not offered`);
      const module = this.#script(this.#sources[name]);
      this.#cache[name] = name === 'socket.io-client' ? byWebSocket(module.exports) : module.exports;
    }
    return this.#cache[name];
  }

  #script(source) {
    const module = { exports: {} };
    const names = ['module', 'exports', 'require', 'System'];
    const run = new Function(...names, source + '\n;return typeof activate === "undefined" ? undefined : activate;');
    module.activate = run.call(globalThis, module, module.exports, (name) => this.require(name), this.system);
    return module;
  }

  async load(source) {
    if (/^\s*export\s/m.test(source)) {
      return await import(`data:text/javascript;base64,${toBase64(encode(source))}`);
    }
    const { exports, activate } = this.#script(source);
    if (this.#last !== undefined) return await this.#link(this.#last);
    return activate ?? globalThis.activate ?? exports;
  }

  async #link(name) {
    const { dependencies, declare, found } = this.#registered[name];
    if (found) return found;
    const exports = (this.#registered[name].found = {});
    const give = (key, value) => {
      if (typeof key === 'object') Object.assign(exports, key);
      else exports[key] = value;
      return value;
    };
    const { setters = [], execute } = declare(give, { id: name }) ?? {};
    for (let i = 0; i < dependencies.length; i += 1) {
      const known = has(this.#registered, dependencies[i]);
      const module = known ? await this.#link(dependencies[i]) : this.require(dependencies[i]);
      setters[i]?.(known || module.default ? module : { ...module, default: module });
    }
    await execute?.();
    return exports;
  }
}

/** socket.io-client without polling, which would need XMLHttpRequest. */
function byWebSocket(io) {
  const connect = (url, options) => io(url, { ...options, transports: ['websocket'] });
  return Object.assign(connect, io, { connect });
}

class Stub {
  #status = '';
  #delay = FIRST_RETRY_MS;
  #retrying = false;

  constructor(start) {
    this.#url = start.url;
    this.bus = new MiniBus(start, (value, desc) => this.#said(value, desc));
  }
  #url;

  async run({ code, config, modules }) {
    const loader = new Loader(modules);
    globalThis.System = loader.system;
    const found = await loader.load(code);
    const entry = found.default?.default ?? found.default ?? found.activate ?? found;
    if (typeof entry !== 'function') {
      throw new Error('expected a default export that is a class or the function activate, found ' + typeof entry);
    }
    const bus = this.bus.facade;
    if (typeof entry.prototype?._start === 'function') {
      this.instance = new entry();
      this.instance._start(this.#url, bus, config, freeze({}));
      return;
    }
    this.instance = entry(this.#url, bus, config)?.instance;
    if (!this.instance) throw new Error('expected {name, instance} from activate');
    if (!this.#isConnecting) this.#connect();
  }

  get #isConnecting() {
    for (const _ in sockets) return true;
    return this.#status === 'live';
  }

  #connect() {
    if (typeof this.instance.connect !== 'function') return;
    const done = guarded('connect() threw', () => this.instance.connect());
    Promise.resolve(done).catch((why) => log('error', `connect() failed: ${wordsOf(why)}`));
  }

  #said(value, desc) {
    this.#status = value === 'connected' ? 'live' : `${value}`;
    const text = desc === undefined || desc === null ? '' : cut(`${desc}`, 0, MAX_TEXT);
    emit(`{"k":"status","value":${stringify(this.#status)},"desc":${stringify(text)}}`);
    if (this.#status === 'live') this.#delay = FIRST_RETRY_MS;
    else if (this.#status === 'disconnected') this.#retry();
  }

  /** Older stubs connect again only with the next message, which waits at the node until they are live. */
  #retry() {
    if (this.#retrying || this.stopping) return;
    this.#retrying = true;
    setTimeout(() => {
      this.#retrying = false;
      if (this.#status !== 'disconnected' || this.stopping) return;
      if (!this.#isConnecting && this.instance) this.#connect();
      this.#retry();
    }, this.#delay);
    this.#delay = this.#delay * 2 > LAST_RETRY_MS ? LAST_RETRY_MS : this.#delay * 2;
  }

  stop() {
    this.stopping = true;
    guarded('disconnect() threw', () => this.instance?.disconnect?.());
    const end = Date.now() + CLOSE_MS;
    const look = () => {
      for (const _ in sockets) if (Date.now() < end) return setTimeout(look, 20);
      emit('{"k":"stopped"}');
      exit(0);
    };
    look();
  }
}

// -- the node's lines ------------------------------------------------------------------

let stub;

function start(line) {
  cleanGlobals();
  Object.assign(globalThis, { console: console(), WebSocket, fetch });
  stub = new Stub(line);
  stub.run(line).then(
    () => emit('{"k":"started"}'),
    (why) => emit(`{"k":"failed","text":${stringify(cut(wordsOf(why), 0, MAX_TEXT))}}`),
  );
}

function received(line) {
  const { k } = line;
  if (k === 'post') stub.bus.deliver(line.m);
  else if (k === 'ping') emit(`{"k":"pong","n":${line.n}}`);
  else if (k === 'fetched') fetched(line);
  else if (k === 'start') start(line);
  else if (k === 'stop') stub.stop();
  else WebSocket.happened(line);
}

addListener('error', (event) => {
  event.preventDefault();
  log('error', wordsOf(event.error));
});
addListener('unhandledrejection', (event) => {
  event.preventDefault();
  log('error', `not handled: ${wordsOf(event.reason)}`);
});
readLines(received);
