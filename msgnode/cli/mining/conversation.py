"""
`msgnode mine conversation`: the messages of one transaction, at all nodes.
"""

import click

from msgnode.cli.mine import key_of, moment_of, told
from msgnode.cli.mining.directory import (
    as_json_option,
    conf_option,
    from_option,
    mined_argument,
    opened,
    show,
    to_option,
    verbose_option,
)

NOT_FOUND = 1  # exit code


@click.command(short_help="Follow a transaction through all nodes.")
@mined_argument
@click.argument("name", metavar="TRANSACTION")
@from_option
@to_option
@click.option(
    "--pseudonymise", metavar="KEY", help="The key that DIR was mined with, or the file with it as @FILE."
)
@conf_option
@verbose_option
@as_json_option
def conversation(
    mined: str,
    name: str,
    begin: str | None,
    end: str | None,
    pseudonymise: str | None,
    conf: tuple[str, ...],
    verbose: bool,
    as_json: bool,
) -> None:
    """
    Follow the messages of TRANSACTION, or with this id, through all nodes of
    the mined directory DIR, in the order of time.

    The clocks of the nodes are compared by the messages that passed between
    them in the same half hour, and the times are corrected; both are shown.
    Exit code 1: there is no such message.

    \b
    Example:
      msgnode mine conversation mined f81d4fae7dec --from 2026-07-31T14
    """
    first, last = moment_of(begin, "--from"), moment_of(end, "--to")
    with told(as_json):
        key = key_of(pseudonymise)
    with opened(mined, verbose, as_json, conf) as directory:
        from msgnode.mining.mined.conversation import follow
        from msgnode.mining.pipeline.pseudonyms import hidden_id

        rows = directory.rows(directory.period(first, last))
        found = follow(rows["messages"], hidden_id(name, key) if key else name)
        show(found.text(), found.as_dict() | {"ok": bool(found.lines)}, as_json)
    if not found.lines:
        raise SystemExit(NOT_FOUND)
