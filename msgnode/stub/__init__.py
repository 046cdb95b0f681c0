"""
The JavaScript protostub and the TypeScript client as browsers load them, built by tools/stub/build.js.

default.ps.js   System.register, for current runtimes
default.mjs     an ES module, for web pages; default.d.mts has its types
activate.js     activate(url, bus, config), for older runtimes, which ask a catalogue
client.mjs      the client of client/, which has the session of src/; client.d.mts has its types
"""
