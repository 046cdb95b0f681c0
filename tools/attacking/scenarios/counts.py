"""
Small requests that would make much: lists that cross, and addresses by the hundred thousand.
"""

import time

from attacking.load.clients import Message, encoded, made_token, request
from attacking.scenarios.ground import ALLOCATION, MIB, SM, Broke, Ground, attack


def crossing(ground: Ground, names: int) -> Message:
    """
    A subscription of so many names, each with as many children.
    """
    body = {
        "resource": [f"c:{n:x}" for n in range(names)],
        "childrenResources": [f"{n:x}" for n in range(names)],
    }
    return request(7, "subscribe", ground.name("crossing"), SM, body)


@attack("names-x-children", "36 KB that subscribe 3,000 names with 3,000 children each.")
def subscribe(ground: Ground) -> None:
    client = ground.line("crossing")

    ground.answered(client.ask(crossing(ground, ground.size(1500, 3000))), 413)


@attack("names-x-children-more", "131 KB of the same, 10,000 by 10,000.")
def subscribe_more(ground: Ground) -> None:
    client = ground.websocket("crossing")

    ground.answered(client.ask(crossing(ground, ground.size(1500, 10_000))), 413)


@attack("names-x-children-web", "The same by /message, as any page may post it: text/plain, no session.")
def subscribe_from_page(ground: Ground) -> None:
    message = crossing(ground, ground.size(1500, 3000))
    http = ground.http()

    for to in (SM, f"domain:/{made_token()}//msg-node.localhost/sm"):
        page = http.post(
            "/message", message | {"to": to}, Content_Type="text/plain", Origin="http://evil.example"
        )
        ground.answered(page, 403)
        ground.answered(http.post("/message", message | {"to": to}, Content_Type="text/plain"), 400, 403)


@attack("allocate-x-children", "An allocation of 1,000 addresses, each with 3,000 children.")
def allocate(ground: Ground) -> None:
    client = ground.line("allocating")
    children = [f"{n:x}" for n in range(ground.size(1000, 3000))]
    body = {"scheme": "comm", "childrenResources": children, "value": {"number": 1000}}

    ground.answered(client.ask(request(7, "create", client.runtime, ALLOCATION, body)), 413)


@attack(
    "free-x-children",
    "De-allocating 1,000 addresses, with 20,000 names of children beside them.",
    memory=128 * MIB,
)
def free(ground: Ground) -> None:
    client = ground.line("freeing")
    value = {"number": 1000, "allocationKey": "all"}
    made = client.ask(request(7, "create", client.runtime, ALLOCATION, {"scheme": "comm", "value": value}))
    ground.answered(made, 200)
    children = [f"{n:x}" for n in range(ground.size(1000, 20_000))]

    freed = client.ask(request(8, "delete", client.runtime, ALLOCATION, {"resource": ["all", *children]}))

    ground.answered(freed, 200, 413)


@attack(
    "many-addresses",
    "A session with 90,000 addresses like runtimes'; runtimes that open beside it; its end.",
    memory=256 * MIB,
)
def strays(ground: Ground) -> None:
    holder = ground.line("holder")
    count = ground.size(20_000, 90_000)
    for first in range(0, count, 10_000):
        resources = [f"runtime://localhost/s{n}/x" for n in range(first, first + 10_000)]
        ground.answered(holder.subscribe(*resources), 200)
    for number in range(ground.size(20, 100)):
        ground.line(f"beside-{number}").close()
    holder.send(request(9, "close", holder.runtime, "mn:/session"))
    holder.arrived(0.5)

    ground.line("afterwards")


@attack("nested-lists", "A subscription of a million lists in lists, with nothing in them.")
def nested(ground: Ground) -> None:
    client = ground.line("nester")
    data = request(7, "subscribe", client.runtime, SM, {"resources": "LISTS"})
    lists = b"[" + b",".join([b"[[],[]]"] * ground.size(60_000, 400_000)) + b"]"

    ground.refused(client, encoded(data).replace(b'"LISTS"', lists), 413, number=7)


@attack(
    "many-policy-questions",
    "A subscription of 90,000 addresses where policies are asked about each.",
    memory=192 * MIB,
    config='[policy]\nsource = "policies.json"\n',
)
def asked(ground: Ground) -> None:
    client = ground.line("asker")
    names = [f"comm://localhost/{n}" for n in range(ground.size(9000, 90_000))]

    ground.answered(client.subscribe(*names), 200)
    ground.answered(client.subscribe(*names[:100], "comm://partner.example/x"), 403)


@attack("many-listeners", "900 sessions that hear one address, and let it go one after the other.")
def listeners(ground: Ground) -> None:
    topic = ground.topic("crowded")
    crowd = [ground.line(f"crowd-{number}") for number in range(ground.size(100, 900))]
    for one in crowd:
        ground.answered(one.subscribe(topic), 200)
    for one in crowd:
        answer = one.ask(request(8, "unsubscribe", one.runtime, SM, {"resources": [topic]}))
        ground.answered(answer, 200)


@attack(
    "long-children",
    "Subscriptions of a long name with 1,000 children each: what they are in the traffic log.",
)
def log(ground: Ground) -> None:
    client = ground.line("logged")
    children = [f"{n:09d}" for n in range(1000)]
    before, sent = len(ground.node.traffic()), ground.sent
    for number in range(ground.size(10, 50)):
        for length in (2000, 900):
            body = {"resource": f"comm://localhost/{number}/".ljust(length, "x"), "children": children}
            client.ask(request(number, "subscribe", client.runtime, SM, body))

    # The log is written a moment later.
    deadline = time.monotonic() + 5
    while len(ground.node.traffic()) == before and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.5)
    grown, sent = len(ground.node.traffic()) - before, ground.sent - sent
    if not grown:
        raise Broke("nothing was logged")
    ground.bounded("traffic log", grown, 8 * sent)
