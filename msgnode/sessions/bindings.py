"""
Bindings: why a session is bound to an address.
"""

ALLOCATED, SUBSCRIBED, LEARNT = 1, 2, 4  # may be combined
OWNED = 8  # beside those: the address is the session's own
RUNTIMES = ("runtime://", "hyperty-runtime://")  # schemes of runtimeURLs; what is below one is its session's
