"""
A domain registry and a global registry on SQLite, for development and for small domains with one node.

They answer like the servers of the reTHINK project, byte for byte where it matters, so that what works with
these also works with those. The node embeds both unless its configuration names others; `twistd msgregistry`
runs them alone.
"""
