/**
 * A client of a messaging node, for pages and for Node.js: it sends requests and answers, publishes and subscribes.
 *
 * Its session, which is acknowledged and resumed, is that of the protostub.
 */

import { Session } from '../src/session.js';
import { Delivery } from './delivery.js';
import { CannotConnect, ClientError, Closed, Full, Refused } from './errors.js';
import { Handlers, type Handler, type HandlerOptions, type RecordHandler } from './handlers.js';
import { Message, WAIT_SECONDS, bodyOf, sendAnswer, type Fields, type Header } from './message.js';
import { PendingRequests } from './pending_requests.js';
import { isRecordType, type AnyRecordType, type RecordType } from './records.js';
import { Registration, entry, question, registry, type RegistrationOptions } from './registration.js';
import { Subscriptions } from './subscriptions.js';

const MAX_BUFFER = 16777216; // characters of JSON
const MAX_MESSAGE = 8388608; // bytes; the node's default
const MAX_PASSED_ON = 1000; // forwarded requests whose refusal by the node is sent to their senders

export interface ClientOptions {
  /** The runtimeURL, the name of the session; without one the node makes up a name. */
  runtime?: string;
  /**
   * Who the user is, where the node requires it: an identity token, or a function that gives one.  It is called for
   * each connection, and when the node says that the last token is about to expire.
   */
  identity?: string | (() => string | Promise<string>);
  /** The session token (`client.token`) of an earlier session of `runtime`, to go on with it. */
  token?: string;
  /** The node's domain, if it is not that of `runtime`. */
  domain?: string;
  /** `false`: messages are neither acknowledged nor sent again. */
  resume?: boolean;
  /** `true`: the session survives a reload of the page, in sessionStorage.  It needs a `runtime`. */
  persist?: boolean;
  /** Where the node polls; the default is `/poll` beside `/ws`. */
  poll?: string;
  /** Characters of JSON that may wait for the node or its acknowledgement.  Default 16777216. */
  maxBuffer?: number;
  /** Bytes of the longest message the node takes.  Default 8388608. */
  maxMessage?: number;
  /** Every message carries the session's token to the node, which takes it out: for `message_token = "require"`. */
  messageToken?: boolean;
  /** A WebSocket class, where there is none, as in Node.js before 22; without any the client polls. */
  WebSocket?: unknown;
}

/** What `connect` takes. */
export interface ConnectOptions {
  /** Keep trying where the first attempt fails. */
  retry?: boolean;
  /** Stops the client when it is aborted before the session is open. */
  signal?: AbortSignal;
}

/** What becomes of the session. */
export interface State {
  /** Is the session open on a connection? */
  open: boolean;
  /** When it opened: it is the earlier session; if not, its addresses were bound again. */
  resumed?: boolean;
  /** When it opened: how many messages to this client are lost; null if nobody can know. */
  missed?: number | null;
  /** When it closed: why. */
  reason?: string;
  /** When it closed: the client does not come back by itself. */
  final?: boolean;
}

export interface SendOptions extends Header {
  /** The message's type; `update` for publications, `read` for requests. */
  type?: string;
  /** Another sender than the runtime: an address below it, or one that is bound to this session. */
  from?: string;
}

export interface RequestOptions extends SendOptions {
  /** Seconds to wait for the answer or the receipt.  Default 20. */
  timeout?: number;
  /** Waits no longer when it is aborted. */
  signal?: AbortSignal;
}

export interface DeliverOptions extends RequestOptions {
  /** Called with a receipt that is not final, while no route leads to the other domain. */
  waiting?: (receipt: Delivery) => unknown;
}

interface Events {
  state: State;
  heard: Message;
}

type Listeners = { [Name in keyof Events]: Set<(event: Events[Name]) => void> };
type News = { resumed: boolean; missed: number | null };
type Opening = { retry: boolean; resolve(): void; reject(why: Error): void };
/** What a browser offers to the client; tests bring their own. */
export type World = typeof globalThis;

