"""
The policy administration point (XACML's PAP): live versions, edits, commands, sources.
"""
