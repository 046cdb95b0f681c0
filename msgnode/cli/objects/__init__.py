"""
The verbs of `msgnode object`: the history of kept objects.
"""
