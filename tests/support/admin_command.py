"""
`msgnode admin` against the admin listener of a node in memory.
"""

import json
from typing import Any

from click.testing import CliRunner, Result

from msgnode.cli.main import main
from tests.support.admin_case import AdminCase
from tests.support.admin_http import MemoryAdminHTTP


class AdminCommandCase(AdminCase):
    """
    A node with two clients, an operator who asks its API, and the command line.
    """

    def setUp(self) -> None:
        super().setUp()
        self.http = MemoryAdminHTTP(self.net)

    def run_(self, *words: str, exit_code: int = 0, token: str = "", **more: Any) -> Result:
        """
        Runs `msgnode admin` with these words.
        """
        environment = {"COLUMNS": "200", "MSGNODE_ADMIN_TOKEN": token or self.token}
        result = CliRunner().invoke(main, ["admin", *words], obj=self.http, env=environment, **more)
        self.assertEqual(exit_code, result.exit_code, (result.output, result.exception))
        return result

    def shown(self, *words: str, exit_code: int = 0, token: str = "") -> str:
        return self.run_(*words, exit_code=exit_code, token=token).stdout

    def json_of(self, *words: str, exit_code: int = 0) -> Any:
        return json.loads(self.shown(*words, "--json", exit_code=exit_code))

    def assertShows(self, parts: tuple[str, ...], *words: str, exit_code: int = 0) -> None:
        text = self.shown(*words, exit_code=exit_code)
        for part in parts:
            self.assertIn(part, text)
