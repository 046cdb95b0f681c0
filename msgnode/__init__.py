"""
msgnode, a domain messaging node.  The source, in the order a message travels:

connectors/websocket.py, tcp.py, poll.py   bytes come in; nothing else to decide
  lane.py, cork.py     WebSocket frames past Autobahn; output sent once a read
  web.py, longpoll.py  the web port; a client that polls
reception.py   receive: the door, and the one `try` on the path
message.py     decode: the header; the bytes are kept as they came
handshake.py   mn:/session: open, re-open, close
router.py      route: the one path, a responder or the routing table
routes.py      resolve: which sessions hear an address
session.py     a runtime's place; waiting.py is what waits while it is away
sessions.py    all of them, and the connections that come and go beneath
binding.py     may this session hear that address?
allocation.py, pool.py, keys.py, subscription.py    the responders
traffic.py, hourly.py    what became of each message, written down
address.py     the only reader of addresses
node.py        all of this put together; tap.py adds connectors and a reactor
config.py, configfile.py    what an operator can set, and how it is read
"""

__version__ = "0.1.0"
