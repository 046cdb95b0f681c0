"""
msgnode, a domain messaging node.  The source, in the order a message travels:

connectors/websocket.py, tcp.py, poll.py   bytes come in; nothing else to decide
  lane.py, cork.py     WebSocket frames past Autobahn; output sent once a read
  web.py, paths.py, answers.py, longpoll.py  the web port; a client that polls
  socketio.py, socketlane.py, socketclient.py, socketpolls.py   Socket.IO by polling and by WebSocket
  engineio.py, socketacks.py, polllane.py   what is on its wire; acknowledgements; polls past the web server
  message.py, exchange.py, openapi.py, asked.py    REST: a request by HTTP, and its response
reception.py   receive: the door, and the one `try` on the path; failures.py: what nobody foresaw
message.py     decode: the header; the bytes are kept as they came; complaints.py says what is wrong with them
handshake.py   mn:/session: open, re-open, close; agreement.py: what is counted from then on
gate.py        whose token opens a session, and what waits while it is looked at
identity.py    until when: a warning, a newer token, the park; proof.py, asserted.py, devices.py
points.py, enforcement.py, verdicts.py   check: the policies are asked
senders.py     what they are told of whoever sends
fulfilment.py, delays.py, marking.py    and what they oblige to is done
router.py      route: the one path, a responder or the routing table; several.py: each of a list
routes.py      resolve: which sessions hear an address
takeover.py    who may have a session
ownership.py   whose an address is, and who may send from it
session.py     a runtime's place; waiting.py is what waits while it is away
outbox.py      acknowledged resume: both directions counted
ledger.py      what is owed, written down in spool.py before it leaves; sweep.py empties old files
segment.py, spoolrecords.py    and how it is read again; paper.py is what the ledger needs of it
arrivals.py, rates.py    how many may come, and how fast they may send
closing.py     why a connection is closed
receipts.py    what became of a message
sessions.py    all of them, and the connections that come and go beneath; counts.py
shortage.py    a disk that takes nothing, and too little memory
binding.py     may this session hear that address?
allocation.py, pool.py, keys.py, subscription.py    the responders
backends.py    the servers behind the node
connectors/rest.py, dial.py, body.py, outcomes.py, breaker.py    a call to one of them
registration.py, recordfields.py, connectors/domainregistry.py    the domain registry: what is asked, and how
announcements.py, connectors/registrypoller.py    who listens is told what comes and goes there
registered.py, connectors/farewell.py    what a session had registered, and its end
connectors/globalregistry.py, globalrecord.py    the global registry
devregistry/   both registries, embedded in the node
connectors/tokens.py, jws.py, provider.py    which tokens are believed; idm.py, qos.py answer, offers.py
connectors/opaque.py, introspection.py    those that only their provider can read; shared.py asks once
keeping.py, store.py, statefile.py, restore.py    what survives a restart
policies.py, policysource.py, policyloading.py, policyversions.py    how policies come and go
policydesk.py, policyresponder.py, admintoken.py, trial.py    who may look after them, and how
decisions.py   what was decided, counted and written down
traffic.py, linelog.py, hourly.py    what became of each message, written down
policy/        who may send what to whom: a message in, a decision out; docs/policy.md
stubs.py       the protostub for browsers, which is in stub/; connectors/wellknown.py serves it
mining/        what Spark finds in that; questions.py has all questions
address.py     the only reader of addresses
node.py        all of this put together; tap.py adds connectors and a reactor
whole.py, restart.py, policywiring.py, connectors/listener.py    what it starts, and in which order
client/        the other end: a client in Python; cli/ is the command `msgnode`
options.py, config.py, backendoptions.py, section.py    what an operator can set
configfile.py, contradictions.py, trust.py, reloading.py    how it is read, and read again
"""

__version__ = "0.1.0"
