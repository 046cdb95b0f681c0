"""
The JavaScript protostub, built from src/ by tools/stub/build.js, as browsers are given it.

default.ps.js   System.register, for runtimes of today
default.mjs     an ES module, for pages of your own; default.d.mts has its types
activate.js     activate(url, bus, config), for runtimes that ask a catalogue
"""
