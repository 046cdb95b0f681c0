"""
Mining of the traffic log with Spark: traffic between addresses, failures, latency.

It depends on docs/traffic-log.md only, not on the node. docs/mining.md describes the output.
"""
