"""
The building blocks of the schema: sections, and the types of numbers in them.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

MAX_SECONDS = 3_153_600_000  # a century: timers do not accept infinity
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
Positive = Annotated[float, Meta(gt=0, le=MAX_SECONDS)]
Count = Annotated[int, Meta(ge=1)]
Factor = Annotated[float, Meta(ge=1, le=1000)]
Bytes = Annotated[int, Meta(ge=1)]
OrOff = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Section(Struct, forbid_unknown_fields=True, kw_only=True):
    """
    A table of the file. An unknown key is an error.
    """


class BackEndOptions(Section):
    """
    A server that the node calls over HTTP: TLS files, deadlines, retries, and limits.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    deadline_seconds: Positive = 5.0
    attempts: Count = 2
    in_flight: Count = 100
    queue: OrOff = 1000
    max_pending_bytes: OrOff = 64 * 1024 * 1024
    max_response_bytes: Bytes = 8 * 1024 * 1024


class RegistryOptions(BackEndOptions):
    """
    Options of the domain registry, of the error for disconnected users, and of the disconnect notice.
    """

    url: str = "embedded"
    poll_seconds: Seconds = 5.0
    unavailable_code: Literal[408, 500] = 408
    disconnect: bool = True
    disconnect_after_seconds: Seconds = 10.0
    max_entry_bytes: Bytes = 64 * 1024
    max_entries_per_owner: Count = 10_000
    max_bytes_per_owner: Bytes = 16 * 1024 * 1024
    max_entries: Count = 100_000
    max_bytes: Bytes = 256 * 1024 * 1024
    retention_seconds: Seconds = 604_800.0
    sweep_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 20.0


class GlobalRegistryOptions(BackEndOptions):
    """
    Options of the global registry. `verify`: the signature and GUID of a record are checked before it is
    sent.
    """

    url: str = "embedded"
    deadline_seconds: Positive = 6.0
    write_deadline_seconds: Positive = 13.0
    verify: bool = True


class QoSOptions(BackEndOptions):
    """
    Options of the QoS broker, which knows TURN servers, and of the domain's account there.

    With the URL `embedded` it is a broker in the node, for coturn: its clients' URLs, the secret it shares,
    its command line, and the bits per second that may be reserved.
    """

    url: str = ""
    csp: str = ""
    connectivity: str = ""
    deadline_seconds: Positive = 4.0
    turn_urls: list[str] = []
    turn_secret: str = ""
    turn_secret_file: str = ""
    cli: str = "127.0.0.1:5766"
    cli_password_file: str = ""
    capacity_up: OrOff = 100_000_000
    capacity_down: OrOff = 100_000_000
    max_reservation_seconds: Positive = 14_400.0
    max_reservations: Count = 1000
    max_reservations_per_session: Count = 10
    overuse_seconds: OrOff = 20
    overuse_tolerance: Factor = 1.25


class RecordsOptions(Section):
    """
    Options of records: the directory of definitions, what is checked, and the namespaces of the public
    catalogue.
    """

    dir: str = ""
    check: Literal["off", "known", "all"] = "known"
    public: list[str] = []
    max_body_bytes: Bytes = 1024 * 1024
