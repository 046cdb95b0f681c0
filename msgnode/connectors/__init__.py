"""
How runtimes reach the node: WebSocket, a TCP line protocol, long-polling.
"""
