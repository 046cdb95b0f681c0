/**
 * Records, as the client needs them: typed bodies, whose code `msgnode records generate` writes.
 *
 * The client knows that code by its interface only, so that neither imports the other.
 */

import type { Body } from './message.js';

/** What reads and writes one of the bodies of a record. */
export interface BodyType<Value> {
  /** The UUID in the header field `record`. */
  readonly id: string;
  readonly name: string;
  /** The slots; `field` is the property that has the value. */
  readonly slots: readonly { readonly field: string }[];
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
export interface RecordType<Request, Answer = undefined> extends BodyType<Request> {
  readonly answer?: BodyType<Answer> | undefined;
  readonly hasSameAnswer: boolean;
}

export type AnyRecordType = RecordType<any, any>;

// Members of a body that are no slots, and neither the recipient's to return nor to send on.
const OF_THE_ENVELOPE = ['auth', 'code', 'desc', 'description', 'identity', 'reason', 'via'];

export function isRecordType(value: unknown): value is AnyRecordType {
  const { id, toBody } = (value ?? {}) as Partial<AnyRecordType>;
  return typeof id === 'string' && typeof toBody === 'function';
}

/** The type of the answers to a record; undefined if they have no slots. */
export const answerType = (type: AnyRecordType): BodyType<any> | undefined => (type.hasSameAnswer ? type : type.answer);

/** The value of a message's body, without what is the envelope's. */
export function read(type: BodyType<any>, body: Body): unknown {
  return type.fromBody(Object.fromEntries(Object.entries(body).filter(([name]) => !OF_THE_ENVELOPE.includes(name))));
}

/**
 * The answer as it is before a handler changes it: the request itself if both have the same slots, else the values
 * of the slots that both have; undefined if answers have no slots.
 */
export function blankAnswer(type: AnyRecordType, request: object): object | undefined {
  const answer = answerType(type);
  if (!answer || answer === type) return answer && request;
  const fields = answer.slots.map(({ field }) => field);
  return Object.fromEntries(Object.entries(request).filter(([field]) => fields.includes(field)));
}

/** The body of the refusal of a body that is no such record, as a node has it that knows the definition. */
export function mismatch(type: AnyRecordType, why: unknown): Body {
  const { message, slot, expected } = why as { message?: string; slot?: string; expected?: string };
  const text = `this is no ${type.name}: ${message ?? why}`;
  return { desc: text, description: text, reason: 'record', ...(slot && { slot }), ...(expected && { expected }) };
}
