/**
 * The page of the three domains: a map of the nodes and links, and messages from ann at a.example to carl at c.example.
 *
 * All that nodes and clients say is shown as text.
 */

import { Runtime } from '../runtime.js';

const PLACES = { 'a.example': [50, 185], 'b.example': [180, 40], 'c.example': [310, 185] };
const BESIDE = [[-38, -4], [38, -4], [0, 22]]; // the line of each link: where its cost stands
const PEOPLE = { 'a.example': 'ann', 'c.example': 'carl' };
const STATES = { up: 'up', settling: 'coming up', connecting: 'connecting', cut: 'cut' };
const MOST_LINES = 50;
const MOST_WAITING = 20; // while so many messages have no receipt, none is sent by itself
const HOP_MILLIS = 350; // the dot is slower than the message was
const me = crypto.randomUUID().slice(0, 8);

const [svg, links, list, form, text, always, route] = ['svg', '#links', '.log ol', 'form', 'form > input', 'label input', '#route'].map(
  (name) => document.querySelector(name),
);
const still = matchMedia('(prefers-reduced-motion: reduce)');

function element(name, attributes = {}, ...children) {
  const isDrawn = ['line', 'circle', 'text', 'g'].includes(name);
  const made = isDrawn ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// -- the map ------------------------------------------------------------------------

let wasReached = false; // a domain that was never reached refuses messages; later they wait for a way
const lines = new Map(); // what is drawn and listed of each link, by its ends
const dots = element('g');

async function ask(path, ends) {
  const how = ends && { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ ends }) };
  const answer = await fetch(path, how);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

function draw({ nodes, links: found }) {
  found.forEach(({ ends, cost }, at) => addLink(ends, cost, BESIDE[at]));
  svg.append(dots);
  for (const { domain } of nodes) {
    const [x, y] = PLACES[domain];
    const below = y > 100;
    svg.append(
      element('circle', { class: 'node', cx: x, cy: y, r: 16 }),
      element('text', { class: 'name', x, y: below ? y + 36 : y - 24 }, domain),
    );
    if (PEOPLE[domain]) svg.append(element('text', { x, y: y + 5 }, PEOPLE[domain]));
  }
}

function addLink(ends, cost, [right, down]) {
  const [[x1, y1], [x2, y2]] = ends.map((name) => PLACES[name]);
  const line = element('line', { x1, y1, x2, y2 });
  svg.append(line, element('text', { x: (x1 + x2) / 2 + right, y: (y1 + y2) / 2 + down }, `cost ${cost}`));
  const state = element('span');
  const button = element('button', { type: 'button' });
  const title = ends.join(' – ');
  button.onclick = async () => {
    button.disabled = true; // until the nodes have done it
    try {
      await ask(button.dataset.verb, ends);
      await look();
    } catch (why) {
      route.textContent = why.message;
    }
    button.disabled = false;
  };
  links.append(element('li', {}, element('span', {}, title, element('small', {}, `cost ${cost}`)), state, button));
  lines.set(title, { line, state, button, title });
}

function show(found) {
  const way = found.route?.domains ?? [];
  wasReached ||= way.length > 0;
  const onWay = new Set(way.slice(1).flatMap((name, at) => [`${way[at]} – ${name}`, `${name} – ${way[at]}`]));
  for (const { ends, state: word } of found.links) {
    const { line, state, button, title } = lines.get(ends.join(' – '));
    line.setAttribute('class', `link ${word}${onWay.has(title) ? ' route' : ''}`);
    state.className = `state ${word}`;
    state.textContent = STATES[word] ?? word;
    button.dataset.verb = word === 'cut' ? 'join' : 'cut';
    button.textContent = word === 'cut' ? 'Give back' : 'Cut';
    button.setAttribute('aria-label', `${button.textContent} ${title}`);
  }
  const told = found.route ? `Messages go ${way.join(' → ')}, cost ${found.route.cost}` : 'No way leads to c.example: messages wait';
  if (route.textContent !== told) route.textContent = told; // a screen reader is told of changes only
}

async function look() {
  try {
    show(await ask('map'));
  } catch (why) {
    route.textContent = `The map is not known: ${why.message}`;
  }
}

// -- messages -------------------------------------------------------------------------

let sent = 0, waiting = 0;

/** A dot goes along the nodes that a message passed. */
function travel(path) {
  const places = path.map((name) => PLACES[name]).filter(Boolean);
  if (still.matches || document.hidden || places.length < 2) return;
  const dot = element('circle', { class: 'dot', r: 8 });
  dots.append(dot);
  const steps = places.map(([x, y]) => ({ transform: `translate(${x}px, ${y}px)` }));
  dot.animate(steps, { duration: HOP_MILLIS * (steps.length - 1), easing: 'linear' }).onfinish = () => dot.remove();
}

const domainOf = (node) => `${node}`.replace(/^mn:\/\//, '').split('/')[0];
const stay = (micros) => (micros < 1000 ? `${micros} µs` : `${(micros / 1000).toFixed(1)} ms`);

async function send(from, to, value) {
  const number = ++sent;
  const note = element('small', {}, 'sent');
  const line = element('li', {}, `${number}: ${value}`, note);
  list.prepend(line);
  while (list.children.length > MOST_LINES) list.lastChild.remove();
  waiting += 1;
  const { code, description, path = [] } = await from.deliver('update', from.url, to, { value, number }, (body) => {
    note.textContent = body.description;
  });
  waiting -= 1;
  line.className = code < 300 ? 'good' : 'bad';
  line.dataset.path = path.map(({ node }) => domainOf(node)).join(' ');
  const way = path.map(({ node, micros }) => `${domainOf(node)} ${stay(micros)}`).join(' → ');
  note.textContent = code < 300 ? way : `${description}${way && `; ${way}`}`;
  if (code < 300) travel(path.map(({ node }) => domainOf(node)));
}

async function connect({ domain, web }) {
  const name = PEOPLE[domain];
  const status = document.getElementById(name);
  const runtime = await Runtime.at(web, `runtime://${domain}/${name}-${me}`);
  runtime.connect(({ value }) => {
    status.textContent = `${name}: ${value}`;
    status.className = `status ${value}`;
  });
  return runtime;
}

// -- the start ---------------------------------------------------------------------------

let first;
while (!first) {
  first = await ask('map').catch(async (why) => {
    route.textContent = why.message;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  });
}
draw(first);
show(first);
setInterval(look, 1000);

const [ann, carl] = await Promise.all(first.nodes.filter(({ domain }) => PEOPLE[domain]).map(connect));
const inbox = `hyperty://c.example/carl-${me}`;
await carl.subscribe(inbox, () => {});
form.onsubmit = (event) => {
  event.preventDefault();
  if (text.value) send(ann, inbox, text.value);
};
setInterval(() => {
  if (always.checked && wasReached && waiting < MOST_WAITING && !document.hidden) send(ann, inbox, text.value || 'hello');
}, 1000);