/**
 * A client of a messaging node; `url` is that of the node's WebSocket, such as `wss://mn.example.org/ws`.
 *
 * Times are in seconds, as in the messages themselves.
 */
export class Client {
  /** Why the client has stopped for good. */
  stopped: ClientError | undefined;
  /** How many messages to this client are lost, as far as the node knows. */
  missed = 0;
  /** @internal */
  readonly world: World;
  private readonly _session: Session;
  private readonly _config: { runtimeURL: string; maxMessage: number };
  private readonly _domain: string;
  private readonly _handlers = new Handlers();
  private readonly _addresses: Subscriptions;
  private readonly _answers: PendingRequests<Message>;
  private readonly _receipts: PendingRequests<Delivery>;
  private readonly _passedOn = new Map<string, Fields>(); // by `from` and `id`
  private readonly _listeners: Listeners = { state: new Set(), heard: new Set() };
  private _flushing: { upTo: number; resolve(): void; reject(why: Error): void }[] = [];
  private _opening: Opening | undefined;
  private _isOpen = false;
  private _isClosing = false;
  private _id: number;

  constructor(url: string, options: ClientOptions = {}, world: World = globalThis) {
    const { runtime = '', domain = '', token = '', persist = false, messageToken = false, WebSocket, ...rest } = options;
    if (!/^(ws|http)s?:\/\/[^/]/.test(url)) {
      throw new TypeError(`expected a URL such as wss://mn.example.org/ws, not '${url}'`);
    }
    if ((token || persist) && !runtime) throw new TypeError("'token' and 'persist' need a 'runtime'");
    this.world = WebSocket ? Object.assign(Object.create(world), { WebSocket }) : world;
    // A page that was reloaded must not take the answer to a request of its last life for one of this.
    this._id = Math.floor(world.Math.random() * 2 ** 40);
    this._domain = domain;
    this._addresses = new Subscriptions(this, this._handlers);
    this._answers = new PendingRequests(world);
    this._receipts = new PendingRequests(world);
    const limits = { maxBuffer: MAX_BUFFER, maxMessage: MAX_MESSAGE };
    const config = { ...limits, ...rest, url, runtimeURL: runtime, persist, token: messageToken };
    this._config = config;
    this._session = new Session(this.world, config, {
      live: (news: News) => this._live(news),
      away: (why: string, isFinal: boolean, code: number) => this._away(why || `connection lost (${code})`, isFinal, code),
      message: (fields: Fields) => this._received(fields),
      refuse: (data: string, code: number, why: string) => this._refused(data, code, why),
      renewal: () => this._renewal(),
      acknowledged: () => this._lookFlushed(),
    });
    if (token) this._session.token = token;
  }

  // -- the session -----------------------------------------------------------

  get runtime(): string {
    return this._config.runtimeURL;
  }

  /** The session token, by which another client can go on with this session.  A secret. */
  get token(): string {
    return this._session.token;
  }

  get domain(): string {
    return this._domain || (this.runtime.split('://')[1] ?? '').split('/')[0]!;
  }

  /** Is the session open on a connection? */
  get isOpen(): boolean {
    return this._isOpen;
  }

  /**
   * Resolves when the session is open; from then on the client stays connected by itself.
   *
   * Rejects with CannotConnect if the first attempt fails, unless `retry`, and with Closed if the node refuses the
   * client for good.
   */
  connect({ retry = false, signal }: ConnectOptions = {}): Promise<void> {
    if (this.stopped) return Promise.reject(this.stopped);
    if (this._isOpen) return Promise.resolve();
    return new Promise<void>((resolve, reject) => {
      const aborted = () => this._giveUp(signal!.reason);
      if (signal?.aborted) return reject(signal.reason);
      signal?.addEventListener('abort', aborted);
      const end = () => signal?.removeEventListener('abort', aborted);
      const earlier = this._opening; // another call, which waits for the same session
      this._opening = {
        retry: retry || !!earlier?.retry,
        resolve: () => (earlier?.resolve(), end(), resolve()),
        reject: (why) => (earlier?.reject(why), end(), reject(why)),
      };
      if (!earlier) this._session.open();
    });
  }

