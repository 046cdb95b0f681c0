/**
 * The addresses that a client is bound to.
 */

import { Refused } from './errors.js';
import type { Handler, HandlerOptions, Handlers } from './handlers.js';
import type { Requester } from './message.js';

/** The bound addresses; their handlers are added and removed with them. */
export class Subscriptions {
  private readonly _bound = new Set<string>(); // in the order they were bound

  constructor(
    private readonly _client: Requester,
    private readonly _handlers: Handlers,
  ) {}

  async subscribe(addresses: string[], handler?: Handler, options?: HandlerOptions): Promise<void> {
    this._handlers.add(addresses, handler, options);
    try {
      await this._client.request(this.node('sm'), { resources: addresses }, { type: 'subscribe' });
    } catch (why) {
      // The node goes on asking the other domain; the subscription stands.
      if (why instanceof Refused && why.code === 504) this._bind(addresses);
      throw why;
    }
    this._bind(addresses);
  }

  async unsubscribe(addresses: string[]): Promise<void> {
    await this._client.request(this.node('sm'), { resources: addresses }, { type: 'unsubscribe' });
    this._forget(addresses);
  }

  async allocate(number: number, scheme: string, handler?: Handler, options?: HandlerOptions): Promise<string[]> {
    const body = { scheme, value: { number } };
    const reply = await this._client.request(this.node('address-allocation'), body, { type: 'create' });
    const { allocated } = reply.body.value as { allocated: string[] };
    this._handlers.add(allocated, handler, options);
    this._bind(allocated);
    return allocated;
  }

  async free(addresses: string[]): Promise<void> {
    const body = { childrenResources: addresses };
    await this._client.request(this.node('address-allocation'), body, { type: 'delete' });
    this._forget(addresses);
  }

  /** What has to be bound again in a new session. */
  get bound(): string[] {
    return [...this._bound];
  }

  node(place: string): string {
    return `domain://msg-node.${this._client.domain}/${place}`;
  }

  private _bind(addresses: string[]): void {
    addresses.forEach((address) => this._bound.add(address));
  }

  private _forget(addresses: string[]): void {
    addresses.forEach((address) => this._bound.delete(address));
    this._handlers.remove(addresses);
  }
}
