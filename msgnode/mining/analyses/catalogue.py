"""
All analyses, in the order of the report. A new one needs one more line here.
"""

from msgnode.mining.analyses import (
    anomalies,
    latency,
    presence,
    refusals,
    retry_loops,
    sessions,
    subscription_graph,
    top_talkers,
    volume,
)
from msgnode.mining.analyses.records import by_record, ill_typed

QUESTIONS = (
    *volume.QUESTIONS,
    *top_talkers.QUESTIONS,
    *latency.QUESTIONS,
    *refusals.QUESTIONS,
    *by_record.QUESTIONS,
    *ill_typed.QUESTIONS,
    *sessions.QUESTIONS,
    *subscription_graph.QUESTIONS,
    *retry_loops.QUESTIONS,
    *anomalies.QUESTIONS,
    *presence.QUESTIONS,
)
