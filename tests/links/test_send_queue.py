"""
The send queue of a saturated link: who leaves first, and who leaves at all.
"""

from collections import Counter

from msgnode.links.carrier.send_queue import MAX_OVERTAKEN, SendQueue

# The priorities of urgent messages, answers, requests, logs, and what is least urgent.
URGENT, ANSWER, REQUEST, LOG, LEAST = 9, 7, 5, 1, 0
ALL = (LEAST, LOG, REQUEST, ANSWER, URGENT)
ROUNDS = 300


def leave(queue: SendQueue, count: int) -> list[int]:
    """
    The priorities of the next entries.
    """
    return [int(entry) for entry in (queue.pop() for _ in range(count)) if entry is not None]


def test_a_saturated_link_sends_the_urgent_first_and_starves_nobody() -> None:
    """
    Where each priority always has more than leaves, 9 gets all but one place in ten, and that one goes to the
    oldest of all, so that the lowest goes on as well.
    """
    queue = SendQueue(1 << 30)
    left: Counter[int] = Counter()
    for _ in range(ROUNDS):
        for priority in ALL:
            queue.put(priority, b"%d" % priority)
        left.update(leave(queue, 1))

    assert left[URGENT] == ROUNDS * MAX_OVERTAKEN // (MAX_OVERTAKEN + 1)
    assert left[LEAST] > 0


def test_what_waits_leaves_in_the_order_of_urgency() -> None:
    """
    Of what waits, answers go before requests, logs behind them and the least urgent last, but for one in ten.
    """
    queue = SendQueue(1 << 30)
    for _ in range(ROUNDS):
        for priority in ALL:
            queue.put(priority, b"%d" % priority)

    order = leave(queue, ROUNDS * len(ALL))

    places = {priority: [at for at, each in enumerate(order) if each == priority] for priority in ALL}
    half = {priority: at[ROUNDS // 2] for priority, at in places.items()}
    assert half[URGENT] < half[ANSWER] < half[REQUEST] < half[LOG]
    assert places[URGENT][-1] < places[ANSWER][-1] < places[REQUEST][-1]
    assert order[: 2 * MAX_OVERTAKEN].count(LEAST) > 0
