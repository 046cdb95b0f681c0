"""
Every question, in the order of the report; a new one is one more line here.
"""

from msgnode.mining import anomalies, graph, latency, refusals, retries, sessions, talkers, volume

QUESTIONS = (
    *volume.QUESTIONS,
    *talkers.QUESTIONS,
    *latency.QUESTIONS,
    *refusals.QUESTIONS,
    *sessions.QUESTIONS,
    *graph.QUESTIONS,
    *retries.QUESTIONS,
    *anomalies.QUESTIONS,
)
