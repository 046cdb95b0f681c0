"""
The evidence: which message was lost, doubled or out of order, whose it was, and near which fault.
"""

from collections.abc import Iterable, Iterator, Sequence

from soaking.load.generator import Load
from soaking.load.publisher import Publisher
from soaking.load.resuming_client import ResumingClient
from soaking.peers.node_process import Node
from soaking.report.figures import log_lines
from soaking.verdict import Numbers, ranges

MAX_PRINTED = 40  # of a run; the others are counted

Fault = tuple[str, float, float]  # name, begin and end


def evidence(node: Node, load: Load, history: Sequence[Fault]) -> list[str]:
    """
    One line for each message that was lost, came twice, out of order or as a refusal, or lacks its log line.
    """
    found = [line for one in load.publishers for line in of_publisher(one, load.publishers, history)]
    found += [line for one in load.publishers for line in _of_connections(one.client, history)]
    found += load.flooded.evidence()
    found += _of_numbers(load.garbling.runtime, load.garbling.wrong())
    for legacy in load.legacy:
        found += _of_numbers(legacy.runtime, legacy.wrong())
    found += [f"log line missing: {name}" for name in log_lines(node, load)[1]]
    return found + [f"error of the node: {line}" for line in node.errors()]


def printed(found: Sequence[str]) -> Iterator[str]:
    """
    The first lines of evidence, and how many more there are.
    """
    yield from found[:MAX_PRINTED]
    if len(found) > MAX_PRINTED:
        yield f"and {len(found) - MAX_PRINTED:,} more"


def near(when: float, history: Sequence[Fault]) -> str:
    """
    The time by the last fault that had begun then.
    """
    before = [fault for fault in history if fault[1] <= when]
    if not before:
        return "before the first fault"
    number, (name, began, ended) = len(before), before[-1]
    since = f"{when - began:.2f} s after {name!r} (fault {number}) began"
    return since if when <= ended else f"{since}, {when - ended:.2f} s after it ended"


def of_publisher(one: Publisher, publishers: Sequence[Publisher], history: Sequence[Fault]) -> list[str]:
    """
    What is wrong with what this client received: messages of its neighbours, answers, refusals.
    """
    found = [line for number in one.neighbours() for line in _from(publishers[number], one, history)]
    for kind, numbers in one.wrong_answers()._asdict().items():
        found += [f"{kind}: the answer {_asked(each, one, publishers, history)}" for each in numbers]
    for refusal in one.refusals:
        text = {key: value for key, value in refusal.items() if key != "came"}
        found.append(f"refused: {one.runtime} got {text}, {near(refusal['came'], history)}")
    return found


def _from(sender: Publisher, one: Publisher, history: Sequence[Fault]) -> Iterator[str]:
    numbers, times = one.heard[sender.number], one.heard_at[sender.number]
    for kind, wrong in one.wrong_messages(sender.number)._asdict().items():
        for each in wrong:
            _, sent = sender.sent_at.get(f"{sender.runtime} {each}", (0, 0.0))
            came = [when for number, when in zip(numbers, times, strict=True) if number == each]
            what = f"{kind}: {each} from {sender.runtime} to {one.runtime}"
            yield f"{what}, sent {near(sent, history)}{_came(came, history)}"


def _asked(number: int, one: Publisher, publishers: Sequence[Publisher], history: Sequence[Fault]) -> str:
    peer, when = one.asked_at.get(number, ("nobody", 0.0))
    came = [
        other.requests[one.runtime, f"q{number}"]
        for other in publishers
        if other.runtime == peer and (one.runtime, f"q{number}") in other.requests
    ]
    asked = f"to request q{number} from {one.runtime} to {peer}, asked {near(when, history)}"
    return asked + _came(came, history, "the request came")


def _came(times: Iterable[float], history: Sequence[Fault], came: str = "it came") -> str:
    found = " and ".join(near(when, history) for when in times)
    return f"; {came} {found}" if found else f"; {came.replace('came', 'never came')}"


def _of_numbers(receiver: str, wrong: Numbers) -> Iterator[str]:
    for kind, numbers in wrong._asdict().items():
        if numbers:
            yield f"{kind}: {ranges(numbers)} to {receiver}"


def _of_connections(client: ResumingClient, history: Sequence[Fault]) -> Iterator[str]:
    """
    What the client was told at a connection, where it should not have been told that.
    """
    for note in client.history:
        if note.get("wrong"):
            when = near(note["time"], history)
            yield f"{note['wrong']}: {client.runtime} said {note['said']}, was told {note['told']}, {when}"
