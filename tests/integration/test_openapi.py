"""
/message is as its OpenAPI document says, whatever schemathesis makes up.
"""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from tests.integration.process import Lines, NodeProcess

HOUSE = "runtime://localhost/house"


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    process = NodeProcess()
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def send(node: NodeProcess):
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{node.ports['web']}/message/openapi.json")
    schema.validate()
    return schema["/message"]["POST"]


@pytest.fixture(scope="module")
def resources(node: NodeProcess):
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{node.ports['web']}/message/openapi.json")
    return schema["/resource/{address}"]


def whole(value):
    """
    JSON Schema takes 8.0 for an integer; the node does not, and JSON.stringify never writes it.
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value


def call_and_validate(case):
    """
    No longer than a second is waited for a response. That none came in time is documented, and no failure of
    the node: nobody need be there to respond.
    """
    wait = case.query.get("wait")
    if isinstance(wait, (int, float)) and wait > 1:
        case.query["wait"] = 1
    response = case.call(timeout=40)
    answered_late = [not_a_server_error] if response.status_code == 504 else []
    case.validate_response(response, excluded_checks=answered_late)


@pytest.mark.parametrize("mode", GenerationMode)
def test_every_rest_answer_is_documented(send, mode):
    """
    Every answer is documented: what fits is not refused for its form, what does not fit is told so.
    """

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=send.as_strategy(generation_mode=mode))
    def check(case):
        if mode is GenerationMode.POSITIVE:
            case.body = {key: whole(value) for key, value in case.body.items()}
        call_and_validate(case)

    check()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("mode", GenerationMode)
def test_every_answer_of_a_resource_is_documented(resources, method, mode):
    """
    So is every answer of a resource, to each method.
    """
    addresses = st.from_regex(r"(hyperty|comm)://[a-z0-9.]{1,30}(/[a-z0-9 ?#%é]{1,20}){1,3}", fullmatch=True)

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=resources[method].as_strategy(generation_mode=mode), address=addresses)
    def check(case, address):
        if mode is GenerationMode.POSITIVE:
            case.path_parameters = {"address": quote(address, safe="")}
        call_and_validate(case)

    check()


def test_so_is_a_response_that_a_device_gives_and_what_has(send, node):
    """
    So is a response that a device gives, and what has none.
    """
    house = Lines(node.ports["line"], HOUSE)
    message = {"id": 1, "type": "read", "to": HOUSE}
    case = send.Case(body=message, media_type="application/json")

    with ThreadPoolExecutor() as pool:
        answer = pool.submit(case.call_and_validate)
        asked = house.receive()
        house.send({"id": 1, "type": "response", "from": HOUSE, "to": asked["from"], "body": {"value": 21}})

        assert answer.result().json()["body"] == {"value": 21}
    case = send.Case(body={**message, "type": "update"}, media_type="application/json")
    assert case.call_and_validate().json() == {"accepted": 1}
    house.close()
