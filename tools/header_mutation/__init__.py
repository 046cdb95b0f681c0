"""
Mutation test of message headers: the node's reading of them beside a slow reader that looks at each key, and
beside the scan of the compiled data plane.
"""
