"""
The clients that make the load and keep the records, and how their bytes travel.
"""
