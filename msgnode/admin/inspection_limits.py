"""
Thresholds from which a report on the node calls something a trouble.
"""

EXPIRY_WARNING_SECONDS = 14 * 86400.0  # before the end of a certificate
LAG_WARNING_SECONDS = 0.1
SHARE_WARNING = 0.9  # of a limit
