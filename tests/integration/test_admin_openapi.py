"""
The admin API is as its OpenAPI document says, whatever schemathesis makes up; and no token is written down.
"""

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.integration.process import PATIENCE, NodeProcess

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
EXAMPLES = 12  # of each endpoint, with data that fit and data that do not


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    process = NodeProcess()
    until = time.monotonic() + PATIENCE
    while not (process.state / "admin-token").exists() and time.monotonic() < until:
        time.sleep(0.05)
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def headers(node: NodeProcess) -> dict[str, str]:
    return {"Authorization": f"Bearer {(node.state / 'admin-token').read_text().strip()}"}


@pytest.fixture(scope="module")
def schema(node: NodeProcess, headers: dict[str, str]) -> Any:
    where = f"http://127.0.0.1:{node.ports['admin']}/api/v1/openapi.json"
    found = schemathesis.openapi.from_url(where, headers=headers)
    found.validate()
    # Those have no types, one is a stream without an end, and some would change who may do what here.
    return found.exclude(path_regex="^/api/v1/(events|policy|links|routes|traces/.*/lines)")


@pytest.mark.parametrize("mode", GenerationMode)
def test_every_answer_of_the_admin_api_is_documented(
    schema: Any, headers: dict[str, str], mode: GenerationMode
) -> None:
    """
    Status, type and fields; and nothing makes the node fail.
    """
    asked, seen = 0, set()
    for result in schema.get_all_operations():
        operation = result.ok()
        asked += 1

        @settings(
            max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            answer = case.call_and_validate(headers=headers, checks=CHECKS, timeout=40)
            seen.add(answer.status_code)

        if mode is GenerationMode.POSITIVE or operation.body or operation.query:
            check()
    assert asked > 30
    assert seen >= ({200, 400, 404} if mode is GenerationMode.POSITIVE else {400})


def test_no_token_is_written_to_the_log_or_the_audit(node: NodeProcess, headers: dict[str, str]) -> None:
    """
    Neither a new one, nor the one that asks, nor one that is not valid, nor one in a URL.
    """
    where = f"http://127.0.0.1:{node.ports['admin']}/api/v1"
    body = {"name": "x1", "roles": ["viewer"], "reason": "it is a test"}
    made = requests.post(f"{where}/tokens", json=body, headers=headers, timeout=20)
    token = made.json()["details"]["token"]
    requests.get(f"{where}/node", headers={"Authorization": f"Bearer {token}"}, timeout=20)
    for n in range(3):
        requests.get(
            f"{where}/node?token=wrong{n}", headers={"Authorization": f"Bearer wrong{n}"}, timeout=20
        )
    written = (node.directory / "said").read_text()
    written += "".join(path.read_text() for path in (node.state / "audit").iterdir())
    written += (node.state / "admin-tokens").read_text()

    for secret in (token, headers["Authorization"].split()[1], "wrong1"):
        assert secret not in written
    assert "with a token that is not valid" in written
