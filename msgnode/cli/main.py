"""
The command `msgnode`: sends messages through a node, and maintains it, from a shell.

Exit codes: 0 ok, 1 refused or a negative result, 2 usage, configuration or
unreadable input, 3 cannot connect, 4 timed out, 130 interrupted.
"""

import json
from pathlib import Path

import click
import msgspec
from click.shell_completion import get_completion_class
from twisted.internet.endpoints import serverFromString

from msgnode import __version__
from msgnode.cli.admin.group import admin
from msgnode.cli.bench.command import bench
from msgnode.cli.contexts import context_group
from msgnode.cli.init import init
from msgnode.cli.links.link import link
from msgnode.cli.links.route import route
from msgnode.cli.messages import listen, request, send
from msgnode.cli.messaging.reply import reply
from msgnode.cli.messaging.round_trip import rtt
from msgnode.cli.mining.group import mine
from msgnode.cli.objects.history import object_group
from msgnode.cli.policy import policy
from msgnode.cli.records.records import records
from msgnode.cli.registry import find, register
from msgnode.cli.state import state
from msgnode.cli.usage import Verbs
from msgnode.config.loader import load
from msgnode.config.schema import Config, ConfigError
from msgnode.config.secrets import without_secrets
from msgnode.policy.decision.problems import PolicyRefused
from msgnode.policy.language.files import gather
from msgnode.policy.language.program import Program
from msgnode.sessions.access.device_tokens import DeviceTokens, line, make_token
from msgnode.structures.url_masking import masked


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="msgnode", message="%(prog)s %(version)s")
def main() -> None:
    """
    Send messages through a messaging node, and maintain it.  'twistd -n msgnode' starts a node.

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
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
def check(config: str | None, as_json: bool, quiet: bool) -> None:
    """
    Check a configuration file before a node starts with it.

    Without CONFIG, check the defaults.

    \b
    Example:
      msgnode check etc/msgnode.toml
    """
    try:
        loaded = load(config)
        _check_endpoints(loaded, config or "defaults")
        _check_policies(loaded, config or "defaults")
        _check_back_ends(loaded, config or "defaults")
        _check_links(loaded, config or "defaults")
        _check_cluster(loaded, config or "defaults")
        _check_records(loaded, config or "defaults")
    except ConfigError as why:
        if as_json:
            click.echo(json.dumps({"ok": False, "error": str(why)}))
        else:
            click.echo(f"msgnode: {why}", err=True)
        raise SystemExit(2) from None
    if as_json:
        click.echo(json.dumps({"ok": True, "config": without_secrets("", msgspec.to_builtins(loaded))}))
        return
    if quiet:
        return
    click.echo(f"{config or 'defaults'}: ok")
    click.echo(f"  domain   {loaded.domain}")
    for listener in loaded.listeners() + loaded.node_listeners():
        secure = listener.cert or listener.kind == "node"
        click.echo(f"  {listener.kind:8} {listener.endpoint}{' with TLS' if secure else ''}")
    for peer in loaded.peer:
        how = f"dials {peer.url or 'where its DNS says'}" if peer.is_dialled else f"link {peer.link!r}"
        click.echo(f"  peer     {peer.domain}, {how}")
    for url in loaded.cluster.url:
        click.echo(f"  cluster  {masked(url)}, as {loaded.node}")
    click.echo(f"  traffic  {loaded.traffic}")
    click.echo(f"  state    {loaded.state}")
    click.echo(f"  policy   {loaded.policy.source or 'none'}")
    click.echo(f"  records  {loaded.records.dir or 'none'}")
    registries = masked(loaded.registry.url), masked(loaded.global_registry.url)
    click.echo("  registry {}, global {}".format(*registries))


def _check_endpoints(config: Config, where: str) -> None:
    from msgnode.transport.endpoints import TLSTrust
    from msgnode.transport.listener import SYSTEMD
    from msgnode.transport.tls import as_table, options_for

    for listener in map(as_table, config.listeners() + config.node_listeners()):
        try:
            # Parsing needs no reactor.
            serverFromString(None, listener.endpoint)
        except Exception as error:  # each kind of endpoint raises errors of its own
            if SYSTEMD.fullmatch(listener.endpoint):
                continue  # the sockets of systemd exist only if it starts the node
            wrong = str(error)
            if listener.endpoint.startswith("systemd:"):
                wrong = "expected systemd:INET:name=NAME, or systemd:INET:index=NUMBER"
            found = f"expected an endpoint such as tcp:9090, found {listener.endpoint!r}: {wrong}"
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
    Compile the policies of a file or a directory; a policy repository is not asked.
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
    Read the files that the back ends need; no back end is called.
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


def _check_links(config: Config, where: str) -> None:
    """
    Read the certificates for links to other nodes; no peer is dialled.
    """
    from msgnode.links.trust.anchors import trust_anchors
    from msgnode.links.trust.certificates import RevokedCertificate, UntrustedCertificate
    from msgnode.links.trust.credentials import Credentials

    if not config.node_listeners() and not config.peer:
        return
    try:
        trust, own = trust_anchors(config), Credentials(config)
        mistakes = own.mistakes() + trust.mistakes()
        trust.verify(config.domain, own.chain)
    except RevokedCertificate as why:
        mistakes.append(f"federation.cert: {why}")
    except UntrustedCertificate:
        pass  # its authority need not be trusted here
    except ConfigError as why:
        raise ConfigError(f"{where}: {why}") from None
    if mistakes:
        raise ConfigError(f"{where}: {mistakes[0]}")


def _check_cluster(config: Config, where: str) -> None:
    """
    Read the certificates and credentials for NATS; no server is dialled.
    """
    from msgnode.cluster.nats_options import nats_options

    try:
        nats_options(config.cluster, config.node)
    except ConfigError as why:
        raise ConfigError(f"{where}: {why}") from None


def _check_records(config: Config, where: str) -> None:
    """
    Read the definitions of records.
    """
    from msgnode.records.problems import DefinitionsRefused
    from msgnode.records.reader import read

    source = config.records.dir
    if not source:
        return
    try:
        read(Path(source))
    except OSError as why:
        raise ConfigError(f"{where}: records.dir: {source}: cannot be read: {why.strerror}") from None
    except DefinitionsRefused as why:
        raise ConfigError(f"{where}: records.dir: {why}") from None


@main.command()
@click.argument("user")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def token(user: str, as_json: bool) -> None:
    """
    Make a token for a device.

    Prints the token, and its line for the file that `identity.devices` names.  The token is stored nowhere.

    \b
    Example:
      msgnode token device://example.org/lamp
    """
    if not user or any(character.isspace() for character in user):
        raise click.BadParameter("expected an address without spaces", param_hint="USER")
    secret = make_token()
    if as_json:
        click.echo(json.dumps({"token": secret, "line": line(secret, user)}))
        return
    click.echo(f"for the device:  {secret}")
    click.echo(f"for the file:    {line(secret, user)}")


@main.command(short_help="Print a completion script for bash, zsh or fish.")
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


main.add_command(init)
main.add_command(policy)
main.add_command(records)
main.add_command(mine)
main.add_command(state)
main.add_command(send)
main.add_command(request)
main.add_command(listen)
main.add_command(reply)
main.add_command(rtt)
main.add_command(register)
main.add_command(find)
main.add_command(object_group)
main.add_command(bench)
main.add_command(context_group)
main.add_command(admin)
main.add_command(link)
main.add_command(route)
