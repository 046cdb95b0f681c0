/**
 * msgnode's protostub: connects a runtime's bus with the messaging node of a domain.
 */

/** A message of the node's protocol; what stands in it beside these is passed on. */
export interface Message {
  id?: number | string;
  type: string;
  from: string;
  to: string | string[];
  body?: { [key: string]: unknown } | null;
  /** 0 to 9; what has more leaves first where messages wait.  5 without it. */
  priority?: number;
  /** Seconds that the message is worth waiting for. */
  ttl?: number;
  /** Ask for a message of type `receipt` that says what became of this one. */
  receipt?: boolean;
  [key: string]: unknown;
}

/** A node that a message passed, and the microseconds that it stayed there. */
export interface Hop {
  node: string;
  micros: number;
}

/** `body` of a message of type `receipt`. */
export interface ReceiptBody {
  /** 200: its client has it for sure; 202: delivered, or it waits; 300 and more: why it was not delivered. */
  code: number;
  description: string;
  /** Of a failure: one word, for programs. */
  reason?: string;
  /** The address that this receipt is about. */
  to: string;
  /** How many sessions got it; not said of other domains. */
  recipients?: number;
  /** Of a message to another domain: the nodes on its way, the sender's first. */
  path?: Hop[];
  /** Of a message to another domain: `false` while it waits for a route, `true` on the last receipt. */
  final?: boolean;
}

/** What a runtime offers to its stubs. */
export interface Bus {
  /** `'*'`: every message that has no listener here, so that it leaves through the stub. */
  addListener(address: '*', listener: (message: Message) => void): unknown;
  /** A message from outside, and the stub's own `update` to `<stub's address>/status`. */
  postMessage(message: Message): unknown;
}

export interface Configuration {
  /** The node's WebSocket, such as `wss://mn.example.org/ws`. */
  url: string;
  /** The name of this runtime's session. */
  runtimeURL: string;
  /** Where the node polls; the default is `/poll` beside `/ws`. */
  poll?: string;
  /** Characters of JSON that may wait for the node or its acknowledgement; more is refused.  Default 16777216. */
  maxBuffer?: number;
  /** Bytes of the longest message the node takes.  Default 8388608. */
  maxMessage?: number;
  /** Every message carries the session's token to the node, which takes it out: for `message_token = "require"`. */
  token?: boolean;
  /**
   * Who the user is, for nodes with `identity.auth`: a token of an OpenID provider, or a function that gives one.  It is
   * called for each connection, and when the node says that the last one is about to end.
   */
  identity?: string | (() => string | Promise<string>);
  /** `false`: a page that is reloaded keeps nothing for its next life in sessionStorage. */
  persist?: boolean;
}

export type Status = 'created' | 'in-progress' | 'live' | 'disconnected';

/** `body` of the messages to `<stub's address>/status`. */
export interface StatusBody {
  value: Status;
  /** Why, with `disconnected`. */
  desc?: string;
  /** With `disconnected`: it does not come back before `connect`. */
  final?: true;
  /** With `live`: the session went on; if not, its addresses have to be subscribed again. */
  resumed?: boolean;
  /** With `live`: how many messages to this runtime are gone for good; null if nobody can know. */
  missed?: number | null;
}

export interface Protostub {
  readonly name: string;
  readonly status: '' | Status;
  /** Called once, by the runtime; `url` is the stub's own address on the bus.  The configuration may be JSON. */
  _start(url: string, bus: Bus, configuration: Configuration | string, factory?: unknown): void;
  /** Open the session; needed after `disconnect`, or after the node has said not to come back. */
  connect(): void;
  /** End the session at the node, with every address it holds. */
  disconnect(): void;
}

declare const Protostub: { new (): Protostub };
export default Protostub;
