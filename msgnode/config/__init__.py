"""
addressrange=address_range What an operator can set, and reading it again.
"""
