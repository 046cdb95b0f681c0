"""
Foreign stubs for operators: the list, the actions, and the metrics.
"""
