"""
The command `msgnode`: talks to a node and looks after it, from a shell.

Exit codes: 0 ok, 1 refused or a negative result, 2 usage, configuration or
unreadable input, 3 cannot connect, 4 timed out, 130 interrupted.
"""

import json
from pathlib import Path
from typing import Any

import click
import msgspec
from click.shell_completion import get_completion_class
from twisted.internet.endpoints import serverFromString

from msgnode import __version__
from msgnode.cli.bench import bench
from msgnode.cli.messages import listen, request, send
from msgnode.cli.mine import mine
from msgnode.cli.policy import policy
from msgnode.cli.registry import find, register
from msgnode.cli.state import state
from msgnode.cli.usage import Verbs
from msgnode.config.loader import load
from msgnode.config.schema import Config, ConfigError
from msgnode.policy.decision.problems import PolicyRefused
from msgnode.policy.language.files import gather
from msgnode.policy.language.program import Program
from msgnode.sessions.access.device_tokens import DeviceTokens, line, make_token


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="msgnode", message="%(prog)s %(version)s")
def main() -> None:
    """
    Talk to a messaging node, and look after it.  'twistd -n msgnode' starts one.

    \b
    Try it, with a node on this machine and two terminals:
      msgnode listen comm://localhost/chat/changes
      msgnode send comm://localhost/chat/changes hello

    \b
    Exit codes: 0 ok; 1 refused, or a negative result; 2 usage, configuration or
    unreadable input; 3 cannot connect; 4 timed out; 130 interrupted.
    """


@main.command()
@click.argument("config", required=False, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def check(config: str | None, as_json: bool) -> None:
    """
    Check a configuration file before a node starts with it.

    Without CONFIG: the defaults.

    \b
    Example:
      msgnode check etc/msgnode.toml
    """
    try:
        loaded = load(config)
        _check_endpoints(loaded, config or "defaults")
        _check_policies(loaded, config or "defaults")
        _check_back_ends(loaded, config or "defaults")
    except ConfigError as why:
        if as_json:
            click.echo(json.dumps({"ok": False, "error": str(why)}))
        else:
            click.echo(f"msgnode: {why}", err=True)
        raise SystemExit(2) from None
    if as_json:
        click.echo(json.dumps({"ok": True, "config": _without_secrets(loaded)}))
        return
    click.echo(f"{config or 'defaults'}: ok")
    click.echo(f"  domain   {loaded.domain}")
    for listener in loaded.listeners():
        click.echo(f"  {listener.kind:8} {listener.endpoint}{' with TLS' if listener.cert else ''}")
    click.echo(f"  traffic  {loaded.traffic}")
    click.echo(f"  state    {loaded.state}")
    click.echo(f"  policy   {loaded.policy.source or 'none'}")
    click.echo(f"  registry {loaded.registry.url}, global {loaded.global_registry.url}")


def _without_secrets(config: Config) -> Any:
    shown = msgspec.to_builtins(config)
    for provider in shown["identity"]["providers"]:
        if provider["introspection"] is not None and provider["introspection"]["client_secret"]:
            provider["introspection"]["client_secret"] = "..."
    return shown


def _check_endpoints(config: Config, where: str) -> None:
    from msgnode.transport.endpoints import TLSTrust
    from msgnode.transport.listener import SYSTEMD
    from msgnode.transport.tls import as_table, options_for

    for listener in map(as_table, config.listeners()):
        try:
            # Parsing only looks at the string; no reactor is asked for anything.
            serverFromString(None, listener.endpoint)
        except Exception:  # each kind of endpoint complains in its own way
            if SYSTEMD.fullmatch(listener.endpoint):
                continue  # only where systemd starts the node are its sockets there
            if listener.endpoint.startswith("systemd:"):
                why = ValueError("expected systemd:INET:name=NAME, or systemd:INET:index=NUMBER")
            found = f"expected an endpoint such as tcp:9090, found {listener.endpoint!r}: {why}"
            raise ConfigError(f"{where}: {listener.kind}: {found}") from None
        if listener.cert:
            try:
                options_for(listener)
            except ConfigError as why:
                raise ConfigError(f"{where}: {listener.kind}: {why}") from None
    for name, back_end in (("registry", config.registry), ("global_registry", config.global_registry)):
        try:
            TLSTrust(back_end)
        except ConfigError as why:
            raise ConfigError(f"{where}: {name}: {why}") from None


def _check_policies(config: Config, where: str) -> None:
    """
    What is in a file or a directory is read; a repository is not asked.
    """
    source = config.policy.source
    if source in ("", "push") or "://" in source:
        return
    try:
        Program(gather(Path(source)))
    except OSError as why:
        raise ConfigError(f"{where}: policy.source: {source}: cannot be read: {why.strerror}") from None
    except PolicyRefused as why:
        raise ConfigError(f"{where}: policy.source: {why}") from None


def _check_back_ends(config: Config, where: str) -> None:
    """
    Can the files be read that they need?  Nobody is called.
    """
    from msgnode.backends.identity.introspection import secret_of
    from msgnode.transport.endpoints import TLSTrust

    try:
        DeviceTokens(config.identity.devices).read()
        for provider in config.identity.providers:
            if provider.introspection is not None:
                secret_of(provider.introspection)
        for back_end in (*config.identity.providers, config.qos):
            TLSTrust(back_end)
    except ConfigError as why:
        raise ConfigError(f"{where}: {why}") from None


@main.command()
@click.argument("user")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def token(user: str, as_json: bool) -> None:
    """
    Make a token for a device.

    Prints its line for the file `identity.devices`, too. The token is printed once and kept nowhere.

    \b
    Example:
      msgnode token device://example.org/lamp
    """
    if not user or any(character.isspace() for character in user):
        raise click.BadParameter("a device's address has no spaces", param_hint="USER")
    secret = make_token()
    if as_json:
        click.echo(json.dumps({"token": secret, "line": line(secret, user)}))
        return
    click.echo(f"for the device:  {secret}")
    click.echo(f"for the file:    {line(secret, user)}")


@main.command(short_help="Complete commands in bash, zsh, fish.")
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


main.add_command(policy)
main.add_command(mine)
main.add_command(state)
main.add_command(send)
main.add_command(request)
main.add_command(listen)
main.add_command(register)
main.add_command(find)
main.add_command(bench)
