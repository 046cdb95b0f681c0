"""
Socket.IO, as the NodejsProtoStub speaks it.
"""
