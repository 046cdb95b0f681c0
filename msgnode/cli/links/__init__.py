"""
`msgnode link` and `msgnode route`: links to other domains, by the admin listener of a node.
"""
