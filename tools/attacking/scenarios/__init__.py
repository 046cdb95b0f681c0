"""
The attacks, by what they abuse; ground.py says what an attack is.
"""
