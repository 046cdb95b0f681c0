"""
The report that people read: chapters, tables, charts.
"""
