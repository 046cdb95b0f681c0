"""
The benchmark behind `tools/bench`, in the order of a run.

`command` reads the options and `install` makes the venvs.  `scenarios` is the
list of what is measured, and `alternate` measures it: it starts the peers with
`servers`, has one generator process after another load them in turn, and hands
the figures to `figures` and `tables`.  All of that needs no more than Python.

The generator process is `generator`.  It opens `clients` over `wires`, with
bytes from `frames`, and drives them as `pairs`, `bindings`, `fanout`,
`allocation`, `sessions`, `polling`, `hardship` or `restart` say, timed by
`stopwatch`.  A `victim` and a `flooder` belong to `hardship`.
"""
