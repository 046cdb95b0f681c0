"""
The group `msgnode admin`.
"""

import click

from msgnode.cli.admin.live import events, refusals, trace


@click.group(short_help="See what a node does, and trace messages.")
def admin() -> None:
    """
    See what a running node does: its events, its refusals, and the way of single messages.
    """


for _verb in (events, refusals, trace):
    admin.add_command(_verb)
