/* msgnode client, Apache-2.0; the source is in msgnode/stub/client */
/**
 * A message as a handler gets it.  The handler may answer it, hold it, forward it, or keep it.
 */
/** The JSON object in a message's `body`. */
type Body = {
    [key: string]: unknown;
};
/** A whole message: its header fields, and `body`. */
type Fields = {
    [key: string]: unknown;
};
/** Header fields that a sender may set; docs/protocol.md describes them. */
interface Header {
    /** 0 to 9; what has more leaves first where messages wait.  5 without it. */
    priority?: number;
    /** Seconds that the message is worth waiting for. */
    ttl?: number;
    /** A message of a large transfer, behind all others. */
    bulk?: boolean;
    /** `false`: no node logs the message. */
    log?: boolean;
    /** The recipient may let another client answer. */
    forward?: boolean;
    /** `false`: no answer is wanted. */
    answer?: boolean;
    /** At most 64 characters, or an integer; repeated in the answer, the receipt and the nodes' logs. */
    transaction?: string | number;
    /** Ask the nodes between domains to compress, or not to. */
    compress?: boolean;
    /** `true`: between domains the message travels encrypted or not at all. */
    encrypt?: boolean;
    /** W3C trace context; nodes log it. */
    traceparent?: string;
}
/** What a message needs of its client. */
interface Requester {
    readonly domain: string;
    readonly world: Pick<typeof globalThis, 'setTimeout' | 'clearTimeout' | 'Date'>;
    send(fields: Fields): void;
    passOn(fields: Fields, to: string): void;
    request(to: string, body?: unknown, options?: {
        type?: string;
        timeout?: number;
        record?: string;
    } & Header): Promise<Message>;
    report(error: unknown): void;
}
/** The value that a handler returns for a request that it does not handle; its sender gets 501. */
declare const NOT_HANDLED: unique symbol;
/** Seconds that a request is held, unless `hold` says otherwise. */
declare const HOLD_SECONDS = 60;
/** Seconds to wait for an answer, unless `timeout` says otherwise. */
declare const WAIT_SECONDS = 20;
/** The answer to a typed request; anything where answers have no type. */
type Answerable<Answer> = [Answer] extends [undefined] ? unknown : Answer;
/** A message as a handler gets it.  `Record` is the type of its body, and `Answer` that of its answer. */
declare class Message<Record = undefined, Answer = undefined> {
    /** The whole JSON object. */
    readonly fields: Fields;
    /**
     * The typed body, where a handler of this record got the message, or it is the answer to a typed request; otherwise
     * undefined.
     */
    readonly record: Record;
    constructor(
    /** The whole JSON object. */
    fields: Fields, 
    /** @internal */ _client: Requester);
    get id(): unknown;
    get type(): string;
    get from(): string;
    get to(): string;
    /** The body of the message; empty if there is none. */
    get body(): Body;
    /** Is it a request, whose sender waits for an answer? */
    get wantsAnswer(): boolean;
    /**
     * The answer to a typed request, which a handler may fill in: it is sent if the handler returns nothing.
     *
     * It has the request's values of the slots that both have; undefined if answers have no slots.
     */
    get reply(): Partial<Answer>;
    /**
     * Answer with a body, or with a value, which becomes the body's `value`.  Only the first answer counts.
     *
     * The answer to a typed request is a value of its record, and `reply` unless it is given; throws an error with the
     * slot's name if it does not fit.  Throws if JSON does not have the value.
     */
    answer(result?: Answerable<Answer>, code?: number): void;
    private _bodyOf;
    private _send;
    /** Answer with an error; `reason` is one word, for programs. */
    refuse(code: number, text: string, reason?: string): void;
    /** Answer later: what the handler returns is not the answer.  After `seconds` the sender gets 504. */
    hold(seconds?: number): this;
    /** Send no answer from this client; what the handler returns is ignored. */
    keep(): this;
    /**
     * Let another address answer.
     *
     * If the sender allows it (`forward`), the message goes on unchanged, and the other recipient answers the
     * sender.  Otherwise, and for addresses of the node itself, this client sends the request and returns its answer,
     * each treated by nodes as the other client asked: `log`, `encrypt`, `priority`.
     */
    forward(to: string, seconds?: number): Promise<void>;
    private _set;
}

