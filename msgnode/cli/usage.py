"""
Usage errors, as JSON with --json; and Ctrl-C, which prints nothing.
"""

import json
from typing import IO, Any

import click

from msgnode.cli import INTERRUPTED

JSON_WANTED = "msgnode.json"


class _InJSON(click.UsageError):
    """
    A usage error that click prints as JSON before it exits.
    """

    def __init__(self, why: click.UsageError) -> None:
        super().__init__(why.format_message())

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(json.dumps({"ok": False, "error": self.message}, ensure_ascii=False))


class Verbs(click.Group):
    """
    The group of all verbs.  If a verb cannot be parsed, its options are unknown, so the arguments are
    searched for --json.
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
        context.meta[JSON_WANTED] = wanted
        return context

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as why:
            raise _InJSON(why) if ctx.meta[JSON_WANTED] else why from None
        except KeyboardInterrupt:  # while a file or stdin is read; click would exit with 1
            raise SystemExit(INTERRUPTED) from None
