"""
The options with which a process of a stub is started: its names, its places and its limits.
"""

from uuid import uuid4

from msgnode.config.foreign import ForeignOptions, ForeignStub
from msgnode.foreign.fetch.stub_code import StubCode
from msgnode.foreign.lifecycle.stub_host import StubLimits, StubStart
from msgnode.foreign.lifecycle.surroundings import Surroundings


def start_options(around: Surroundings, code: StubCode, slot: int) -> StubStart:
    """
    The options for a process that runs this code; `slot` numbers this node's two names at the foreign node.
    """
    domain = code.domain
    stub, options = around.table(domain), around.options
    listed = (*options.hosts, *(stub.hosts if stub is not None else ()))
    return StubStart(
        domain=domain,
        url=f"runtime://{around.own}/protostub/{uuid4()}",
        runtime_url=f"runtime://{around.own}/{around.node}.{slot}.{domain}",
        code=code.code,
        descriptor=code.descriptor,
        hosts=code.hosts(listed),
        limits=limits_of(options, stub),
    )


def limits_of(options: ForeignOptions, stub: ForeignStub | None) -> StubLimits:
    """
    The limits of a stub: its own where the configuration has them.
    """

    def own(name: str) -> int:
        found = getattr(stub, name) if stub is not None else None
        value: int = getattr(options, name) if found is None else found
        return value

    return StubLimits(
        memory_bytes=own("memory_bytes"),
        message_bytes=own("message_bytes"),
        output_bytes_per_second=own("rate_bytes"),
        messages_per_second=own("rate_messages"),
        live_seconds=options.live_seconds,
        hang_seconds=options.hang_seconds,
        cpu_share=options.cpu_share,
        sockets=options.max_sockets,
        requests=options.max_requests,
        connections_per_second=options.connections_per_second,
        requests_per_second=options.requests_per_second,
        statuses_per_second=options.statuses_per_second,
        log_lines_per_second=options.log_lines_per_second,
    )
