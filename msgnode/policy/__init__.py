"""
The policy: a message in, a decision out, and nothing of the network.

program.py is what others call; document.py reads JSON into nodes.py, conditions.py
and operators.py; context.py and attributes.py are what is known of a message.
"""

from msgnode.policy.context import Context, Identity
from msgnode.policy.explanation import Explanation
from msgnode.policy.problems import PolicyRefused, Problem
from msgnode.policy.program import Decision, Program, read

__all__ = ["Context", "Decision", "Explanation", "Identity", "PolicyRefused", "Problem", "Program", "read"]
