"""
The keepers of objects in a cluster: one member writes the journal of an object, and gives its versions.

Publications of clients of other members go to the keeper, which sends them on to all who hear them. While the
keeper is away they are delivered without a version, and the keeper notes afterwards that they are missing.
"""

from collections.abc import Callable, Iterable

import msgspec

from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.ownership.owners import Owners

MISSED = "object.missed"
MAX_OBJECTS = 10_000  # of which this node notes that a keeper missed something
MAX_TOLD = 500  # in one request

_objects = msgspec.msgpack.Decoder(list[str])


class ObjectKeepers:
    """
    The keepers of this domain's objects (OtherKeepers).

    `missed` notes that messages of an object are missing.
    """

    def __init__(
        self,
        own: str,
        owners: Owners,
        requests: MemberRequests,
        up: Callable[[], Iterable[str]],
    ) -> None:
        self.missed: Callable[[str], None] = lambda object: None
        self._own = own
        self._owners = owners
        self._requests = requests
        self._up = up
        self._not_told: dict[str, dict[str, None]] = {}  # objects by keeper
        requests.offer(MISSED, self._take)
        requests.on_up.append(self._tell)

    def keeper(self, object: str) -> str:
        found = self._owners.of(object)
        return "" if not found or found[0] == self._own else found[0]

    def is_away(self, keeper: str) -> bool:
        return keeper not in self._up()

    def note_missed(self, keeper: str, object: str) -> None:
        objects = self._not_told.setdefault(keeper, {})
        if len(objects) < MAX_OBJECTS:
            objects[object] = None

    def _tell(self, node: str) -> None:
        objects = list(self._not_told.pop(node, ()))
        for at in range(0, len(objects), MAX_TOLD):
            some = objects[at : at + MAX_TOLD]
            told = self._requests.ask(node, MISSED, msgspec.msgpack.encode(some))
            told.addErrback(self._again, node, some)

    def _again(self, why: object, node: str, objects: list[str]) -> None:
        """
        The keeper did not say that it has noted it: it is asked again when it is back.
        """
        for object in objects:
            self.note_missed(node, object)

    def _take(self, node: str, body: bytes) -> bytes:
        for object in _objects.decode(body)[:MAX_TOLD]:
            self.missed(object)
        return b""
