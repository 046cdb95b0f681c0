"""
The view that operators have of links: the knowledge of the overlay, the carriers and the streams, in the
shapes of links/operations.py, and their orders put into effect.
"""
