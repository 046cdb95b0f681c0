/**
 * A message as a handler gets it.  The handler may answer it, hold it, forward it, or keep it.
 */

import { ClientError, Refused, TimedOut } from './errors.js';
import { answerType, blankAnswer, mismatch, read, type AnyRecordType } from './records.js';

/** The JSON object in a message's `body`. */
export type Body = { [key: string]: unknown };

/** A whole message: its header fields, and `body`. */
export type Fields = { [key: string]: unknown };

/** Header fields that a sender may set; docs/protocol.md describes them. */
export interface Header {
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
export interface Requester {
  readonly domain: string;
  readonly world: Pick<typeof globalThis, 'setTimeout' | 'clearTimeout' | 'Date'>;
  send(fields: Fields): void;
  passOn(fields: Fields, to: string): void;
  request(to: string, body?: unknown, options?: { type?: string; timeout?: number; record?: string } & Header): Promise<Message>;
  report(error: unknown): void;
}

/** The value that a handler returns for a request that it does not handle; its sender gets 501. */
export const NOT_HANDLED: unique symbol = Symbol('NOT_HANDLED');

/** Seconds that a request is held, unless `hold` says otherwise. */
export const HOLD_SECONDS = 60;
/** Seconds to wait for an answer, unless `timeout` says otherwise. */
export const WAIT_SECONDS = 20;

const NEWS = ['update', 'response', 'receipt', 'event', 'ack'];
/** Header fields that say how nodes treat a message; they hold for what is forwarded, too. */
const TREATMENT = ['priority', 'bulk', 'log', 'compress', 'encrypt', 'traceparent'];

/** Addresses that a node itself answers at. */
const ofNode = (address: string, domain: string) =>
  /^(mn:|global:)/.test(address) || new RegExp(`^domain://(msg-node|idm|qos-broker|registry)\\.${escaped(domain)}(/|$)`, 'i').test(address);

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

const isMulticast = (address: string) => /(\/changes|\/registration|\/status)$|\/children\//.test(address);

const given = (fields: Fields, names: string[]): Fields =>
  Object.fromEntries(names.filter((name) => fields[name] !== undefined).map((name) => [name, fields[name]]));

/** A value as a body: an object is one, another value becomes its `value`. */
export function bodyOf(value: unknown): Body {
  if (value === undefined || value === null) return {};
  return typeof value === 'object' && !Array.isArray(value) ? (value as Body) : { value };
}

/** The answer to a typed request; anything where answers have no type. */
type Answerable<Answer> = [Answer] extends [undefined] ? unknown : Answer;

export type AnyMessage = Message<any, any>;

/** A message as a handler gets it.  `Record` is the type of its body, and `Answer` that of its answer. */
export class Message<Record = undefined, Answer = undefined> {
  /**
   * The typed body, where a handler of this record got the message, or it is the answer to a typed request; otherwise
   * undefined.
   */
  readonly record = undefined as Record;
  /** @internal */ _type: AnyRecordType | undefined;
  /** @internal */ _reply: object | undefined;
  /** @internal */ _answered = false;
  /** @internal */ _held = false;
  /** @internal */ _deadline: ReturnType<typeof setTimeout> | undefined;
  /** @internal */ readonly _receivedAt: number;

  constructor(
    /** The whole JSON object. */
    readonly fields: Fields,
    /** @internal */ readonly _client: Requester,
  ) {
    this._receivedAt = _client.world.Date.now();
  }

  get id(): unknown {
    return this.fields.id;
  }

  get type(): string {
    return `${this.fields.type ?? ''}`;
  }

  get from(): string {
    return `${this.fields.from ?? ''}`;
  }

  get to(): string {
    return `${this.fields.to ?? ''}`;
  }

  /** The body of the message; empty if there is none. */
  get body(): Body {
    return bodyOf(this.fields.body);
  }

  /** Is it a request, whose sender waits for an answer? */
  get wantsAnswer(): boolean {
    const isRequest = !NEWS.includes(this.type.toLowerCase()) && this.fields.answer !== false;
    return isRequest && !!this.from && !isMulticast(this.to);
  }

  /**
   * The answer to a typed request, which a handler may fill in: it is sent if the handler returns nothing.
   *
   * It has the request's values of the slots that both have; undefined if answers have no slots.
   */
  get reply(): Partial<Answer> {
    if (this._type) this._reply ??= blankAnswer(this._type, this.record as object);
    return this._reply as Partial<Answer>;
  }

  /**
   * Answer with a body, or with a value, which becomes the body's `value`.  Only the first answer counts.
   *
   * The answer to a typed request is a value of its record, and `reply` unless it is given; throws an error with the
   * slot's name if it does not fit.  Throws if JSON does not have the value.
   */
  answer(result?: Answerable<Answer>, code = 200): void {
    if (!this._answered) this._send(this._bodyOf(result), code, this._type?.id);
  }