/**
 * Receipts: what became of a message, and over which nodes it went (docs/protocol.md, "Receipts").
 */

/** A node that a message passed, and the microseconds that it stayed there. */
interface Hop {
    node: string;
    micros: number;
}
/** A receipt. */
declare class Delivery extends Message {
    /** What became of the message, as docs/protocol.md lists the codes. */
    get code(): number;
    /** The same in words. */
    get text(): string;
    /** One word, for programs. */
    get reason(): string;
    /** Is it the last receipt?  The one before it says that the message waits for a route. */
    get isFinal(): boolean;
    /**
     * The nodes of all domains that the message passed, the sender's first, which is alone if the message did not get
     * to the other domain.  It is empty for a message within one domain.
     */
    get path(): Hop[];
}

/**
 * The errors of a client, with texts that its user can act on.
 */

/** The base class of these errors. */
declare class ClientError extends Error {
    constructor(text: string);
}
/** No node was reached, or the peer is not a node. */
declare class CannotConnect extends ClientError {
    readonly name = "CannotConnect";
}
/** A request was answered with a code of 300 or more.  A handler throws it to send such an answer. */
declare class Refused extends ClientError {
    /** The code of the answer, as docs/protocol.md lists them. */
    readonly code: number;
    readonly text: string;
    /** The whole body of the answer. */
    readonly body: Body;
    readonly name = "Refused";
    constructor(
    /** The code of the answer, as docs/protocol.md lists them. */
    code: number, text?: string, 
    /** The whole body of the answer. */
    body?: Body);
    /** One word for programs, as docs/protocol.md lists them; may be empty. */
    get reason(): string;
}
/** A request got no answer in time. */
declare class TimedOut extends ClientError {
    readonly name = "TimedOut";
}
/** The session has ended, and the client does not come back by itself. */
declare class Closed extends ClientError {
    /** The close code, as docs/protocol.md lists them; 1000 if this client closed. */
    readonly code: number;
    readonly word: string;
    readonly name = "Closed";
    constructor(
    /** The close code, as docs/protocol.md lists them; 1000 if this client closed. */
    code: number, word: string);
}
/** Too many messages are not acknowledged; wait for `flushed`. */
declare class Full extends ClientError {
    readonly name = "Full";
}

/**
 * Records, as the client needs them: typed bodies, whose code `msgnode records generate` writes.
 *
 * The client knows that code by its interface only, so that neither imports the other.
 */

/** What reads and writes one of the bodies of a record. */
interface BodyType<Value> {
    /** The UUID in the header field `record`. */
    readonly id: string;
    readonly name: string;
    /** The slots; `field` is the property that has the value. */
    readonly slots: readonly {
        readonly field: string;
    }[];
    /** The body of a value; throws an error with the slot's name if it does not fit. */
    toBody(value: Value): Body;
    /** The value of a body; throws an error with the slot's name if it does not fit. */
    fromBody(body: unknown): Value;
}
/**
 * A kind of message, as generated code exports it: it reads and writes bodies.
 *
 * `Answer` is undefined if answers have no slots.  `answer` is absent then, and where answers have the same slots.
 */
interface RecordType<Request, Answer = undefined> extends BodyType<Request> {
    readonly answer?: BodyType<Answer> | undefined;
    readonly hasSameAnswer: boolean;
}

/**
 * Handlers of messages, by the record in the body or by the address.
 */

