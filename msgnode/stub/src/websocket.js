/**
 * A link to the node by WebSocket.
 *
 * A link opens the session with `opening`, tells what it hears to `on`, and says
 * once that it is over: `on.lost(code, reason)`, unless it was dropped.
 */
export class WebSocketLink {
  constructor(world, url, opening, on) {
    this.batched = false;
    this._on = on;
    const socket = (this._socket = new world.WebSocket(url));
    socket.onopen = () => socket.send(JSON.stringify(opening));
    socket.onmessage = (event) => on.heard(JSON.parse(event.data));
    socket.onerror = () => {}; // the close says it too; npm's ws throws what nobody listens to
    socket.onclose = (event) => on.lost(event.code, event.reason);
  }

  send(data) {
    this._socket.send(data);
  }

  /** Tell the node something that is not counted. */
  tell(message) {
    this._socket.send(JSON.stringify(message));
  }

  drop() {
    const socket = this._socket;
    socket.onopen = socket.onmessage = null;
    return new Promise((resolve) => {
      socket.onclose = resolve;
      socket.close();
    });
  }
}

/** Where the node listens for WebSocket, if its address was given for HTTP. */
export const webSocketURL = (url) => url.replace(/^http/, 'ws');
