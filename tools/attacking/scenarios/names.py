"""
Speaking for another: in whose name one opens, binds, sends and answers.
"""

from attacking.load.clients import Closed, request
from attacking.scenarios.ground import ALLOCATION, SM, Broke, Ground, attack

CHECKED = '[session]\nfrom_check = "refuse"\n'


@attack("anothers-hyperty", "Binding a victim's hyperty, and answering in its name.", config=CHECKED)
def hyperty(ground: Ground) -> None:
    victim, thief, asker = ground.line("victim"), ground.line("thief"), ground.line("asker")
    made = victim.ask(
        request(2, "create", victim.runtime, ALLOCATION, {"scheme": "hyperty", "value": {"number": 1}})
    )
    ground.answered(made, 200)
    (address,) = made["body"]["value"]["allocated"]  # type: ignore[index,call-overload,str-unpack]

    bound = thief.subscribe(address)  # refused, but what if it were not?
    asker.send(request(3, "read", asker.runtime, address, {"secret": 1}))
    heard = thief.arrived()
    thief.send(request(3, "response", address, asker.runtime, {"code": 200, "value": "forged"}))
    event = request(4, "create", address, asker.runtime, {"value": "forged"})
    ground.refused(thief, event, 403)
    posted = ground.http().post("/message", event | {"id": 5, "type": "event"}, thief.token)

    ground.answered(bound, 403)
    ground.check(not heard, f"it heard {heard}")
    ground.answered(posted, 403)
    ground.check(not asker.arrived(), "a forged message arrived")
    ground.check(len(victim.arrived()) == 1, "the victim did not hear its request")


@attack(
    "learnt-name",
    "Announcing what another was the first to announce, by REST and by subscribing.",
    config=CHECKED,
)
def announced(ground: Ground) -> None:
    victim, thief = ground.line("victim"), ground.line("thief")
    address = f"hyperty://localhost/{ground.host}"
    ground.answered(victim.subscribe(address), 200)

    ground.answered(thief.subscribe(address), 403)
    ground.answered(thief.subscribe(f"{victim.runtime}/sm"), 403)
    posted = ground.http().post("/message", request(5, "event", address, victim.runtime), thief.token)

    ground.answered(posted, 403)
    ground.check(not victim.arrived(), "a forged message arrived")


@attack("nodes-names", "Opening a session by the name of a node: of this domain, of others, and of services.")
def opened(ground: Ground) -> None:
    for name in (
        "domain://msg-node.other.example/sm",
        "domain://registry.localhost",
        "domain://anything.example",
        "mn:/validator",
        "global://registry",
    ):
        client = ground.line()
        answer = client.ask(request(1, "open", name, "mn:/session"))
        if not isinstance(answer, Closed):
            raise Broke(f"a session for {name}: {answer}")
        ground.answered(answer, 4403)
        client = ground.line("honest")
        client.send(request(2, "create", "mn:/session", client.runtime, {}))
        ground.answered(client.receive(), 403)


@attack("nodes-words", "Messages in the name of the node, to another.")
def words(ground: Ground) -> None:
    victim, liar = ground.line("victim"), ground.line("liar")
    for number, name in enumerate((SM, "mn:/session", "domain://registry.localhost", "global://registry")):
        liar.send(request(number, "response", name, victim.runtime, {"code": 200}))
    got = [message for message in victim.arrived() if message["from"] != "domain://registry.localhost"]

    ground.check(not got, f"the victim got {got}")
