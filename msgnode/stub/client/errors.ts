/**
 * The errors of a client, with texts that its user can act on.
 */

import type { Body } from './message.js';

/** The base class of these errors. */
export class ClientError extends Error {
  constructor(text: string) {
    super(text);
    this.name = new.target.name;
  }
}

/** No node was reached, or the peer is not a node. */
export class CannotConnect extends ClientError {
  override readonly name = 'CannotConnect';
}

/** A request was answered with a code of 300 or more.  A handler throws it to send such an answer. */
export class Refused extends ClientError {
  override readonly name = 'Refused';

  constructor(
    /** The code of the answer, as docs/protocol.md lists them. */
    readonly code: number,
    readonly text = '',
    /** The whole body of the answer. */
    readonly body: Body = {},
  ) {
    super(`${code} ${text}`.trimEnd());
  }

  /** One word for programs, as docs/protocol.md lists them; may be empty. */
  get reason(): string {
    return `${this.body.reason ?? ''}`;
  }
}

/** A request got no answer in time. */
export class TimedOut extends ClientError {
  override readonly name = 'TimedOut';
}

/** The session has ended, and the client does not come back by itself. */
export class Closed extends ClientError {
  override readonly name = 'Closed';

  constructor(
    /** The close code, as docs/protocol.md lists them; 1000 if this client closed. */
    readonly code: number,
    readonly word: string,
  ) {
    super(`the session has ended: ${code} ${word}`);
  }
}

/** Too many messages are not acknowledged; wait for `flushed`. */
export class Full extends ClientError {
  override readonly name = 'Full';
}
