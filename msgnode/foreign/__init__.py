"""
Foreign domains reached by their protostubs: fetching the code, running it in a sandbox, routing to it.
"""
