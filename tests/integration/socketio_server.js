// A messaging node of NodeJS, as far as its protostub sees it: Socket.IO, `open`, and an answer to each request.
// Prints its port. It answers a request by an object, sends what `say` asks for, and leaves when `close` comes.
const [modules, port] = process.argv.slice(2);
const server = require('http').createServer();
const io = require(modules)(server);

io.on('connection', (socket) => {
  socket.on('message', (text) => {
    const message = JSON.parse(text); // the stub sends texts
    const { id, type, from, to, body } = message;
    if (type === 'close') return socket.disconnect();
    const answer = { id, type: 'response', from: to, to: from, body: { code: 200, value: message } };
    if (type === 'say') socket.send(body.what);
    else socket.send(answer);
  });
});
server.listen(+port, '127.0.0.1', () => console.log(server.address().port));
