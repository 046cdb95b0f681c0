/** A page that sends GET_TEMPERATURE, and shows what the node refuses of it. */

const THERMOMETER = 'hyperty://localhost/thermometer';
const PRESETS = [
  ['The hall', '{"ROOM": "hall"}'],
  ['The attic, in kelvin', '{"ROOM": "attic", "UNIT": "KELVIN"}'],
  ['A number as room', '{"ROOM": 5}'],
  ['No room', '{"UNIT": "KELVIN"}'],
  ['Another unit', '{"ROOM": "hall", "UNIT": "FAHRENHEIT"}'],
];
const MOST_LINES = 20;

const node = new URLSearchParams(location.search).get('node');
const { Client } = await import(`${node}/.well-known/protocolstub/client.mjs`);
const [status, presets, form, text, list, hint, table] = ['.status', '.presets', 'form', 'textarea', 'ol', '.definition .hint', 'table'].map(
  (name) => document.querySelector(name),
);

function element(name, attributes = {}, ...children) {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(...children);
  return made;
}

// -- the definition, as the node's catalogue has it ---------------------------------

const { records } = await (await fetch(`${node}/.well-known/records/records.json`)).json();
const [record] = records;
const rows = new Map(); // of the table, by slot

function addSlot({ name, type, direction = 'REQUEST', mandatory, maxLength, values, default: usual }) {
  const names = values?.map((value) => value.name ?? value).join(', ');
  const limits = [mandatory && 'mandatory', maxLength && `at most ${maxLength} characters`, names, usual && `default ${usual}`];
  const note = element('small');
  const row = element(
    'tr',
    {},
    element('th', { scope: 'row' }, name, note),
    element('td', {}, type, element('small', {}, limits.filter(Boolean).join('; '))),
    element('td', {}, direction.toLowerCase()),
  );
  rows.set(name, { row, note });
  table.tBodies[0].append(row);
}

hint.textContent = `${record.name}: ${record.description}`;
record.slots.forEach(addSlot);
table.hidden = false;

/** Mark the slot that was refused, or none. */
function mark(slot, expected) {
  for (const [name, { row, note }] of rows) {
    row.className = name === slot ? 'wrong' : '';
    note.textContent = name === slot ? `expected ${expected}` : '';
  }
}

// -- requests ------------------------------------------------------------------------

const client = new Client(`${node}/ws`, { runtime: `runtime://localhost/${crypto.randomUUID()}` });
client.on('state', ({ open }) => {
  status.textContent = open ? 'live' : 'disconnected';
  status.className = `status ${status.textContent}`;
});

function say(line, kind, said, ...more) {
  line.className = kind;
  line.replaceChildren(element('span', {}, element('strong', {}, said), ...more), line.lastChild);
}

async function ask(written) {
  const line = element('li', {}, element('span', {}, 'sent'), element('code', {}, written));
  list.prepend(line);
  while (list.children.length > MOST_LINES) list.lastChild.remove();
  mark();
  try {
    const { body } = await client.request(THERMOMETER, JSON.parse(written), { record: record.id });
    const unit = JSON.parse(written).UNIT === 'KELVIN' ? 'K' : '°C';
    say(line, 'good', `${body.TEMPERATURE.toFixed(1)} ${unit}`, ` at ${new Date(body.MEASURED_AT).toLocaleTimeString()}`);
  } catch (why) {
    const { slot, expected } = why.body ?? {};
    say(line, 'bad', `${why.code ?? ''} ${slot ?? ''}`.trim(), ` ${why.text ?? why.message}`);
    mark(slot, expected);
  }
}

for (const [name, written] of PRESETS) {
  const button = element('button', { type: 'button' }, name);
  button.onclick = () => ask((text.value = written));
  presets.append(button);
}
text.value = PRESETS[0][1];
form.onsubmit = (event) => {
  event.preventDefault();
  ask(text.value);
};
await client.connect({ retry: true });
