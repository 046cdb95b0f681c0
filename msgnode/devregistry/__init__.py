"""
A domain registry and a global registry on SQLite, for development and small domains of one node.

They answer as the reTHINK project's servers do, byte for byte where it matters,
so that what works with these works with those.  The node has both within it
unless it is told where others are; `twistd msgregistry` starts them alone.
"""
