/**
 * Handlers of messages, by the record in the body or by the address.
 */

import { Refused } from './errors.js';
import { NOT_HANDLED, type AnyMessage, type Message } from './message.js';
import { isRecordType, type AnyRecordType } from './records.js';

/** What is called with each message; docs/typescript.md says what becomes of what it returns. */
export type Handler = (message: Message) => unknown;

/** What a handler of a record may return: the answer, or nothing, and `message.reply` is the answer. */
export type Answered<Answer> = Answer | typeof NOT_HANDLED | undefined | null | void;

/** What is called with each message that has a record. */
export type RecordHandler<Request, Answer> = (
  message: Message<Request, Answer>,
) => Answered<Answer> | Message<Request, Answer> | PromiseLike<Answered<Answer> | Message<Request, Answer>>;

export interface HandlerOptions {
  /** Run an asynchronous handler for one message after another, never at the same time. */
  serial?: boolean;
}

type AnyHandler = (message: AnyMessage) => unknown;
type Asked = [record: AnyRecordType | undefined, handler: AnyHandler];

/** The place of the handler that is asked last. */
const EVERYTHING = '*';
/** Messages that wait for a handler that is serial. */
const MAX_WAITING = 10000;

/**
 * The handlers of a client.
 *
 * A message is offered to the handler of its record, then to that of its address, else of the nearest prefix of it
 * that ends before a `/`, then to that of everything, until one does not return NOT_HANDLED.
 */
export class Handlers {
  private readonly _byAddress = new Map<string, AnyHandler>();
  private readonly _byRecord = new Map<string, Asked>();

  add(places: (string | AnyRecordType)[], handler: AnyHandler | undefined, { serial = false }: HandlerOptions = {}): void {
    if (!handler) return;
    const called = serial ? oneByOne(handler) : handler;
    for (const place of places) {
      if (typeof place === 'string') this._byAddress.set(place, called);
      else if (isRecordType(place)) this._byRecord.set(place.id, [place, called]);
      else throw new TypeError('a handler is for an address or for a type of records');
    }
  }

  remove(addresses: string[]): void {
    addresses.forEach((address) => this._byAddress.delete(address));
  }

  /** Offer a message to its handlers; false if there are none. */
  offer(message: AnyMessage): boolean {
    const found = this._found(message);
    if (found.length) this._ask(message, found);
    return found.length > 0;
  }

  private _found(message: AnyMessage): Asked[] {
    const found: Asked[] = [];
    const { record } = message.fields;
    if (typeof record === 'string' && !['response', 'receipt'].includes(message.type.toLowerCase())) {
      const typed = this._byRecord.get(record) ?? this._byRecord.get(record.toLowerCase());
      if (typed) found.push(typed);
    }
    let address = message.to;
    while (!this._byAddress.has(address) && address.includes('/')) {
      address = address.slice(0, address.lastIndexOf('/'));
    }
    for (const place of [address, EVERYTHING]) {
      const handler = this._byAddress.get(place);
      if (handler) found.push([undefined, handler]);
    }
    return found;
  }

  /** Ask the handlers one after another until one handles the message. */
  private _ask(message: AnyMessage, [first, ...others]: Asked[]): void {
    if (!first) return message._notHandled();
    const [record, handler] = first;
    message._untyped();
    if (record && !message._readAs(record)) return;
    const settle = (result: unknown) =>
      result === NOT_HANDLED && !message._held ? this._ask(message, others) : message._settle(result);
    try {
      const result = handler(message);
      if (isThenable(result)) Promise.resolve(result).then(settle).catch((error) => message._fail(error));
      else settle(result);
    } catch (error) {
      message._fail(error);
    }
  }
}

const isThenable = (value: unknown): value is PromiseLike<unknown> =>
  typeof (value as Partial<PromiseLike<unknown>> | null | undefined)?.then === 'function';

/** The same handler, whose next call begins when what the last one returned is settled. */
function oneByOne(handler: AnyHandler): AnyHandler {
  let last: Promise<unknown> = Promise.resolve();
  let waiting = 0;
  return (message) => {
    if (waiting >= MAX_WAITING) {
      throw new Refused(503, `${MAX_WAITING} messages wait for this handler`, { reason: 'overflow' });
    }
    waiting++;
    const turn = last.then(() => (waiting--, handler(message)));
    last = turn.catch(() => {});
    return turn;
  };
}
