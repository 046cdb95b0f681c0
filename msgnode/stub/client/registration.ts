/**
 * The registration of a hyperty in the domain registry: create, refresh, and end.
 */

import { ClientError, Refused } from './errors.js';
import type { Body, Message, Requester } from './message.js';

/** Seconds until an entry expires unless it is refreshed; a registry allows no more. */
export const EXPIRES_SECONDS = 3600;

export interface RegistrationOptions {
  /** The `user://` URL of its owner. */
  user: string;
  descriptor?: string;
  resources?: string[];
  schemes?: string[];
  /** 1 to 3600 seconds; the client refreshes the entry in time. */
  expires?: number;
}

export interface Registrar extends Requester {
  readonly runtime: string;
  readonly stopped: ClientError | undefined;
}

/** The registry entry of one hyperty; `url` is its address. */
export class Registration {
  private _again: ReturnType<typeof setTimeout> | undefined;

  /** @internal */
  constructor(
    private readonly _client: Registrar,
    readonly url: string,
    private readonly _entry: Body & { expires: number },
  ) {}

  /** @internal Register the hyperty; resolves when the registry has the entry. */
  async begin(): Promise<this> {
    await this._ask('create', { value: this._entry });
    this._wait();
    return this;
  }

  /** Set the status of the hyperty to disconnected. */
  async end(): Promise<void> {
    this.stop();
    const body = { resource: `/hyperty/${this.url}`, value: 'disconnected', attribute: 'status' };
    await this._ask('update', body);
  }

  /** Stop refreshing the entry, so that it expires. */
  stop(): void {
    this._client.world.clearTimeout(this._again);
  }

  private _wait(): void {
    // A little more than twice before the entry expires.
    this._again = this._client.world.setTimeout(() => this._refresh(), (this._entry.expires / 2.2) * 1000);
  }

  private async _refresh(): Promise<void> {
    try {
      await this._ask('update', { resource: this.url, value: { status: 'live' }, method: 'refresh' });
      this._wait();
    } catch (why) {
      await this._registerAgain(why);
    }
  }

  private async _registerAgain(why: unknown): Promise<void> {
    try {
      if (!(why instanceof Refused && why.code === 404)) throw why;
      await this.begin();
    } catch (error) {
      this._client.report(error);
      if (!this._client.stopped) this._wait(); // the registry may be available again
    }
  }

  private _ask(type: string, body: Body): Promise<Message> {
    const { runtime, domain } = this._client;
    const options = { type, from: `${runtime}/registry/` };
    return this._client.request(registry(domain), body, options);
  }
}

export const registry = (domain: string) => `domain://registry.${domain}`;

/** The registry entry of a hyperty. */
export function entry(url: string, runtime: string, options: RegistrationOptions): Body & { expires: number } {
  const { user, descriptor = '', resources = [], schemes = [], expires = EXPIRES_SECONDS } = options;
  if (!(expires >= 1 && expires <= EXPIRES_SECONDS)) {
    throw new RangeError(`'expires' must be 1 to ${EXPIRES_SECONDS} seconds, not ${expires}`);
  }
  return { user, url, descriptor, expires, resources, dataSchemes: schemes, runtime, status: 'live' };
}

/** The body of a lookup; `what` is a URL of any kind, or an e-mail address. */
export function question(what: string, resources: string[] = [], schemes: string[] = []): Body {
  const resource = what.includes('://') || what.startsWith('/') ? what : `/hyperty/idp-identifier/${what}`;
  const wanted = {
    ...(resources.length && { resources }),
    ...(schemes.length && { dataSchemes: schemes }),
  };
  return Object.keys(wanted).length ? { resource, criteria: wanted } : { resource };
}
