"""
A thermometer: tells its temperature once a second, in lines of JSON over TCP.

Nothing but sockets and JSON, so that it runs under MicroPython too.
    thermometer.py [PORT]
"""

import json
import random
import socket
import sys
import time

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 9091
ME, TEMPERATURE = "runtime://localhost/thermometer", "comm://localhost/temperature"


def send(s, type, from_, to, body):
    message = {"id": 1, "type": type, "from": from_, "to": to, "body": body}
    s.sendall(json.dumps(message).encode() + b"\n")


def measure(before):
    return round(before + random.uniform(-0.3, 0.3), 1)


degrees = 21.0
while True:
    try:
        s = socket.socket()
        s.connect(socket.getaddrinfo("127.0.0.1", PORT)[0][-1])
        send(s, "open", ME, "mn:/session", {})
        while True:
            degrees = measure(degrees)
            # Only the last value is worth anything: it waits for nobody, and for nothing more important.
            body = {"attribute": "degrees", "value": degrees}
            send(s, "update", TEMPERATURE, TEMPERATURE + "/changes", body)
            time.sleep(1)
    except OSError:
        time.sleep(2)  # the node is away