/** What is called with each message; docs/typescript.md says what becomes of what it returns. */
type Handler = (message: Message) => unknown;
/** What a handler of a record may return: the answer, or nothing, and `message.reply` is the answer. */
type Answered<Answer> = Answer | typeof NOT_HANDLED | undefined | null | void;
/** What is called with each message that has a record. */
type RecordHandler<Request, Answer> = (message: Message<Request, Answer>) => Answered<Answer> | Message<Request, Answer> | PromiseLike<Answered<Answer> | Message<Request, Answer>>;
interface HandlerOptions {
    /** Run an asynchronous handler for one message after another, never at the same time. */
    serial?: boolean;
}

/**
 * The registration of a hyperty in the domain registry: create, refresh, and end.
 */

/** Seconds until an entry expires unless it is refreshed; a registry allows no more. */
declare const EXPIRES_SECONDS = 3600;
interface RegistrationOptions {
    /** The `user://` URL of its owner. */
    user: string;
    descriptor?: string;
    resources?: string[];
    schemes?: string[];
    /** 1 to 3600 seconds; the client refreshes the entry in time. */
    expires?: number;
}
/** The registry entry of one hyperty; `url` is its address. */
declare class Registration {
    private readonly _client;
    readonly url: string;
    private readonly _entry;
    private _again;
    /** Set the status of the hyperty to disconnected. */
    end(): Promise<void>;
    /** Stop refreshing the entry, so that it expires. */
    stop(): void;
    private _wait;
    private _refresh;
    private _registerAgain;
    private _ask;
}

/**
 * A client of a messaging node, for pages and for Node.js: it sends requests and answers, publishes and subscribes.
 *
 * Its session, which is acknowledged and resumed, is that of the protostub.
 */

