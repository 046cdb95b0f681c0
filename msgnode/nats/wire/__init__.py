"""
The NATS client protocol without I/O: parser, commands, messages with headers, credentials.
"""
