"""
`msgnode admin backup`: a copy of the state directory of a running node.
"""

import time
from pathlib import Path

import click

from msgnode.cli import INTERRUPTED, REFUSED
from msgnode.cli.admin.actions.orders import do, tell
from msgnode.cli.links.admin_client import AdminClient, asks_admin
from msgnode.cli.links.layout import size
from msgnode.structures.log_limits import printable

POLL_SECONDS = 0.2


@click.command(short_help="Back up the state of a running node.")
@click.option("--reason", default="", metavar="TEXT", help="Why; it goes into the audit log.")
@click.option("--dry-run", is_flag=True, help="Only say where it would be made.")
@click.option("--list", "only_list", is_flag=True, help="Show the backups that are kept, and make none.")
@asks_admin
def backup(
    reason: str, dry_run: bool, only_list: bool, admin: str, state: Path | None, as_json: bool
) -> None:
    """
    Copy the state directory of a running node, as of one moment, into `admin.backup_dir` on the node's
    machine.

    The copy has sessions, addresses, queued messages, registries and policies, and no admin tokens.
    'msgnode state restore' puts it into the state directory of a stopped node.

    \b
    Examples:
      msgnode admin backup --reason "before the upgrade"
      msgnode admin backup --list

    \b
    Exit code 0: the backup is complete.  1: refused, or it failed.
    3: cannot connect.  4: no answer in time.
    """
    client = AdminClient(admin, state, as_json)
    if only_list:
        found = client.get("backup")
        lines = [_line(each) for each in found["backups"]] or ["no backups"]
        client.console.result("\n".join(lines), found)
        return
    if not reason:
        raise click.UsageError("Missing option '--reason'.")
    begun = do(client, "backup", dry_run=dry_run, reason=reason)
    if dry_run:
        tell(client, "make a backup in", begun, "directory")
        return
    last = begun["details"]
    try:
        while last["state"] == "running":
            time.sleep(POLL_SECONDS)
            last = client.get("backup")["last"]
    except KeyboardInterrupt:
        client.console.note("the node goes on with the backup")
        raise SystemExit(INTERRUPTED) from None
    if last["state"] == "failed":
        client.console.stop(printable(last["error"]), REFUSED)
    client.console.result(f"{printable(last['path'])}  {size(last['bytes'])}", last)


def _line(each: dict[str, object]) -> str:
    if each["state"] == "failed":
        return f"{printable(str(each['path']))}  {printable(str(each['error']))}"
    return f"{printable(str(each['path']))}  {size(int(str(each['bytes'])))}"
