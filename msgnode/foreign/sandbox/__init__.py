"""
The sandbox: one Deno process for each foreign domain, without network, files, environment or other processes.
"""
