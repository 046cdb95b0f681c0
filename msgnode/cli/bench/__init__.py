"""
`msgnode bench`: the command, the clients that make the load, and the counts of the node.
"""
