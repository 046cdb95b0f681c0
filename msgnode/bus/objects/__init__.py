"""
Kept objects: publications get a version and are written to the journal; observers read it and catch up.
"""
