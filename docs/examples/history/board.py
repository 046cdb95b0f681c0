"""
A board with notes: creates the object, and moves one of its notes every half second, by JSON lines.

    board.py [PORT]
"""

import json
import random
import socket
import sys
import time

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 9091
ME, BOARD = "runtime://localhost/board", "comm://localhost/boards/1"
NOTES = {"ideas": "#fde047", "doing": "#86efac", "done": "#93c5fd", "blocked": "#fca5a5"}


def send(s, type, to, body, from_=BOARD):
    message = {"id": 1, "type": type, "from": from_, "to": to, "body": body}
    s.sendall(json.dumps(message).encode() + b"\n")


def place(color):
    return {"x": random.randint(0, 84), "y": random.randint(0, 44), "color": color}


while True:
    try:
        s = socket.socket()
        s.connect(socket.getaddrinfo("127.0.0.1", PORT)[0][-1])
        send(s, "open", "mn:/session", {}, ME)
        send(s, "create", BOARD + "/changes", {"value": {name: place(NOTES[name]) for name in NOTES}})
        while True:
            time.sleep(0.5)
            name = random.choice(list(NOTES))
            send(s, "update", BOARD + "/changes", {"attribute": name, "value": place(NOTES[name])})
    except OSError:
        time.sleep(2)  # the node is away