  /** Resolves when the node has everything that was sent until now. */
  flushed(): Promise<void> {
    if (this.stopped) return Promise.reject(this.stopped);
    return new Promise((resolve, reject) => {
      this._flushing.push({ upTo: this._session.total, resolve, reject });
      this._lookFlushed();
    });
  }

  /**
   * Close the connection, and end the session with its addresses, unless `end` is false: then it stays at the node
   * until a client goes on with it.
   */
  async close({ end = true }: { end?: boolean } = {}): Promise<void> {
    this._isClosing = true;
    await this._session.close(!end);
  }

  /** Listen to what happens; returns a function that ends it. */
  on<Name extends keyof Events>(name: Name, listener: (event: Events[Name]) => void): () => void {
    const listeners = this._listeners[name];
    if (!listeners) throw new TypeError(`there is no event '${String(name)}'; there are 'state' and 'heard'`);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }

  // -- sending ---------------------------------------------------------------

  /** Send a message as it is, now or when there is a connection. */
  send(fields: Fields): void {
    if (this.stopped) throw this.stopped;
    const data = JSON.stringify(fields);
    const most = this._config.maxMessage;
    if (data.length * 3 > most && new TextEncoder().encode(data).length > most) {
      throw new Refused(413, `a message has at most ${most} bytes`);
    }
    if (!this._session.send(data, fields.ttl)) throw new Full(`${this._session.trouble}; wait for flushed()`);
  }

  /** Send a message that needs no answer, with a body or with a record and its value. */
  publish<Request>(to: string | string[], record: RecordType<Request, any>, value: Request, options?: SendOptions): void;
  publish(to: string | string[], body?: unknown, options?: SendOptions): void;
  publish(to: string | string[], ...given: unknown[]): void {
    const { options, ...sent } = parted<SendOptions>(given);
    this.send(this._compose(++this._id, 'update', to, sent, options));
  }

  /**
   * Publish, and resolve with the receipt, which says whether the message was delivered, and, for another domain, by
   * which nodes it went.
   *
   * While no route leads to the other domain, `waiting` is called with a receipt that is not final; if no other comes
   * in time, that is the result.  Rejects with TimedOut if none comes.
   */
  deliver<Request>(
    to: string, record: RecordType<Request, any>, value: Request, options?: DeliverOptions,
  ): Promise<Delivery>;
  deliver(to: string, body?: unknown, options?: DeliverOptions): Promise<Delivery>;
  async deliver(to: string, ...given: unknown[]): Promise<Delivery> {
    return this._ask(this._receipts, 'update', to, parted(given), { receipt: true });
  }

  /**
   * Send a request, with a body or with a record and its value, and resolve with the answer; that to a record has
   * the typed answer as `record`.
   *
   * Rejects with Refused if its code is 300 or more, or if it does not fit the record (502), with TimedOut if none
   * comes.
   */
  request<Request, Answer>(
    to: string, record: RecordType<Request, Answer>, value: Request, options?: RequestOptions,
  ): Promise<Message<Answer>>;
  request(to: string, body?: unknown, options?: RequestOptions): Promise<Message>;
  async request(to: string, ...given: unknown[]): Promise<Message<any>> {
    const sent = parted<RequestOptions>(given);
    const reply = await this._ask<Message>(this._answers, 'read', to, sent, {});
    return sent.record ? reply._answers(sent.record) : reply;
  }

  /** @internal Forward a request of another client.  An answer of the node to that is sent to its sender. */
  passOn(fields: Fields, to: string): void {
    this.send({ ...fields, to });
    this._passedOn.set(keyOf(fields.from, fields.id), fields);
    if (this._passedOn.size > MAX_PASSED_ON) this._passedOn.delete(this._passedOn.keys().next().value!);
  }

