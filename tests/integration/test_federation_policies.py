"""
Real nodes of three domains with the example policies: what passes between whom, in each direction.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from soaking.peers.domain_node import DomainNode, LinkPlan

from .network import PATIENCE, Message, Runtime, running

EXAMPLES = Path(__file__).parent.parent.parent / "etc/policies"
LINKS = (LinkPlan("e", "p", 10), LinkPlan("e", "r", 10), LinkPlan("p", "r", 10))
NAMES = {"e": "example.org", "p": "partner.example", "r": "rogue.example"}
POLICY = '[policy]\nsource = "policy.json"'
# The burst of the rate limit is a second's messages; so many exceed it, also if it takes half a minute until
# they are decided about.
RATE, FLOOD = 10, 400


class Hyperty(Runtime):
    """
    A runtime that sends from a hyperty, and answers what it is asked with its name.
    """

    def __init__(self, node: DomainNode, name: str) -> None:
        super().__init__(node, name)
        self.hyperty = f"hyperty://{node.domain}/{name}"
        self.client.heard = self._heard

    def _heard(self, message: Message) -> None:
        if message["type"] == "read":
            answer = {"type": "response", "from": message["to"], "to": message["from"], "id": message["id"]}
            self.client.send({**answer, "body": {"code": 200, "by": self.runtime}})
        else:
            self.inbox.append(message)

    async def gets(self, to: str, is_wanted: Callable[[Message], bool]) -> None:
        """
        Ask until the answer is as wanted: a policy, or a route, takes effect in a moment, and a busy machine
        may let a request become stale.

        An answer that is under way then may be refused by the new policy, and the asker is not told.
        """
        deadline = time.monotonic() + PATIENCE
        found: Message = {}
        while not is_wanted(found):
            assert time.monotonic() < deadline, f"{self.hyperty} to {to}: {found}"
            await asyncio.sleep(0.2)
            with suppress(AssertionError):
                found = (await self.ask(to, patience=5.0, **{"from": self.hyperty}))["body"]


def test_policies_decide_what_passes_between_domains() -> None:
    """
    With the examples at one node, a blocked domain is refused in both directions, a switchboard's calls go to
    the reception, nothing passes but what a rule names, and a flood is limited. A policy of the node on the
    other side holds there, too, in both directions.
    """
    asyncio.run(_decide())


async def _decide() -> None:
    policies = {letter: {"policy.json": "[]"} for letter in "ep"}
    async with running(LINKS, policies, federation=dict.fromkeys("ep", POLICY), domains=NAMES) as network:
        example, partner, rogue = (network.nodes[letter] for letter in "epr")
        ann, pat, roy = Hyperty(example, "ann"), Hyperty(partner, "pat"), Hyperty(rogue, "roy")
        reception = Hyperty(example, "reception")
        for one in (ann, pat, roy, reception):
            assert await one.subscribe(one.hyperty) == 200
        for one, other in ((pat, ann), (roy, ann), (ann, pat), (ann, roy), (roy, pat)):
            await one.gets(other.hyperty, _is_from(other))

        use(example, "federation-block")
        await ann.gets(roy.hyperty, _is_refused(403))  # refused here
        await roy.gets(ann.hyperty, _is_refused(404))  # refused there: it does not learn why
        await pat.gets(ann.hyperty, _is_from(ann))
        await ann.gets(pat.hyperty, _is_from(pat))

        use(example, "federation-redirect")
        await pat.gets("hyperty://example.org/switchboard", _is_from(reception))

        use(example, "federation-default-deny")
        await pat.gets("hyperty://example.org/switchboard", _is_refused(404))
        await pat.gets(ann.hyperty, _is_from(ann))
        await ann.gets(pat.hyperty, _is_from(pat))
        await roy.gets(ann.hyperty, _is_refused(404))
        await ann.gets(roy.hyperty, _is_refused(403))
        await pat.gets("domain://registry.example.org", _is_refused(404))

        # The other node, by a policy of its own.
        use(partner, "federation-block", {"rogue.example": "example.org"})
        await pat.gets(ann.hyperty, _is_refused(403))
        await ann.gets(pat.hyperty, _is_refused(404))
        await roy.gets(pat.hyperty, _is_from(pat))

        use(example, "federation-limit", {'"rate": 100': f'"rate": {RATE}'})
        await roy.gets(ann.hyperty, _is_from(ann))
        for number in range(FLOOD):
            roy.send(ann.hyperty, id=number, body={"n": number}, **{"from": roy.hyperty})
        # It is of the same priority, so it comes when all of the flood was decided about.
        await roy.gets(ann.hyperty, _is_from(ann))
        assert 0 < len(ann.numbers()) < FLOOD
        await asyncio.gather(*(one.stop() for one in (ann, pat, roy, reception)))


def use(node: DomainNode, example: str, changes: dict[str, str] | None = None) -> None:
    """
    Let the node read an example anew, changed perhaps.
    """
    text = (EXAMPLES / f"{example}.json").read_text()
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    (node.directory / "policy.json").write_text(text)
    os.kill(node.pid, signal.SIGHUP)


def _is_from(one: Hyperty) -> Callable[[Message], bool]:
    return lambda body: body.get("by") == one.runtime


def _is_refused(code: int) -> Callable[[Message], bool]:
    return lambda body: body.get("code") == code
