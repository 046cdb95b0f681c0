"""
`msgnode mine replay`: what policies would have decided about stored messages.
"""

import click

from msgnode.cli.mine import moment_of
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


@click.command(short_help="Replay policies over mined messages.")
@mined_argument
@click.option(
    "--policy", "policies", multiple=True, required=True, metavar="FILE",
    help="A policy, a file or a directory; repeat it to compare.",
)  # fmt: skip
@click.option("--domain", default="", help="The domain of the node, for policies that test it.")
@click.option(
    "--default", type=click.Choice(["permit", "deny"]), default="permit", show_default=True,
    help="The decision on messages that no rule applies to.",
)  # fmt: skip
@from_option
@to_option
@conf_option
@verbose_option
@as_json_option
def replay(
    mined: str,
    policies: tuple[str, ...],
    domain: str,
    default: str,
    begin: str | None,
    end: str | None,
    conf: tuple[str, ...],
    verbose: bool,
    as_json: bool,
) -> None:
    """
    Say what policies would have decided about the messages of the mined
    directory DIR, without mining again, and where they differ.

    Each line is decided by itself; what depends on earlier lines or on a body is
    undecidable.

    \b
    Example:
      msgnode mine replay mined --policy now.json --policy stricter.json --from 2026-07-31
    """
    first, last = moment_of(begin, "--from"), moment_of(end, "--to")
    with opened(mined, verbose, as_json, conf) as directory:
        from msgnode.mining.mined import policies as several
        from msgnode.mining.pipeline.run import policy_replay
        from msgnode.mining.reading.log_files import Unreadable

        if len(policies) > several.MAX_POLICIES:
            raise Unreadable(f"{len(policies)} policies are too many; at most {several.MAX_POLICIES}")
        if directory.is_pseudonymised:
            raise Unreadable(
                f"{mined}: has pseudonyms, which no policy knows; mine the logs with --policy instead"
            )
        module = policy_replay()
        loaded = [module.load_policy(path, domain, default) for path in policies]
        rows = directory.rows(directory.period(first, last))
        found = several.replayed(rows["messages"], loaded)
        show(several.text(found, list(policies)), several.as_dict(found, list(policies)), as_json)
