"""
The copies of one publication that come to several members for one session, so that its client gets one.
"""
