"""
Figures in words: durations, shares and counts as people say them.
"""

_STEPS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float) -> str:
    """
    A duration with its two largest units: `3 min 22 s`, `2 h`, `850 ms`, `40 µs`.
    """
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:
        return f"{_three(seconds * 1000)} ms"
    if seconds < 59.95:
        return f"{_three(seconds)} s"
    whole = round(seconds)
    for at, (size, name) in enumerate(_STEPS):
        if whole >= size:
            # Rounded to the second unit shown, so that 59.7 s never follow a minute.
            below, label = _STEPS[min(at + 1, len(_STEPS) - 1)]
            count, rest = divmod(round(seconds / below), size // below)
            return f"{count:,} {name} {rest} {label}" if rest else f"{count:,} {name}"
    return f"{whole} s"


def share(part: float, whole: float) -> str:
    """
    A share in per cent: `31 %`, `0.4 %`, `less than 0.1 %`, `99.95 %`.
    """
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "less than 0.1 %"
    if 99 < percent < 100:  # as many digits as it takes not to say 100
        digits = (f"{percent:.{number}f}" for number in range(1, 5))
        return next((f"{each} %" for each in digits if float(each) < 100), "more than 99.99 %")
    return f"{percent:.1f} %" if percent < 10 else f"{percent:.0f} %"


def count(number: float, one: str, several: str = "") -> str:
    """
    A number with its noun: `1 message`, `20,076 messages`.
    """
    return f"{number:,.0f} {one if number == 1 else several or one + 's'}"


def _three(value: float) -> str:
    """
    Three significant digits, without an exponent and without zeros at the end.
    """
    text = f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
