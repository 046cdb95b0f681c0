/*
 * A runtime as small as can be: a bus, and the stub of a domain, fetched and started as runtimes do it.
 *
 * ?node=http://127.0.0.1:9090&runtime=runtime://localhost/1&form=default.ps.js
 */

const asked = new URLSearchParams(location.search);
const P = `runtime://localhost/protostub/${asked.get('runtime').split('/').pop()}`;
const wellKnown = `${asked.get('node')}/.well-known/protocolstub`;

/** Messages go to who listens, else to whoever listens for everything: the stub. */
const bus = {
  listeners: new Map(),
  addListener(address, listener) {
    this.listeners.set(address, listener);
  },
  postMessage(message) {
    if (message.to === `${P}/status`) statuses.push(message.body);
    else if (message.body.via === P) heard.push(message);
    else this.listeners.get('*')(message);
  },
};
const heard = JSON.parse(sessionStorage.heard ?? '[]'); // by this page, and by itself before it was reloaded
addEventListener('pagehide', () => (sessionStorage.heard = JSON.stringify(heard)));
const statuses = [];
let stub;

/** How many WebSockets are open. */
const sockets = { open: 0 };
globalThis.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    this.addEventListener('open', () => sockets.open++);
    this.addEventListener('close', (event) => event.wasClean && sockets.open--);
  }
};

const send = (...messages) => messages.forEach((message) => bus.listeners.get('*')(message));
const started = () => statuses.length > 0;
const status = () => started() && statuses.at(-1).value;

async function load() {
  const form = asked.get('form') ?? 'default.ps.js';
  if (form === 'catalogue') {
    const entry = await (await fetch(`${wellKnown}/default`, { method: 'POST', body: '{}' })).json();
    (0, eval)(entry.sourcePackage.sourceCode);
    const configuration = { ...entry.configuration, runtimeURL: asked.get('runtime') };
    stub = activate(P, bus, configuration).instance;
    return;
  }
  const url = `${wellKnown}/${form}`;
  const { default: Protostub } = await (form.endsWith('.mjs') ? import(url) : System.import(url));
  const { configuration } = await (await fetch(`${wellKnown}/default.ps.json`)).json();
  stub = new Protostub();
  stub._start(P, bus, { ...configuration, runtimeURL: asked.get('runtime') });
}

load();
