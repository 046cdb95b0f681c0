"""
Views of the admin API: tables with columns to choose, of one node or of all, once or again and again.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from msgnode.cli import REFUSED, USAGE
from msgnode.cli.links.admin_client import AdminClient, asks_admin
from msgnode.cli.links.layout import table, terminal_columns
from msgnode.structures.log_limits import printable

F = TypeVar("F", bound=Callable[..., Any])
ALL = "all"


class Column(NamedTuple):
    """
    A column of a table: its head, the field of a row, and its text. `is_word`: it is aligned to the left.
    """

    head: str
    key: str
    text: Callable[[Any], str]
    is_word: bool = False


def plain(value: Any) -> str:
    """
    Returns a value of JSON as text; no control character of a peer's gets to the terminal.
    """
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    if isinstance(value, dict):
        return printable(json.dumps(value, ensure_ascii=False))
    return printable(str(value))


def operates(command: F) -> F:
    """
    Give a verb the options that name the admin listener; it gets an AdminClient for them.
    """

    @wraps(command)
    def run(admin: str, state: Path | None, as_json: bool, **given: Any) -> Any:
        return command(AdminClient(admin, state, as_json), **given)

    return asks_admin(run)  # type: ignore[return-value]


def shows(command: F) -> F:
    """
    Give a verb the options of a view; it gets a View in the place of the client.
    """

    @wraps(command)
    def run(
        client: AdminClient,
        node: str,
        watch: float | None,
        columns: str,
        no_headers: bool,
        **given: Any,
    ) -> Any:
        chosen = [name.strip() for name in columns.split(",") if name.strip()]
        return command(View(client, node, watch, chosen, no_headers), **given)

    options = (
        click.option("--node", default="", metavar="NAME", help="Ask another node of the domain, or 'all'."),
        click.option(
            "--watch",
            type=click.FloatRange(0.2, 3600),
            metavar="SECONDS",
            help="Show it again each so many seconds, until Ctrl-C.",
        ),
        click.option("--columns", default="", metavar="A,B", help="Show these fields; --json has all names."),
        click.option("--no-headers", is_flag=True, help="Show the rows only."),
    )
    shown = operates(run)
    for option in reversed(options):
        shown = option(shown)
    return shown  # type: ignore[return-value]


class View:
    """
    A view of what the node answers.
    """

    def __init__(
        self, client: AdminClient, node: str, watch: float | None, columns: Sequence[str], no_headers: bool
    ) -> None:
        self.client = client
        self.columns = columns  # those that were asked for
        self._node = node
        self._watch = watch
        self._no_headers = no_headers

    @property
    def has_columns(self) -> bool:
        return bool(self.columns)

    @property
    def is_plain(self) -> bool:
        """
        Whether one node is asked, and once.
        """
        return self._watch is None and not self._node

    @property
    def is_watching(self) -> bool:
        return self._watch is not None

    def show(
        self,
        draw: Callable[[Any], Iterable[str]],
        *path: str,
        query: Iterable[tuple[str, Any]] = (),
    ) -> Any:
        """
        Shows what `draw` makes of the answer to GET; parameters that are empty are left out. Returns the
        last answer. The command ends as refused if one of all nodes has not answered.
        """
        asked = [(key, str(value)) for key, value in query if value not in ("", None, 0)]
        if self._node:
            asked.append(("node", self._node))
        while True:
            value = self.client.get(*path, query=asked)
            lines = self._of_nodes(value, draw) if self._node == ALL else list(draw(value))
            if self._watch is not None and not self.client.console.as_json:
                click.clear()
            self.client.console.result("\n".join(lines), value)
            if self._watch is None:
                break
            self.client.pause(self._watch)
        if self._node == ALL and any(map(_is_error, value["nodes"].values())):
            raise SystemExit(REFUSED)
        return value

    @staticmethod
    def _of_nodes(value: Any, draw: Callable[[Any], Iterable[str]]) -> list[str]:
        lines: list[str] = []
        for name, answer in value["nodes"].items():
            lines += [click.style(printable(name), bold=True)]
            if _is_error(answer):
                lines += [click.style(f"{answer['code']} {printable(answer['description'])}", fg="red"), ""]
            else:
                lines += [*draw(answer), ""]
        return lines[:-1]

    def below(self, *lines: str) -> list[str]:
        """
        Returns what a list shows below its rows; nothing with --no-headers, for programs that read them.
        """
        return [] if self._no_headers else [line for line in lines if line]

    def table(self, rows: Sequence[dict[str, Any]], columns: Sequence[Column]) -> list[str]:
        """
        Returns the lines of a table of rows; none without rows.
        """
        if not rows:
            return []
        if self.columns:
            known = {column.key: column for column in columns}
            for name in self.columns:
                if name not in rows[0]:
                    self.client.console.stop(
                        f"--columns: there is no {name!r}; there are {', '.join(rows[0])}", USAGE
                    )
            columns = [known.get(name, Column(name.upper(), name, plain, True)) for name in self.columns]
        words = 0
        for column in columns:
            if not column.is_word:
                break
            words += 1
        cells = [[column.text(row[column.key]) for column in columns] for row in rows]
        lines = table([column.head for column in columns], cells, terminal_columns(), words)
        return self.without_heads(lines)

    def without_heads(self, lines: list[str]) -> list[str]:
        """
        Returns the lines of a table, with --no-headers without the first one.
        """
        return lines[1:] if self._no_headers else lines


def _is_error(answer: Any) -> bool:
    """
    Whether this is the report of a node that has not answered, or has refused.
    """
    return isinstance(answer, dict) and "code" in answer and "description" in answer
