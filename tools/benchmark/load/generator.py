"""
The generator process: one job in, as JSON in the argument; its result out, as JSON on a line.
"""

import gc
import json
import sys
from typing import Any

import uvloop

from benchmark.load import client_program, nats_program
from benchmark.scenarios import (
    allocation,
    bindings,
    dashboard,
    fanout,
    pairs,
    policies,
    polling,
    records,
    registry,
    rest,
    restart,
    sessions,
    socketio,
    stress,
)

LOADS = {
    "pairs": pairs.load,
    "bindings": bindings.load,
    "fanout": fanout.load,
    "dashboard": dashboard.load,
    "allocation": allocation.load,
    "connect": sessions.connect_rate,
    "memory": sessions.memory,
    "churn": sessions.churn,
    "polling": polling.load,
    "rest": rest.load,
    "socketio": socketio.load,
    "flood": stress.flood,
    "storm": stress.storm,
    "away": stress.away,
    "restart": restart.restart,
    "policies": policies.load,
    "decide": policies.decide,
    "lag": policies.lag,
    "records": records.load,
    "registry": registry.through,
    "beside-registry": registry.beside,
    "program": client_program.load,
    "nats-program": nats_program.load,
}


async def run(job: dict[str, Any]) -> dict[str, Any]:
    """
    The job's result; what went wrong is in its `errors`.
    """
    try:
        result = await LOADS[job["load"]](job)
        await pairs.settle()
        return result
    except Exception as why:
        return {"figure": None, "errors": [f"{type(why).__name__}: {why}"]}


def main() -> None:
    job = json.loads(sys.argv[1])
    gc.disable()  # a collection is a pause that the peer did not cause
    print(json.dumps(uvloop.run(run(job))))


if __name__ == "__main__":
    main()
