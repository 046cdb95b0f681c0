"""
The attacks behind `tools/attack`: what hostile clients may send, and what must be true afterwards.

`report/command.py` reads the options, tries one attack after the other, and
prints a row for each.  `scenarios/` has the attacks; `scenarios/ground.py` says
what an attack is, and gives it the clients of `load/clients.py`.  The node runs
by `peers/node_process.py`, where memory is bounded.  Meanwhile `load/canary.py`
behaves well in a process of its own, and its record says what others suffered.
"""
