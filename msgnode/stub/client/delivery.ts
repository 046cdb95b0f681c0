/**
 * Receipts: what became of a message, and over which nodes it went (docs/protocol.md, "Receipts").
 */

import { Message } from './message.js';

/** A node that a message passed, and the microseconds that it stayed there. */
export interface Hop {
  node: string;
  micros: number;
}

/** A receipt. */
export class Delivery extends Message {
  /** What became of the message, as docs/protocol.md lists the codes. */
  get code(): number {
    return whole(this.body.code, 200);
  }

  /** The same in words. */
  get text(): string {
    return `${this.body.description ?? ''}`;
  }

  /** One word, for programs. */
  get reason(): string {
    return `${this.body.reason ?? ''}`;
  }

  /** Is it the last receipt?  The one before it says that the message waits for a route. */
  get isFinal(): boolean {
    return this.body.final !== false;
  }

  /**
   * The nodes of all domains that the message passed, the sender's first, which is alone if the message did not get
   * to the other domain.  It is empty for a message within one domain.
   */
  get path(): Hop[] {
    const { path } = this.body;
    const hops: unknown[] = Array.isArray(path) ? path : [];
    const found = hops.filter((hop): hop is Partial<Hop> => typeof hop === 'object' && hop !== null);
    return found.map(({ node, micros }) => ({ node: `${node ?? ''}`, micros: whole(micros, 0) }));
  }
}

/** A number of a message as an integer; some clients write it as a text, or leave it out. */
export function whole(value: unknown, otherwise: number): number {
  const number = Math.trunc(Number(value ?? NaN));
  return Number.isFinite(number) ? number : otherwise;
}
