"""
The registry's calls made with treq and nothing else, in a process of their own; a line of JSON has the rate.
"""

import json
import sys
import time
from collections.abc import Generator
from typing import Any
from urllib.parse import quote

import treq
from twisted.internet import defer, task
from twisted.web.client import HTTPConnectionPool


@defer.inlineCallbacks
def main(reactor: Any, argument: str) -> Generator[Any, Any, None]:
    job = json.loads(argument)
    pool = HTTPConnectionPool(reactor)
    pool.maxPersistentPerHost = job["window"]
    place = f"http://127.0.0.1:{job['registry']}/hyperty/url/{quote(job['url'], safe='')}"
    begin = time.perf_counter() + job["warmup"]
    end = begin + job["seconds"]
    counted = [0]
    used = [0.0]
    reactor.callLater(job["warmup"], lambda: used.append(time.process_time()))

    @defer.inlineCallbacks
    def one() -> Generator[Any, Any, None]:
        while (now := time.perf_counter()) < end:
            response = yield treq.get(place, pool=pool, reactor=reactor)
            record = yield treq.json_content(response)
            assert record["hypertyID"] == job["url"]
            counted[0] += now >= begin

    yield defer.gatherResults([one() for _ in range(job["window"])])
    cores = (time.process_time() - used[-1]) / job["seconds"]
    yield pool.closeCachedConnections()
    print(json.dumps({"figure": counted[0] / job["seconds"], "generator_cores": cores}))


if __name__ == "__main__":
    task.react(main, sys.argv[1:])
