"""
Members that send as long as the load lasts.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

from soaking.load.member import Member
from soaking.progress import Stall, wait_until
from soaking.verdict import Verdict

# A link that was lost often counts again only after a minute: nothing may move for so long, and a bit.
PATIENCE_SECONDS = 150.0


class MemberLoad:
    """
    Members, each of which sends `rate` messages a second.

    `codes` counts what they were told.
    """

    def __init__(self, members: Sequence[Member], rate: float, chance: random.Random) -> None:
        self.chance = chance
        self.members = members
        self.codes: Counter[tuple[str, int]] = Counter()
        for member in self.members:
            member.told_code = lambda kind, code: self.codes.update([(kind, code)])
        self._rate = rate
        self._tasks: list[asyncio.Task[None]] = []
        self._sending: list[asyncio.Task[None]] = []

    def moved(self) -> object:
        """
        What changes whenever a member receives something, or something of it is acknowledged.
        """
        return [member.client.moved for member in self.members]

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(member.client.run()) for member in self.members]

        def are_subscribed() -> bool:
            return all(member.is_subscribed for member in self.members)

        async def ask_again(seconds: float) -> None:
            for member in self.members:
                if not member.client.kept:
                    member.subscribe()
            await asyncio.sleep(seconds)

        if not await wait_until(are_subscribed, Stall(lambda: None, PATIENCE_SECONDS), 2.0, ask_again):
            raise RuntimeError("not all members could subscribe")
        self.go_on()

    def go_on(self) -> None:
        self._sending = [asyncio.create_task(self._send(member)) for member in self.members]

    def pause(self) -> None:
        for task in self._sending:
            task.cancel()

    async def _send(self, member: Member) -> None:
        while True:
            await asyncio.sleep(self.chance.expovariate(self._rate))
            member.step()

    def has_flowed(self, since: float) -> bool:
        """
        Has something that was sent since then come from each group to each other?
        """
        groups = {member.group for member in self.members}
        newest: dict[tuple[str, str], float] = {}
        for member in self.members:
            for group in groups - {member.group}:
                ends = group, member.group
                newest[ends] = max(newest.get(ends, 0.0), member.heard_at[group])
        return all(when >= since for when in newest.values())

    async def drain(self) -> bool:
        """
        Send no more, and wait until all has come and all who asked were told.
        """
        self.pause()
        done = await wait_until(self._has_all, Stall(self.moved, PATIENCE_SECONDS), every=0.5)
        await asyncio.sleep(1)  # what comes too much comes now
        return done

    def _has_all(self) -> bool:
        return (
            not any(member.client.kept for member in self.members)
            and not any(member.silent() for member in self.members)
            and all(member.verdict().lost == 0 for member in self.members)
        )

    async def stop(self) -> None:
        self.pause()
        for member in self.members:
            member.client.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._sending, return_exceptions=True)

    def verdict(self) -> Verdict:
        return sum((member.verdict() for member in self.members), Verdict())
