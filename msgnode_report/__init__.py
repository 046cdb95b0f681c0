"""
The chart library of msgnode's mining report: a distribution of its own, so that a node is installed
without it.
"""

from importlib.resources import files


def library() -> str:
    """
    Apache ECharts, as one script.
    """
    return (files(__name__) / "echarts.min.js").read_text("utf-8")
