"""
The HTML report: chapters, tables, charts.
"""
