"""
A thermometer that answers GET_TEMPERATURE, with the class that msgnode generated from the definition.

    msgnode records generate --language python --out thermometer definitions
    device.py tcp://127.0.0.1:9091
"""

import asyncio
import random
import sys
from datetime import UTC, datetime

from thermometer.home import GetTemperature, GetTemperatureAnswer

from msgnode.client import AsyncClient, Refused

CELSIUS = {"hall": 21.5, "kitchen": 23.0, "attic": 18.0}
KELVIN = 273.15


async def main(node):
    async with AsyncClient(node) as client:

        @client.handle(GetTemperature)
        def temperature(message):
            asked = message.record
            if asked.room not in CELSIUS:
                raise Refused(404, f"no thermometer in the {asked.room!r}; there are {', '.join(CELSIUS)}")
            degrees = CELSIUS[asked.room] + random.uniform(-0.3, 0.3)
            if asked.unit_or_default == "KELVIN":
                degrees += KELVIN
            return GetTemperatureAnswer(temperature=round(degrees, 2), measured_at=datetime.now(UTC))

        await client.subscribe("hyperty://localhost/thermometer")
        print("ready", flush=True)
        await asyncio.Event().wait()


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:9091"))
