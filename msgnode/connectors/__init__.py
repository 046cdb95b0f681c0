"""
How clients reach the node: WebSocket, lines over TCP, HTTP, Socket.IO.
"""