interface ClientOptions {
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
interface ConnectOptions {
    /** Keep trying where the first attempt fails. */
    retry?: boolean;
    /** Stops the client when it is aborted before the session is open. */
    signal?: AbortSignal;
}
/** What becomes of the session. */
interface State {
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
interface SendOptions extends Header {
    /** The message's type; `update` for publications, `read` for requests. */
    type?: string;
    /** Another sender than the runtime: an address below it, or one that is bound to this session. */
    from?: string;
}
interface RequestOptions extends SendOptions {
    /** Seconds to wait for the answer or the receipt.  Default 20. */
    timeout?: number;
    /** Waits no longer when it is aborted. */
    signal?: AbortSignal;
}
interface DeliverOptions extends RequestOptions {
    /** Called with a receipt that is not final, while no route leads to the other domain. */
    waiting?: (receipt: Delivery) => unknown;
}
interface Events {
    state: State;
    heard: Message;
}
/** What a browser offers to the client; tests bring their own. */
type World = typeof globalThis;
/**
 * A client of a messaging node; `url` is that of the node's WebSocket, such as `wss://mn.example.org/ws`.
 *
 * Times are in seconds, as in the messages themselves.
 */
declare class Client {
    /** Why the client has stopped for good. */
    stopped: ClientError | undefined;
    /** How many messages to this client are lost, as far as the node knows. */
    missed: number;
    private readonly _session;
    private readonly _config;
    private readonly _domain;
    private readonly _handlers;
    private readonly _addresses;
    private readonly _answers;
    private readonly _receipts;
    private readonly _passedOn;
    private readonly _listeners;
    private _flushing;
    private _opening;
    private _isOpen;
    private _isClosing;
    private _id;
    constructor(url: string, options?: ClientOptions, world?: World);
    get runtime(): string;
    /** The session token, by which another client can go on with this session.  A secret. */
    get token(): string;
    get domain(): string;
    /** Is the session open on a connection? */
    get isOpen(): boolean;
    /**
     * Resolves when the session is open; from then on the client stays connected by itself.
     *
     * Rejects with CannotConnect if the first attempt fails, unless `retry`, and with Closed if the node refuses the
     * client for good.
     */
    connect({ retry, signal }?: ConnectOptions): Promise<void>;
    /** Resolves when the node has everything that was sent until now. */
    flushed(): Promise<void>;
    /**
     * Close the connection, and end the session with its addresses, unless `end` is false: then it stays at the node
     * until a client goes on with it.
     */
    close({ end }?: {
        end?: boolean;
    }): Promise<void>;
    /** Listen to what happens; returns a function that ends it. */
    on<Name extends keyof Events>(name: Name, listener: (event: Events[Name]) => void): () => void;
    /** Send a message as it is, now or when there is a connection. */
    send(fields: Fields): void;
    /** Send a message that needs no answer, with a body or with a record and its value. */
    publish<Request>(to: string | string[], record: RecordType<Request, any>, value: Request, options?: SendOptions): void;
    publish(to: string | string[], body?: unknown, options?: SendOptions): void;
    /**
     * Publish, and resolve with the receipt, which says whether the message was delivered, and, for another domain, by
     * which nodes it went.
     *
     * While no route leads to the other domain, `waiting` is called with a receipt that is not final; if no other comes
     * in time, that is the result.  Rejects with TimedOut if none comes.
     */
    deliver<Request>(to: string, record: RecordType<Request, any>, value: Request, options?: DeliverOptions): Promise<Delivery>;
    deliver(to: string, body?: unknown, options?: DeliverOptions): Promise<Delivery>;
    /**
     * Send a request, with a body or with a record and its value, and resolve with the answer; that to a record has
     * the typed answer as `record`.
     *
     * Rejects with Refused if its code is 300 or more, or if it does not fit the record (502), with TimedOut if none
     * comes.
     */
    request<Request, Answer>(to: string, record: RecordType<Request, Answer>, value: Request, options?: RequestOptions): Promise<Message<Answer>>;
    request(to: string, body?: unknown, options?: RequestOptions): Promise<Message>;
    private _ask;
    private _compose;
    /**
     * Handle messages with a record, or messages to an address and those below it; `'*'` is asked last, for messages
     * that nobody else handles.
     *
     * The address must be bound to this session: by `subscribe`, by `allocate`, or because it is at or below the
     * runtimeURL.
     */
    handle<Request, Answer>(record: RecordType<Request, Answer>, handler: RecordHandler<Request, Answer>, options?: HandlerOptions): void;
    handle(address: string, handler: Handler, options?: HandlerOptions): void;
    /** Bind addresses to this session. */
    subscribe(addresses: string | Iterable<string>, handler?: Handler, options?: HandlerOptions): Promise<void>;
    unsubscribe(addresses: string | Iterable<string>): Promise<void>;
    /** Allocate new addresses, which the node makes and binds to this session. */
    allocate(number?: number, options?: {
        scheme?: string;
        handler?: Handler;
    } & HandlerOptions): Promise<string[]>;
    /** Give back allocated addresses. */
    free(addresses: string | Iterable<string>): Promise<void>;
    /** Register a hyperty at the domain registry, and renew the entry until its `end`. */
    register(url: string, options: RegistrationOptions): Promise<Registration>;
    /** Look up a hyperty, a data object or a user's hyperties at the domain registry; resolves with the entry. */
    find(what: string, options?: {
        resources?: string[];
        schemes?: string[];
        timeout?: number;
    }): Promise<Fields>;
    private _received;
    private _live;
    private _away;
    /** The node has lost the session: what binds all addresses again. */
    private _renewal;
    /** A message is given up. */
    private _refused;
    private _lookFlushed;
    private _giveUp;
    private _end;
    private _emit;
}

export { CannotConnect, Client, ClientError, Closed, Delivery, EXPIRES_SECONDS, Full, HOLD_SECONDS, Message, NOT_HANDLED, Refused, Registration, TimedOut, WAIT_SECONDS };
export type { Answered, Body, BodyType, ClientOptions, ConnectOptions, DeliverOptions, Fields, Handler, HandlerOptions, Header, Hop, RecordHandler, RecordType, RegistrationOptions, RequestOptions, SendOptions, State };
