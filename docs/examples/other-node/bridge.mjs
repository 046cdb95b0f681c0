/**
 * A bridge from a node of another make to a domain of msgnode, by the protostub that the domain publishes.
 *
 * To that domain this process is one client. It hears what is sent to the addresses that it subscribed, so the sender
 * of each message is subscribed before the first message leaves.
 */

export class Bridge {
  /** `node`: where the domain's node is, such as https://mn.example.org; `url`: the name of this bridge there. */
  static async to(node, url, heard) {
    const where = `${node}/.well-known/protocolstub`;
    const [code, descriptor] = await Promise.all(
      ['default.mjs', 'default.ps.json'].map(async (name) => (await fetch(`${where}/${name}`)).text()),
    );
    const { default: Protostub } = await import(`data:text/javascript,${encodeURIComponent(code)}`);
    const { configuration, description } = JSON.parse(descriptor);
    const domain = description.split(' ').pop(); // "Protostub for example.org"
    return new Bridge(new Protostub(), domain, { ...configuration, runtimeURL: url }, heard);
  }

  constructor(stub, domain, configuration, heard) {
    this._url = configuration.runtimeURL;
    this._sm = `domain://msg-node.${domain}/sm`;
    this._heard = heard;
    this._subscribed = new Map();
    this._answers = new Map();
    this._ids = 0;
    this._stub = stub;
    const bus = {
      addListener: (address, listener) => (this._leave = listener),
      postMessage: (message) => this._arrive(message),
    };
    stub._start(`${this._url}/protostub`, bus, configuration);
  }

  /** A message of a client of the other node. */
  async send(message) {
    const { from } = message;
    if (!this._subscribed.has(from)) this._subscribed.set(from, this._subscribe(from));
    await this._subscribed.get(from);
    this._leave(message);
  }

  close() {
    return this._stub.disconnect();
  }

  _subscribe(address) {
    const id = `bridge-${(this._ids += 1)}`;
    this._leave({ id, type: 'subscribe', from: this._url, to: this._sm, body: { resources: [address] } });
    return new Promise((done) => this._answers.set(id, done));
  }

  _arrive({ body: { via, ...body }, ...message }) {
    if (message.to === `${this._url}/protostub/status`) return;
    const done = message.to === this._url && this._answers.get(message.id);
    if (!done) return this._heard({ ...message, body });
    this._answers.delete(message.id);
    if (body.code >= 300) console.error(body.description);
    done();
  }
}

/** One message in each line, in both directions: `lines` are those of the other node. */
export async function run([node, url], lines, write) {
  const bridge = await Bridge.to(node, url, (message) => write(JSON.stringify(message)));
  for await (const line of lines) await bridge.send(JSON.parse(line));
  await bridge.close();
}
