"""
`msgnode init`: the files of a new node.
"""

import json
import re
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from msgnode.cli.main import main
from msgnode.config.loader import load
from tests.support.examples import TOP


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["init", *map(str, arguments)])


def test_writes_a_configuration_that_a_node_takes(tmp_path: Path) -> None:
    """
    With the domain that was named; all else has its default.
    """
    done = run(tmp_path / "etc", "--domain", "example.org")

    config = load(str(tmp_path / "etc/msgnode.toml"))
    assert (0, "example.org") == (done.exit_code, config.domain)


def test_units_start_this_installation_with_that_configuration(tmp_path: Path) -> None:
    """
    Each path in the units is that of this environment, and of the directory.
    """
    etc, units = tmp_path / "etc", tmp_path / "system"

    done = run(etc, "--systemd", units)

    assert done.exit_code == 0, done.output
    texts = {path.name: path.read_text() for path in units.iterdir()}
    assert {"msgnode.service", "msgnode@.service", "msgnode.socket"} == set(texts)
    started = re.search(r"^ExecStart=(.*)$", texts["msgnode.service"], re.M)
    assert started is not None
    assert f"{sys.prefix}/bin/twistd --nodaemon --pidfile= msgnode --config {etc}/msgnode.toml" == started[1]
    assert f"--config {etc}/%i.toml" in texts["msgnode@.service"]
    assert not any("/opt/msgnode" in text for text in texts.values())


def test_a_percent_sign_in_a_path_is_no_specifier_of_systemd(tmp_path: Path) -> None:
    """
    It stands twice in the unit.
    """
    run(tmp_path / "50%n", "--systemd", tmp_path)

    assert "/50%%n/msgnode.toml" in (tmp_path / "msgnode.service").read_text()


def test_nothing_that_is_there_is_overwritten(tmp_path: Path) -> None:
    """
    Unless --force is given; if one file is there, none is written.
    """
    (tmp_path / "msgnode.toml").write_text("mine")

    refused = run(tmp_path, "--systemd", tmp_path / "units")

    assert (2, False) == (refused.exit_code, (tmp_path / "units").exists())
    assert f"{tmp_path}/msgnode.toml: exists already; --force overwrites" in refused.output
    assert (tmp_path / "msgnode.toml").read_text() == "mine"
    assert 0 == run(tmp_path, "--force").exit_code
    assert (tmp_path / "msgnode.toml").read_text() == (TOP / "etc/msgnode.toml").read_text()


def test_names_the_files_as_json(tmp_path: Path) -> None:
    """
    For programs that set nodes up.
    """
    found = json.loads(run(tmp_path, "--json").stdout)

    assert {"ok": True, "written": [f"{tmp_path}/msgnode.toml"]} == found


def test_the_completion_that_is_shipped_is_that_of_the_command() -> None:
    """
    The package installs it where bash, zsh and fish look.
    """
    for shell, name in (("bash", "msgnode"), ("zsh", "_msgnode"), ("fish", "msgnode.fish")):
        printed = CliRunner().invoke(main, ["completion", shell]).stdout

        assert printed == (TOP / "etc/completion" / name).read_text()
