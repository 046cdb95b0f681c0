"""
What is measured, one scenario a module; catalogue.py has them all.
"""
