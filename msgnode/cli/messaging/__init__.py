"""
The parts of the verbs that send and print messages.
"""
