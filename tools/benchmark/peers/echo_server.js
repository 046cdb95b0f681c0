// A Socket.IO server that sends every message back: node echo_server.js MODULE PORT

const [module_, port] = process.argv.slice(2);
const server = require('http').createServer();
require(module_)(server).on('connection', socket => socket.on('message', message => socket.emit('message', message)));
server.listen(Number(port), '127.0.0.1');
