"""
Reservations of relay bandwidth for operators: the list, and taking one back.
"""
