"""
`msgnode completion`: what a shell needs to complete `msgnode` commands.
"""

import click
from click.shell_completion import get_completion_class


@click.command(short_help="Complete commands in bash, zsh, fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """
    Print a script that lets SHELL complete the commands and options of msgnode.

    \b
    Examples:
      msgnode completion bash > ~/.local/share/bash-completion/completions/msgnode
      eval "$(msgnode completion zsh)"
      msgnode completion fish > ~/.config/fish/completions/msgnode.fish
    """
    chosen = get_completion_class(shell)
    assert chosen is not None
    root = context.find_root()
    click.echo(chosen(root.command, {}, "msgnode", "_MSGNODE_COMPLETE").source())
