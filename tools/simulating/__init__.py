"""
The simulation behind `tools/simulate`: many overlays in one process, on a clock of its own.

`clock.py` is a Clock that is fast with many timers, `links.py` has links in memory with faults, `world.py`
builds a network of overlays upon them, and `streams.py` streams between some of these. `faults.py` breaks
it, `reference.py` says by networkx which costs are right, `invariants.py` judges, and `command.py` prints
the figures.
"""
