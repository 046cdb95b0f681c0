"""
Gathering: the rows of many small queries, from one execution of Spark.

A query with few rows costs mostly what every execution costs: a plan, a job, a commit. Therefore what needs
rows is written as a generator: it yields queries and gets their rows, and all generators that wait are served
by one execution.
"""

import json
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import GeneratorType
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.types import ArrayType, DataType, StructType

from msgnode.mining.execution.kept_plans import collected

CONCURRENCY = 4  # small jobs mostly wait
Asking = Generator[Any, Any, Any]  # yields a query, or a list of them


class Known(list[Row]):
    """
    The rows of a query that needs no execution.
    """


def in_parallel(work: Callable[[Any], None], each: Iterable[Any]) -> None:
    """
    Call `work` for each, several at a time. The first failure is raised.
    """
    with ThreadPoolExecutor(CONCURRENCY) as threads:
        for done in [threads.submit(work, one) for one in each]:
            done.result()


def gather(queries: Sequence[DataFrame], again: bool = True) -> list[list[dict[str, Any]]]:
    """
    The rows of each query in its order, as dictionaries without what is null; `again` if these are asked in
    later looks, too.
    """
    found: list[list[dict[str, Any]]] = [[] for _ in queries]
    if not queries:
        return found
    for number, text in collected(tuple(queries), _as_text, again):
        found[number].append(json.loads(text))
    return found


def _as_text(*queries: DataFrame) -> DataFrame:
    return _union(
        [
            query.selectExpr(f"{number} AS query", "to_json(struct(*)) AS row")
            for number, query in enumerate(queries)
        ]
    )


def _union(rows: Sequence[DataFrame]) -> DataFrame:
    # Halves of halves: each union is analysed with all that is in it.
    half = len(rows) // 2
    return rows[0] if half == 0 else _union(rows[:half]).union(_union(rows[half:]))


def gathered(*queries: DataFrame) -> list[list[Row]]:
    """
    The rows of each query in its order.
    """
    return [
        [as_type(values, query.schema) for values in rows]
        for query, rows in zip(queries, gather(queries), strict=True)
    ]


def as_type(value: Any, type: DataType) -> Any:
    """
    A value of JSON in the form that Spark returns.
    """
    if value is None:
        return None
    if isinstance(type, ArrayType):
        return [as_type(each, type.elementType) for each in value]
    if isinstance(type, StructType):
        values = [as_type(value.get(field.name), field.dataType) for field in type.fields]
        return Row(*type.names)(*values)
    return value


def served(work: Any) -> Any:
    """
    `work` with rows in the place of queries, and results in that of generators, also inside of lists,
    dictionaries and other results.
    """
    tasks: list[_Task] = []
    tree = _begun(work, tasks)
    while tasks:
        asked = [query for task in tasks for query in task.queries if not isinstance(query, Known)]
        rows = iter(gathered(*asked))
        waiting, tasks = tasks, []
        for task in waiting:
            found = [query if isinstance(query, Known) else next(rows) for query in task.queries]
            task.resume(found, tasks)
    return _finished(tree)


class _Task:
    """
    A generator that waits for rows, or its result.
    """

    def __init__(self, asking: Asking, tasks: "list[_Task]") -> None:
        self._asking = asking
        self._is_one = False
        self.queries: list[DataFrame | Known] = []
        self.result: Any = None
        self._go_on(None, tasks)

    def resume(self, rows: list[list[Row]], tasks: "list[_Task]") -> None:
        """
        Go on with the rows of the queries. `tasks` gets what waits then.
        """
        self._go_on(rows[0] if self._is_one else rows, tasks)

    def _go_on(self, sent: Any, tasks: "list[_Task]") -> None:
        try:
            asked = self._asking.send(sent)
        except StopIteration as end:
            self.result = _begun(end.value, tasks)
            return
        self._is_one = isinstance(asked, DataFrame | Known)
        self.queries = [asked] if self._is_one else asked
        tasks.append(self)


def _asked(query: DataFrame | Known) -> Asking:
    rows = yield query
    return list(rows)  # as a result, rows that are known would be a query again


def _begun(work: Any, tasks: list[_Task]) -> Any:
    if isinstance(work, DataFrame | Known):
        return _Task(_asked(work), tasks)
    if isinstance(work, GeneratorType):
        return _Task(work, tasks)
    if isinstance(work, dict):
        return {name: _begun(each, tasks) for name, each in work.items()}
    return [_begun(each, tasks) for each in work] if isinstance(work, list) else work


def _finished(tree: Any) -> Any:
    if isinstance(tree, _Task):
        return _finished(tree.result)
    if isinstance(tree, dict):
        return {name: _finished(each) for name, each in tree.items()}
    return [_finished(each) for each in tree] if isinstance(tree, list) else tree
