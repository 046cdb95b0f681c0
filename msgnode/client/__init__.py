"""
A client of a messaging node, for programs, devices and the command line.

`Client` is for Twisted, `AsyncClient` is the same for asyncio.
"""

from msgnode.client.asyncio_client import AsyncClient
from msgnode.client.client import Client
from msgnode.client.delivery import Delivery, Hop
from msgnode.client.errors import CannotConnect, ClientError, Closed, Full, NoToken, Refused, TimedOut
from msgnode.client.message import NOT_HANDLED, Message
from msgnode.client.registration import Registration

__all__ = [
    "NOT_HANDLED",
    "AsyncClient",
    "CannotConnect",
    "Client",
    "ClientError",
    "Closed",
    "Delivery",
    "Full",
    "Hop",
    "Message",
    "NoToken",
    "Refused",
    "Registration",
    "TimedOut",
]
