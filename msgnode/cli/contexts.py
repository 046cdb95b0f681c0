"""
Contexts of the command `msgnode`: named sets of options for one node, in `contexts.toml`.

A context gives an option what neither the command line nor the environment gives it.
"""

import os
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
import platformdirs

from msgnode.structures.log_limits import printable

FILE = "contexts.toml"
COMMAND_SECONDS = 60.0  # a password store may ask the user first

F = TypeVar("F", bound=Callable[..., Any])


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    One table of `contexts.toml`: the options of commands that speak to the node, by their names.

    `login_command` and `admin_token_command` are commands that print a token: the file itself has no secrets.
    """

    url: str | None = None
    runtime: str | None = None
    domain: str | None = None
    ca: str | None = None
    certificate: str | None = None
    login: str | None = None
    login_command: str | None = None
    admin: str | None = None
    state: str | None = None
    admin_token_command: str | None = None

    def options(self) -> dict[str, Any]:
        """
        Returns the values for click's `default_map`; that of a command is called only if it is needed.
        """
        given = {
            name: os.path.expanduser(value)
            for name in ("url", "runtime", "domain", "ca", "certificate", "admin", "state")
            if (value := getattr(self, name)) is not None
        }
        if self.login is not None:
            given["login"] = "@" + os.path.expanduser(self.login[1:])
        if self.login_command is not None:
            return {**given, "login": lambda: printed_by(self.login_command or "")}
        return given

    def admin_token(self) -> str:
        """
        Returns the token that `admin_token_command` prints; "" without such a command.
        """
        return printed_by(self.admin_token_command) if self.admin_token_command else ""


class Contexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    The file: its contexts by their names, and the name of the one that is used if none is named.
    """

    default: str = ""
    context: dict[str, Context] = {}


class ContextMistake(click.UsageError):
    """
    The file has a mistake, or has no context of that name.
    """


def contexts_path() -> Path:
    """
    Returns the path of the file, `~/.config/msgnode/contexts.toml` on Linux.
    """
    return platformdirs.user_config_path("msgnode") / FILE


def read_contexts(path: Path) -> Contexts:
    """
    Returns the contexts in the file; none if there is no file.  Raises ContextMistake.
    """
    try:
        found = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as why:
        raise ContextMistake(f"{path}: cannot be read: {why.strerror}") from None
    except msgspec.ValidationError as why:
        raise ContextMistake(f"{path}: {why} (a context is a table [context.NAME])") from None
    except (ValueError, RecursionError) as why:  # of TOML, or of UTF-8
        raise ContextMistake(f"{path}: {why}") from None
    for name, context in found.context.items():
        if context.login is not None and not context.login.startswith("@"):
            raise ContextMistake(f"{path}: context.{name}.login: expected @FILE; secrets do not belong here")
        if context.login is not None and context.login_command is not None:
            raise ContextMistake(f"{path}: context.{name}: give login or login_command, not both")
    if found.default:
        chosen(found, found.default, path)
    return found


def chosen(contexts: Contexts, name: str, path: Path) -> Context:
    """
    Returns the context of that name, or the default one for "".  Raises ContextMistake.
    """
    name = name or contexts.default
    if not name:
        return Context()
    context = contexts.context.get(name)
    if context is None:
        known = ", ".join(sorted(contexts.context)) or "no context"
        raise ContextMistake(f"{path} has no context {name!r}; it has {known}")
    return context


def takes_context(command: F) -> F:
    """
    Give a verb the option --context; the context that it names fills the other options.

    The verb finds its Context with `current_context`.
    """
    return click.option(
        "--context",
        envvar="MSGNODE_CONTEXT",
        default="",
        metavar="NAME",
        is_eager=True,
        expose_value=False,
        callback=_fill,
        help="Take options that are not given from this context of contexts.toml.  [env: MSGNODE_CONTEXT]",
    )(command)


def _fill(click_context: click.Context, parameter: click.Parameter, name: str) -> None:
    if click_context.resilient_parsing:  # the shell completes a line
        return
    path = contexts_path()
    context = chosen(read_contexts(path), name, path)
    click_context.meta[__name__] = context
    click_context.default_map = {**(click_context.default_map or {}), **context.options()}


def current_context() -> Context:
    """
    Returns the context of the verb that runs.
    """
    found: Context = click.get_current_context().meta.get(__name__, Context())
    return found


def printed_by(command: str) -> str:
    """
    Returns the first line that the command prints, which is a secret.  Raises ContextMistake.
    """
    try:
        done = subprocess.run(
            shlex.split(command), stdout=subprocess.PIPE, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as why:
        raise ContextMistake(f"the command {command!r} of this context failed: {why}") from None
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines or not lines[0].strip():
        raise ContextMistake(
            f"the command {command!r} of this context printed no token; its exit code is {done.returncode}"
        )
    return lines[0].strip()


@click.group(name="context", short_help="Show named sets of options.")
def context_group() -> None:
    """
    Show the contexts: named sets of options in contexts.toml, for --context NAME.
    """


@context_group.command(name="ls")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def ls_command(as_json: bool) -> None:
    """
    List the contexts; the default one has a star.

    \b
    Example of contexts.toml:
      default = "lab"
      [context.lab]
      url = "wss://mn.example.org/ws"
      ca = "~/lab-ca.pem"
      login_command = "pass show msgnode/lab"
      admin = "https://mn.example.org:9092"
      admin_token_command = "pass show msgnode/lab-admin"
    """
    path = contexts_path()
    found = read_contexts(path)
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
        return
    if not found.context:
        click.echo(f"{path} has no contexts; 'msgnode context ls --help' shows an example", err=True)
    for name, context in sorted(found.context.items()):
        star = "*" if name == found.default else " "
        where = context.url or context.admin or ""
        click.echo(f"{star} {printable(name):16} {printable(where)}".rstrip())
