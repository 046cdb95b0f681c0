"""
What links between nodes cost, beside one node: `tools/bench --links`.
"""
