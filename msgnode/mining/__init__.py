"""
Mining the traffic log with Spark: who talks to whom, what fails, how fast the node is.

It reads docs/traffic-log.md and nothing of the node.  docs/mining.md says what
comes out.
"""
