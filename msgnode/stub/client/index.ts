/**
 * msgnode's client for TypeScript and JavaScript, in pages and in Node.js.
 */

export { Client } from './client.js';
export type { ClientOptions, ConnectOptions, DeliverOptions, RequestOptions, SendOptions, State } from './client.js';
export { Delivery, type Hop } from './delivery.js';
export { CannotConnect, ClientError, Closed, Full, Refused, TimedOut } from './errors.js';
export { HOLD_SECONDS, Message, NOT_HANDLED, WAIT_SECONDS } from './message.js';
export type { Body, Fields, Header } from './message.js';
export { EXPIRES_SECONDS, type Registration, type RegistrationOptions } from './registration.js';
export type { Answered, Handler, HandlerOptions, RecordHandler } from './handlers.js';
export type { BodyType, RecordType } from './records.js';
