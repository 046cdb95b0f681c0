"""
`msgnode mine`: mines the traffic logs, or answers questions from a mined directory.
"""

from typing import Any

import click
from click.shell_completion import CompletionItem

from msgnode.cli.mine import mine as mine_logs
from msgnode.cli.mining.check import check
from msgnode.cli.mining.compare import compare
from msgnode.cli.mining.conversation import conversation
from msgnode.cli.mining.replay import replay
from msgnode.cli.mining.sql import sql


class _OfLogs(click.Context):
    """
    The context of `mine LOGS`, which is not named by a word of its own.
    """

    @property
    def command_path(self) -> str:
        return super().command_path.rstrip()


mine_logs.context_class = _OfLogs


class LogsOrVerb(click.Group):
    """
    A group whose first argument is a verb, else the arguments are those of `mine LOGS`.

    A directory with the name of a verb is given as `./check`.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "", mine_logs, args

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = click.Context(mine_logs, info_name=ctx.info_name, parent=ctx.parent)
        mine_logs.format_help(own, formatter)
        self.format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        own = click.Context(mine_logs, info_name="", parent=ctx)
        return [*super().shell_complete(ctx, incomplete), *mine_logs.shell_complete(own, incomplete)]


@click.command(
    cls=LogsOrVerb,
    short_help="Analyse the traffic logs.",
    context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True},
)
def mine(**_: Any) -> None:
    """
    Mine the traffic logs, or ask a mined directory.
    """


for verb in (check, compare, conversation, replay, sql):
    mine.add_command(verb)