  private async _ask<M extends Message>(
    pending: PendingRequests<M>, type: string, to: string,
    { options, ...sent }: Sent<RequestOptions & { waiting?: (receipt: M) => unknown }>, more: Fields,
  ): Promise<M> {
    const { timeout = WAIT_SECONDS, signal, waiting, ...rest } = options;
    signal?.throwIfAborted();
    const id = ++this._id;
    const transaction = rest.transaction ?? randomText();
    this.send({ ...this._compose(id, type, to, sent, { ...rest, transaction }), ...more });
    const passedOn = rest.forward ? transaction : undefined;
    return pending.expect(id, to, timeout, { transaction: passedOn, signal, waiting });
  }

  private _compose(id: number, type: string, to: unknown, { record, body }: Content, options: SendOptions): Fields {
    const { type: given, from, ...header } = options;
    const message = { id, type: given ?? type, from: from || this.runtime, to, ...header, ...(record && { record: record.id }) };
    return body === undefined || body === null ? message : { ...message, body: bodyOf(body) };
  }

  // -- addresses ---------------------------------------------------------------

  /**
   * Handle messages with a record, or messages to an address and those below it; `'*'` is asked last, for messages
   * that nobody else handles.
   *
   * The address must be bound to this session: by `subscribe`, by `allocate`, or because it is at or below the
   * runtimeURL.
   */
  handle<Request, Answer>(
    record: RecordType<Request, Answer>, handler: RecordHandler<Request, Answer>, options?: HandlerOptions,
  ): void;
  handle(address: string, handler: Handler, options?: HandlerOptions): void;
  handle(what: string | AnyRecordType, handler: (message: any) => unknown, options: HandlerOptions = {}): void {
    this._handlers.add([what], handler, options);
  }

  /** Bind addresses to this session. */
  subscribe(addresses: string | Iterable<string>, handler?: Handler, options?: HandlerOptions): Promise<void> {
    return this._addresses.subscribe(listed(addresses), handler, options);
  }

  unsubscribe(addresses: string | Iterable<string>): Promise<void> {
    return this._addresses.unsubscribe(listed(addresses));
  }

  /** Allocate new addresses, which the node makes and binds to this session. */
  allocate(number = 1, options: { scheme?: string; handler?: Handler } & HandlerOptions = {}): Promise<string[]> {
    const { scheme = 'hyperty', handler, ...rest } = options;
    return this._addresses.allocate(number, scheme, handler, rest);
  }

  /** Give back allocated addresses. */
  free(addresses: string | Iterable<string>): Promise<void> {
    return this._addresses.free(listed(addresses));
  }

  /** Register a hyperty at the domain registry, and renew the entry until its `end`. */
  async register(url: string, options: RegistrationOptions): Promise<Registration> {
    return new Registration(this, url, entry(url, this.runtime, options)).begin();
  }

  /** Look up a hyperty, a data object or a user's hyperties at the domain registry; resolves with the entry. */
  async find(what: string, options: { resources?: string[]; schemes?: string[]; timeout?: number } = {}): Promise<Fields> {
    const { resources, schemes, timeout = WAIT_SECONDS } = options;
    const from = `${this.runtime}/discovery/`;
    const reply = await this.request(registry(this.domain), question(what, resources, schemes), { from, timeout });
    return (reply.body.value ?? {}) as Fields;
  }

  // -- receiving -----------------------------------------------------------------

