// A Socket.IO client that does as it is told: messages to send come on stdin, one a line;
// what happens goes to stdout, one JSON array a line.
//
//   node socketio.js MODULE URL [TRANSPORT]

const [module_, url, transport] = process.argv.slice(2);
const library = require(module_);
const options = {forceNew: true, reconnectionDelay: 50, reconnectionDelayMax: 50};
if (transport) options.transports = [transport];
const socket = (library.io || library)(url, options);

const say = (...what) => process.stdout.write(JSON.stringify(what) + '\n');
const way = () => socket.io.engine.transport.name;

for (const name of ['connect', 'disconnect', 'close'])
  socket.on(name, value => say(name, value === undefined ? null : value));
socket.on('message', message => say('message', message));
socket.on('connect', () => {
  if (way() === 'websocket') say('way', 'websocket');
  else socket.io.engine.once('upgrade', () => say('way', way()));
});

require('readline').createInterface({input: process.stdin})
  .on('line', line => socket.emit('message', line))
  .on('close', () => process.exit(0));
