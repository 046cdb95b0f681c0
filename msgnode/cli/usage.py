"""
Wrong usage, said as the rest is said: in JSON where JSON is wanted; and Ctrl-C, of which nothing is said.
"""

import json
from typing import IO, Any

import click

from msgnode.cli import INTERRUPTED

WANTED = "msgnode.json"


class _InJSON(click.UsageError):
    """
    The same mistake; click prints it and exits.
    """

    def __init__(self, why: click.UsageError) -> None:
        super().__init__(why.format_message())

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(json.dumps({"ok": False, "error": self.message}, ensure_ascii=False))


class Verbs(click.Group):
    """
    All verbs.  One that cannot be made out cannot be asked for its options, so the words are looked at.
    """

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        wanted = "--json" in (args[: args.index("--")] if "--" in args else args)
        try:
            context = super().make_context(info_name, args, parent, **extra)
        except click.UsageError as why:
            raise _InJSON(why) if wanted else why from None
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        context.meta[WANTED] = wanted
        return context

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as why:
            raise _InJSON(why) if ctx.meta[WANTED] else why from None
        except KeyboardInterrupt:  # while a file or stdin is read; click would exit with 1
            raise SystemExit(INTERRUPTED) from None
