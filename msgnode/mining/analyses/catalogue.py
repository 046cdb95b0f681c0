"""
Every question, in the order of the report; a new one is one more line here.
"""

from msgnode.mining.analyses import (
    anomalies,
    latency,
    refusals,
    retry_loops,
    sessions,
    subscription_graph,
    top_talkers,
    volume,
)

QUESTIONS = (
    *volume.QUESTIONS,
    *top_talkers.QUESTIONS,
    *latency.QUESTIONS,
    *refusals.QUESTIONS,
    *sessions.QUESTIONS,
    *subscription_graph.QUESTIONS,
    *retry_loops.QUESTIONS,
    *anomalies.QUESTIONS,
)
