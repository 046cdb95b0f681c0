"""
The arithmetic of a token bucket, which each rate limit keeps in its own way.
"""


def refilled(left: float, seconds: float, rate: float, capacity: float) -> float:
    """
    What is in a bucket that had so much `left`, `seconds` later; `rate` is what comes in a second.
    """
    return min(capacity, left + max(0.0, seconds) * rate)
