"""
The policy: a message in, a decision out, and nothing of the network.

program.py is what others call; document.py reads JSON into nodes.py, conditions.py
and operators.py; context.py and attributes.py are what is known of a message.
"""