  private _bodyOf(result: unknown): Body {
    const answer = this._type && answerType(this._type);
    return answer ? answer.toBody(result ?? this.reply) : bodyOf(result);
  }

  private _send(body: Body, code: number, record: unknown, header: Fields = {}): void {
    if (this._answered) return;
    sendAnswer(this._client, this.fields, { code, ...body }, record, header);
    this._answered = true;
    this._client.world.clearTimeout(this._deadline);
  }

  /** Answer with an error; `reason` is one word, for programs. */
  refuse(code: number, text: string, reason = ''): void {
    this._send({ desc: text, description: text, ...(reason && { reason }) }, code, this._type?.id);
  }

  /** Answer later: what the handler returns is not the answer.  After `seconds` the sender gets 504. */
  hold(seconds = HOLD_SECONDS): this {
    if (!this._held) {
      this._held = true;
      const late = () => this.refuse(504, `not answered within ${seconds} s`);
      this._deadline = this._client.world.setTimeout(late, seconds * 1000);
    }
    return this;
  }

  /** Send no answer from this client; what the handler returns is ignored. */
  keep(): this {
    this._answered = this._held = true;
    return this;
  }

  /**
   * Let another address answer.
   *
   * If the sender allows it (`forward`), the message goes on unchanged, and the other recipient answers the
   * sender.  Otherwise, and for addresses of the node itself, this client sends the request and returns its answer,
   * each treated by nodes as the other client asked: `log`, `encrypt`, `priority`.
   */
  async forward(to: string, seconds = HOLD_SECONDS): Promise<void> {
    const { forward, ttl, body } = this.fields;
    if (forward === true && !ofNode(to, this._client.domain)) {
      this._client.passOn(this.fields, to);
      this.keep();
      return;
    }
    this.hold(seconds);
    const header = given(this.fields, ['record', 'transaction', ...TREATMENT]);
    if (typeof ttl === 'number') {
      header.ttl = Math.max(0, ttl - (this._client.world.Date.now() - this._receivedAt) / 1000);
    }
    try {
      const reply = await this._client.request(to, body, { type: this.type, timeout: seconds, ...header });
      this._send(reply.body, 200, reply.fields.record, given(reply.fields, TREATMENT));
    } catch (error) {
      this._fail(error);
    }
  }

  /** @internal Use what the handler returned. */
  _settle(result: unknown): void {
    if (this.wantsAnswer && !this._held) this.answer(result as Answerable<Answer>);
  }

  /** @internal No handler has handled the message. */
  _notHandled(): void {
    this._untyped();
    if (this.wantsAnswer && !this._held) this.refuse(501, 'not processed', 'not-handled');
  }

  /** @internal For a handler that is not for the record. */
  _untyped(): void {
    this._set(undefined, undefined);
  }

  /** @internal Decode the body, for a handler of this record.  A body that does not fit is refused. */
  _readAs(type: AnyRecordType): boolean {
    try {
      this._set(type, read(type, this.body));
      return true;
    } catch (why) {
      if (this.wantsAnswer) this._send(mismatch(type, why), 400, type.id);
      else this._client.report(why);
      return false;
    }
  }

  /** @internal Decode the body, which is the answer to a request with this record; throws Refused if it is none. */
  _answers(type: AnyRecordType): this {
    const answer = answerType(type);
    try {
      if (answer) this._set(undefined, read(answer, this.body));
      return this;
    } catch (why) {
      const body = mismatch(type, why);
      const text = `the answer is ill-typed: ${body.desc as string}`;
      throw new Refused(502, text, { code: 502, ...body, desc: text, description: text });
    }
  }

  private _set(type: AnyRecordType | undefined, record: unknown): void {
    this._type = type;
    this._reply = undefined;
    (this as { record: unknown }).record = record;
  }

  /** @internal Answer with an error, because the handler failed. */
  _fail(error: unknown): void {
    if (!(error instanceof ClientError)) this._client.report(error);
    if (!this.wantsAnswer) return;
    if (error instanceof Refused) {
      try {
        this._send({ ...error.body, desc: error.text, description: error.text }, error.code, this._type?.id);
      } catch (why) {
        this._client.report(why);
        this.refuse(error.code, `${error.text}`);
      }
    } else if (error instanceof TimedOut) {
      this.refuse(504, error.message);
    } else {
      this.refuse(500, 'the recipient failed over this message');
    }
  }
}

/**
 * Send the response to a request, with its id, and its transaction if it has one; `record` is the id of the record in
 * the body.  Throws if JSON does not have the body; what hinders the client is reported.
 */
export function sendAnswer(client: Requester, request: Fields, body: Body, record?: unknown, header: Fields = {}): void {
  const { id, from, to, transaction } = request;
  const answer = {
    id, type: 'response', from: to, to: from, ...header,
    ...(transaction !== undefined && { transaction }), ...(record !== undefined && { record }), body,
  };
  try {
    client.send(answer);
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    client.report(error);
  }
}