  private _received(fields: Fields): void {
    const message = new Message(fields, this);
    const kind = message.type.toLowerCase();
    if (kind === 'response') {
      const key = keyOf(message.to, message.id);
      const request = this._passedOn.get(key);
      if (this._passedOn.delete(key)) return sendAnswer(this, request!, message.body);
      if (this._answers.heard(message)) return;
    }
    if (kind === 'receipt' && this._receipts.heard(new Delivery(fields, this))) return;
    if (this._handlers.offer(message)) return;
    if (this._listeners.heard.size) this._emit('heard', message);
    else if (message.wantsAnswer) message.refuse(404, `nobody answers at ${message.to} in this runtime`);
  }

  /** @internal A mistake of the application: it is shown as one that nobody caught, and the session goes on. */
  report(error: unknown): void {
    const { reportError, console } = this.world;
    if (reportError) reportError.call(this.world, error);
    else console.error(error);
  }

  // -- what the session says -------------------------------------------------------

  private _live(news: News): void {
    this._isOpen = true;
    this.missed += news.missed ?? 0;
    const opening = this._opening;
    this._opening = undefined;
    opening?.resolve();
    this._emit('state', { open: true, ...news });
  }

  private _away(reason: string, isFinal: boolean, code: number): void {
    const wasOpen = this._isOpen;
    this._isOpen = false;
    if (isFinal) {
      this._end(new Closed(code, this._isClosing ? 'by this client' : reason));
    } else if (this._opening && !this._opening.retry) {
      this._giveUp(new CannotConnect(reason));
      return;
    }
    if (wasOpen || isFinal) this._emit('state', { open: false, reason, final: !!isFinal });
  }

  /** The node has lost the session: what binds all addresses again. */
  private _renewal(): string[] {
    const resources = this._addresses.bound;
    if (!resources.length) return [];
    const id = ++this._id;
    const to = this._addresses.node('sm');
    this._flushing.forEach((each) => each.upTo++); // this one goes before all others
    this._answers.expect(id, to, WAIT_SECONDS).catch((error) => this._isOpen && this.report(error));
    return [JSON.stringify(this._compose(id, 'subscribe', to, { body: { resources } }, {}))];
  }

  /** A message is given up. */
  private _refused(data: string, code: number, why: string): void {
    const { id } = JSON.parse(data) as Fields;
    const error = this.stopped ?? new Refused(code, why);
    this._answers.fail(id, error);
    this._receipts.fail(id, error);
  }

  private _lookFlushed(): void {
    const { gone } = this._session;
    const done = this._flushing.filter(({ upTo }) => upTo <= gone);
    this._flushing = this._flushing.filter(({ upTo }) => upTo > gone);
    done.forEach(({ resolve }) => resolve());
  }

  private _giveUp(why: Error): void {
    const opening = this._opening;
    this._opening = undefined;
    this._isClosing = true;
    void this._session.close(true);
    opening?.reject(why);
  }

  private _end(why: Closed): void {
    this.stopped = why;
    const opening = this._opening;
    this._opening = undefined;
    opening?.reject(why);
    this._flushing.splice(0).forEach(({ reject }) => reject(why));
    this._answers.abandon(why);
    this._receipts.abandon(why);
  }

  private _emit<Name extends keyof Events>(name: Name, event: Events[Name]): void {
    for (const listener of this._listeners[name]) {
      try {
        listener(event);
      } catch (error) {
        this.report(error);
      }
    }
  }
}

/** What a message has: a body, whose record is known if it is typed. */
interface Content {
  record?: AnyRecordType;
  body: unknown;
}

type Sent<Options> = Content & { options: Options };

/** The arguments of a call that sends: a body and options, or a record, its value and options. */
function parted<Options extends object>([first, second, third]: unknown[]): Sent<Options> {
  return isRecordType(first)
    ? { record: first, body: first.toBody(second), options: (third ?? {}) as Options }
    : { body: first, options: (second ?? {}) as Options };
}

const keyOf = (from: unknown, id: unknown) => JSON.stringify([from, id]);

const listed = (addresses: string | Iterable<string>) => (typeof addresses === 'string' ? [addresses] : [...addresses]);

/** 128 random bits in base64url. */
function randomText(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}
