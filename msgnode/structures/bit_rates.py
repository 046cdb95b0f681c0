"""
Bits per second for people.
"""

UNITS = ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s")


def bits(number: int) -> str:
    """
    Returns bits per second with a unit: `600 kbit/s`, `1.25 Mbit/s`.
    """
    value, unit = float(number), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {UNITS[unit]}" if value < 1000 else f"{value:,.0f} {UNITS[unit]}"
