"""
What clients may cost: connections, rates, memory, disk.
"""
