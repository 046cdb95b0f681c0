"""
What the report says about nodes without lines.  No Spark is needed.
"""

from types import SimpleNamespace

from msgnode.mining.report.findings import SECOND
from msgnode.mining.report.silent_nodes import MAX_ROWS, silences
from msgnode.mining.report.steps import HOUR, Steps

START = 1_785_456_000  # 2026-07-31T00:00Z
DAY = Steps(START, START + 24 * HOUR, HOUR)


def at(hour):
    return None if hour is None else int((START + hour * HOUR) * SECOND)


def silence(node, since, until, why="outage"):
    """
    A row of the table of silences, by hours of the day.
    """
    minutes = round(((24 if until is None else until) - since) * 60)
    return SimpleNamespace(node=node, since=at(since), until=at(until), minutes=minutes, why=why)


def found(rows, repeated=(), begun=None, **messages):
    """
    The findings for nodes with so many messages an hour, which have lines from the hour in `begun` on.
    """
    nodes = {name: [number] * 24 for name, number in messages.items() if number}
    first = {name: at((begun or {}).get(name, 0)) for name in messages}
    return silences(rows, repeated, nodes, first, DAY)


def test_a_node_that_falls_silent_is_named():
    """
    A node without lines is named, with what it had while it was there and since when; an outage weighs more
    than a stop.
    """
    rows = [silence("mn2", 20, None), silence("mn1", 3, 4, "stopped")]

    first, second = found(rows, mn1=100, mn2=120)

    assert ("mn2", "nodes", True) == (first.word, first.section, first.goes_on)
    assert (
        "wrote no lines, not even about itself (on average 2.4 messages a minute); "
        "since 2026-07-31 20:00 (4 h), still going on." == first.text
    )
    assert "was stopped (on average 1.7 messages a minute); from 2026-07-31 03:00 for 1 h." == second.text
    assert first.weight > second.weight


def test_silence_of_all_nodes_is_said_once():
    """
    If all nodes are silent at once there is one finding, for the time in which all of them were.
    """
    [all_] = found([silence("mn1", 8, 11), silence("mn2", 8.25, 11)], mn1=60, mn2=60)

    assert "All nodes" == all_.word
    assert all_.text.endswith("(on average 2.3 messages a minute); from 2026-07-31 08:15 for 2 h 45 min.")


def test_a_node_that_was_silent_for_longer_than_the_others_is_named_too():
    """
    An outage of one node is not hidden by a short one of all, nor is its time said of all.
    """
    all_, own = found([silence("mn1", 10, 14), silence("mn2", 12, 12.5)], mn1=60, mn2=60)

    assert ("All nodes", "mn1") == (all_.word, own.word)
    assert "from 2026-07-31 12:00 for 30 min." in all_.text
    assert "from 2026-07-31 10:00 for 4 h." in own.text


def test_nodes_that_are_silent_one_after_the_other_are_not_all_nodes():
    """
    Silences that overlap with one of another node, but not with each other, are of one node each.
    """
    rows = [silence("mn1", 10, 14), silence("mn2", 10, 11), silence("mn3", 12, 13)]

    assert ["mn1", "mn2", "mn3"] == [each.word for each in found(rows, mn1=60, mn2=60, mn3=60)]


def test_a_node_without_messages_is_one_of_all_nodes():
    """
    While an idle node writes lines about itself, not all nodes are silent; before its first line it is none.
    """
    rows = [silence("mn1", 10, 11), silence("mn2", 10, 11)]

    assert ["mn1", "mn2"] == [each.word for each in found(rows, mn1=60, mn2=60, idle=0)]
    later = found(rows, begun={"idle": 12}, mn1=60, mn2=60, idle=0)
    assert ["All nodes"] == [each.word for each in later]


def test_silences_of_a_node_that_is_silent_again_and_again_are_one_finding():
    """
    Many silences of a node are one finding with their sum over the whole table; one that goes on is not part
    of it. What is usual is said by the time in which there is a message.
    """
    rows = [silence("mn2", 23, None), silence("mn2", 2, 5)]
    rows += [silence("mn2", hour, hour + 1) for hour in (7, 9, 11)]
    repeated = [SimpleNamespace(node="mn2", why="outage", number=120, minutes=7200)]

    on, over = found(rows, repeated, mn1=100, mn2=6)

    assert on.goes_on and "(on average 8.5 messages an hour); since 2026-07-31 23:00" in on.text
    assert not over.goes_on and over.text.endswith(
        "120 times, 5 d in all (on average 8.5 messages an hour); the longest from 2026-07-31 02:00 for 3 h."
    )


def test_a_node_that_may_have_nothing_to_do_weighs_what_it_would_have_had():
    """
    Of a node that writes no lines about itself the longest time without lines weighs as many messages as it
    has in that time, for an idle one is no outage.
    """
    idle, busy = found(
        [silence("idle", 2, 12, "no lines"), silence("busy", 13, 14, "no lines")], idle=1, busy=90
    )

    assert (10, 90) == (round(idle.weight), round(busy.weight))


def test_silences_of_all_nodes_again_and_again_are_one_finding():
    """
    If all nodes are switched off each night, that is said once, and not of each node again.
    """
    hours = (1, 5, 9, 13)
    rows = [silence(node, hour, hour + 1, "stopped") for node in ("mn1", "mn2") for hour in hours]
    repeated = [SimpleNamespace(node=node, why="stopped", number=4, minutes=240) for node in ("mn1", "mn2")]

    [all_] = found(rows, repeated, mn1=60, mn2=60)

    assert "All nodes" == all_.word
    assert "were stopped 4 times, 4 h in all" in all_.text


def test_nodes_that_wake_up_by_turns_are_not_silent_together_for_longer_than_they_were():
    """
    A silence of all ends where a node wrote a line, also if its next silence begins with that line.
    """
    by_turns = [silence("mn1", 0, 10), silence("mn1", 10, 20), silence("mn2", 5, 15), silence("mn2", 15, 24)]
    for rows in (by_turns, [silence("mn1", 0, 10), silence("mn1", 10, 20), silence("mn2", 0, 20)]):
        texts = [each.text for each in found(rows, mn1=60, mn2=60) if each.word == "All nodes"]

        assert texts and not any("for 20 h" in text for text in texts)
        assert all("5 h" in text or "10 h" in text for text in texts)


def test_nothing_is_said_of_all_nodes_where_there_are_too_many():
    """
    Of nodes or silences that were not all loaded it is not known whether all were silent.
    """
    nodes = {f"mn{number}": 60 for number in range(MAX_ROWS)}

    words = [each.word for each in found([silence(name, 8, 11) for name in nodes], **nodes)]

    assert "All nodes" not in words and len(words) == MAX_ROWS
