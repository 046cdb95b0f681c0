"""
Links between nodes: carriers, the overlay, streams, and the exchange of messages between domains.
"""
