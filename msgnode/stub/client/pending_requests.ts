/**
 * The requests that are not answered yet.
 */

import { whole, type Delivery } from './delivery.js';
import { ClientError, Refused, TimedOut } from './errors.js';
import type { Message } from './message.js';

interface Pending<M> {
  to: string;
  /** An answer that has it may come from any address. */
  transaction: unknown;
  resolve(reply: M): void;
  reject(why: Error): void;
  end(): void;
  waiting: ((receipt: M) => unknown) | undefined;
  /** The receipt that came and is not final. */
  last?: M;
}

type Timers = Pick<typeof globalThis, 'setTimeout' | 'clearTimeout'>;

/** What `expect` may be given. */
export interface Expecting<M> {
  /** An answer that has it may come from any address. */
  transaction?: unknown;
  signal?: AbortSignal | undefined;
  /** Called with a receipt that is not final; if no other comes in time, it is the result. */
  waiting?: ((receipt: M) => unknown) | undefined;
}

/**
 * The table of requests by their ids, or of messages whose receipt has not come yet.
 *
 * An answer must come from the address that was asked, or from the node.  If the request could be
 * forwarded, it may come from any address, with the transaction of the request.
 */
export class PendingRequests<M extends Message> {
  private readonly _waiting = new Map<unknown, Pending<M>>();

  constructor(private readonly _world: Timers) {}

  /** The answer; fails with TimedOut after so many seconds, and with the signal's reason when it is aborted. */
  expect(id: number, to: string, seconds: number, { transaction, signal, waiting }: Expecting<M> = {}): Promise<M> {
    return new Promise((resolve, reject) => {
      const { setTimeout, clearTimeout } = this._world;
      const late = () => this._late(id, new TimedOut(`no answer from ${to} within ${seconds} s`));
      const timer = setTimeout(late, seconds * 1000);
      const aborted = () => this.fail(id, signal!.reason);
      const end = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', aborted);
      };
      this._waiting.set(id, { to, transaction, resolve, reject, end, waiting });
      if (signal?.aborted) aborted();
      else signal?.addEventListener('abort', aborted);
    });
  }

  /** Is it the answer to a pending request? */
  heard(reply: M): boolean {
    const pending = this._waiting.get(reply.id);
    if (!pending || !belongs(reply, pending)) return false;
    const code = whole(reply.body.code, 200);
    if (reply.type.toLowerCase() === 'response') {
      if (code >= 100 && code < 200) return true; // a provisional answer: the final one follows
      if (code >= 300) {
        const { desc, description } = reply.body;
        this.fail(reply.id, new Refused(code, `${desc || description || ''}`, reply.body));
        return true;
      }
    }
    if ((reply as Message as Delivery).isFinal === false) {
      pending.last = reply;
      pending.waiting?.(reply);
    } else {
      this._take(reply.id)!.resolve(reply);
    }
    return true;
  }

  private _late(id: number, why: TimedOut): void {
    const pending = this._take(id);
    if (pending?.last) pending.resolve(pending.last);
    else pending?.reject(why);
  }

  fail(id: unknown, why: Error): void {
    this._take(id)?.reject(why);
  }

  /** Fail all requests: no more answers will come. */
  abandon(why: ClientError): void {
    [...this._waiting.keys()].forEach((id) => this.fail(id, why));
  }

  private _take(id: unknown): Pending<M> | undefined {
    const pending = this._waiting.get(id);
    this._waiting.delete(id);
    pending?.end();
    return pending;
  }
}

function belongs(reply: Message, { to, transaction }: { to: string; transaction: unknown }): boolean {
  if (reply.from === to || reply.from.startsWith('mn:')) return true;
  return transaction !== undefined && reply.fields.transaction === transaction;
}
