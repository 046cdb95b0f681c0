"""
The client for asyncio: the same client, with coroutines.

Twisted's own reactor for asyncio runs on the program's loop, together with its
other tasks; no global reactor is installed.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHostnameResolver, IHostResolution, IResolutionReceiver
from zope.interface import implementer

from msgnode.client.client import Client
from msgnode.client.delivery import Delivery
from msgnode.client.handlers import Handler
from msgnode.client.message import WAIT_SECONDS, Message
from msgnode.client.records import RecordClass
from msgnode.client.registration import EXPIRES_SECONDS, Registration

T = TypeVar("T")

_reactors: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncioSelectorReactor] = WeakKeyDictionary()


class AsyncClient:
    """
    A client for asyncio; see Client.  Handlers may be coroutine functions.  Make it in a running loop.
    """

    def __init__(self, url: str, runtime: str = "", **options: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self.client = Client(_reactor(self._loop), url, runtime, run=self._run, **options)

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Deferred[Any]:
        return Deferred.fromFuture(self._loop.create_task(coroutine))

    async def _wait(self, deferred: Deferred[T]) -> T:
        return await deferred.asFuture(self._loop)

    @property
    def runtime(self) -> str:
        return self.client.runtime

    @property
    def token(self) -> str:
        return self.client.token

    @property
    def domain(self) -> str:
        return self.client.domain

    @property
    def is_open(self) -> bool:
        return self.client.is_open

    @property
    def missed(self) -> int:
        return self.client.missed

    async def connect(self, retry: bool = False) -> None:
        await self._wait(self.client.connect(retry))

    async def flushed(self) -> None:
        await self._wait(self.client.flushed())

    async def close(self, end: bool = True) -> None:
        await self._wait(self.client.close(end))

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def handle(self, what: str | RecordClass, handler: Handler | None = None, *, serial: bool = False) -> Any:
        return self.client.handle(what, handler, serial=serial)

    def publish(self, to: str | list[str], body: Any = None, **header: Any) -> None:
        self.client.publish(to, body, **header)

    async def request(
        self, to: str, body: Any = None, *, timeout: float = WAIT_SECONDS, **header: Any
    ) -> Message:
        return await self._wait(self.client.request(to, body, timeout=timeout, **header))

    async def deliver(
        self, to: str, body: Any = None, *, timeout: float = WAIT_SECONDS, **header: Any
    ) -> Delivery:
        return await self._wait(self.client.deliver(to, body, timeout=timeout, **header))

    async def subscribe(
        self, addresses: str | Iterable[str], handler: Handler | None = None, *, serial: bool = False
    ) -> None:
        await self._wait(self.client.subscribe(addresses, handler, serial=serial))

    async def unsubscribe(self, addresses: str | Iterable[str]) -> None:
        await self._wait(self.client.unsubscribe(addresses))

    async def allocate(
        self,
        number: int = 1,
        *,
        scheme: str = "hyperty",
        handler: Handler | None = None,
        serial: bool = False,
    ) -> list[str]:
        asked = self.client.allocate(number, scheme=scheme, handler=handler, serial=serial)
        return await self._wait(asked)

    async def free(self, addresses: str | Iterable[str]) -> None:
        await self._wait(self.client.free(addresses))

    async def register(
        self, url: str, *, user: str, expires: int = EXPIRES_SECONDS, **entry: Any
    ) -> Registration:
        return await self._wait(self.client.register(url, user=user, expires=expires, **entry))

    async def find(self, what: str, **criteria: Any) -> dict[str, Any]:
        return await self._wait(self.client.find(what, **criteria))


def _reactor(loop: asyncio.AbstractEventLoop) -> AsyncioSelectorReactor:
    if loop not in _reactors:
        reactor = AsyncioSelectorReactor(loop)
        reactor.installNameResolver(_LoopResolver(loop))
        _reactors[loop] = reactor
    return _reactors[loop]


@implementer(IHostResolution)
class _Resolution:
    """
    A host name that is being resolved.
    """

    def __init__(self, name: str, task: "asyncio.Task[Any]") -> None:
        self.name = name
        self._task = task

    def cancel(self) -> None:
        self._task.cancel()


@implementer(IHostnameResolver)
class _LoopResolver:
    """
    A resolver that lets the loop look names up, because the reactor's threads do not run here.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def resolveHostName(
        self,
        receiver: IResolutionReceiver,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Any = None,
        transportSemantics: str = "TCP",
    ) -> IHostResolution:
        task = self._loop.create_task(self._look_up(hostName, portNumber))
        resolution: IHostResolution = _Resolution(hostName, task)
        receiver.resolutionBegan(resolution)
        task.add_done_callback(partial(_tell, receiver))
        return resolution

    async def _look_up(self, host: str, port: int) -> list[IPv4Address | IPv6Address]:
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        kinds: dict[int, Callable[..., Any]] = {socket.AF_INET: IPv4Address, socket.AF_INET6: IPv6Address}
        return [kinds[family]("TCP", *where[:2]) for family, *_, where in found if family in kinds]


def _tell(receiver: IResolutionReceiver, task: "asyncio.Task[Any]") -> None:
    if not task.cancelled() and task.exception() is None:
        for address in task.result():
            receiver.addressResolved(address)
    receiver.resolutionComplete()
