"""
The benchmark behind `tools/bench`, in the order of a run.

`report/command.py` reads the options and `peers/install.py` makes the virtual
environments.  `scenarios/catalogue.py` is the list of what is measured, and
`report/interleave.py` measures it: it starts the peers with `peers/servers.py`,
has one generator process after another load them in turn, and hands the
results to `report/statistics.py` and `report/tables.py`.  All of that needs no
more than Python.

`links/` is a benchmark of its own, of nodes that are linked.

The generator process is `load/generator.py`.  It opens `load/clients.py` over
`load/transports.py`, with bytes from `load/frames.py`, and drives them as a
scenario says, timed by `report/stopwatch.py`.
"""
