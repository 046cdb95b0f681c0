/**
 * Does with clients what a test says, command by command, in a page or in Node.js; tests/integration/client_drivers.py
 * says which commands there are.
 */

const handlers = {
  value: ({ value }) => () => value,
  increment: () => (message) => message.body.n + 1,
  refuse: ({ code, text }, { Refused }) => () => { throw new Refused(code, text); },
  fail: () => () => { throw new Error('a mistake'); },
  not_handled: (_, { NOT_HANDLED }) => () => NOT_HANDLED,
  keep: () => (message) => { message.keep(); },
  hold: ({ seconds }) => (message) => { message.hold(seconds); },
  hold_and_answer: ({ value }) => (message) => { message.hold(); setTimeout(() => message.answer(value), 20); },
  forward: ({ to }) => (message) => message.forward(to),
  record: () => () => undefined,
  answer_record: ({ body, type }) => () => answerType(type).fromBody(body),
  fill: ({ field, value }) => (message) => { message.reply[field] = value; },
  hold_and_fill: ({ field, value }) => (message) => {
    message.hold();
    setTimeout(() => ((message.reply[field] = value), message.answer()), 20);
  },
  increase: ({ field }) => (message) => { message.record[field] += 1; },
  busy: () => {
    let running = 0;
    let most = 0;
    return async () => {
      most = Math.max(most, ++running);
      for (let n = 0; n < 20 && most === 1; n++) await new Promise((resolve) => setTimeout(resolve, 20));
      running--;
      return most;
    };
  },
  ask: ({ to }, _, client) => async (message) => (await client.request(to, message.body)).body.value,
};

const answerType = (type) => (type.hasSameAnswer ? type : type.answer);

export class Driver {
  constructor(library, records = {}, defaults = {}) {
    this.library = library;
    const types = Object.values(records).filter((each) => each.fromBody);
    this.types = {}; // by the name of the record, that of requests
    for (const type of types) if (!types.some(({ answer }) => answer === type)) this.types[type.name] = type;
    this.defaults = defaults;
    this.clients = {};
    this.heard = {};
  }

  /** `{ value }`, or `{ error, code, text, reason }` of what was thrown. */
  async perform(command) {
    try {
      return { value: plain(await this[command.do](command)) };
    } catch (why) {
      if (!(why instanceof this.library.ClientError)) throw why;
      const { name, code = null, reason = '' } = why;
      return { error: name, code, text: why.text ?? why.word ?? why.message, reason };
    }
  }

  make({ name, url, options }) {
    this.clients[name] = new this.library.Client(url, { ...this.defaults, ...options });
    this.heard[name] = [];
  }

  call({ name, method, args }) {
    const typed = args.flatMap((each) => {
      const type = this.types[each?.$record];
      return type ? [type, type.fromBody(each.body)] : [each];
    });
    const called = this.clients[name][method](...typed);
    const type = this.types[args[1]?.$record];
    if (method !== 'request' || !type) return called;
    return called.then((reply) => ({ ...reply.fields, $typed: reply.record && answerType(type).toBody(reply.record) }));
  }

  get({ name, property }) {
    return this.clients[name][property];
  }

  handle({ name, address, handler, record, serial, ...given }) {
    const type = this.types[record];
    this.clients[name].handle(type ?? address, this._recorded(name, handler, { ...given, type }), { serial });
  }

  subscribe({ name, address, handler, serial, ...given }) {
    return this.clients[name].subscribe(address, this._recorded(name, handler, given), { serial });
  }

  took({ name }) {
    return this.heard[name];
  }

  _recorded(name, kind, given) {
    const handler = handlers[kind](given, this.library, this.clients[name]);
    return (message) => {
      const typed = message.record && { $typed: given.type.toBody(message.record) };
      this.heard[name].push({ ...message.fields, ...typed });
      return handler(message);
    };
  }
}

/** What can be told as JSON: a message's fields, and nothing of a registration or a function. */
function plain(value) {
  if (value?.fields) return value.fields;
  const isOurs = typeof value === 'object' && value && ![Object.prototype, Array.prototype].includes(Object.getPrototypeOf(value));
  return value === undefined || typeof value === 'function' || isOurs ? null : value;
}
