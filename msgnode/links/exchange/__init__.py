"""
The exchange: messages, receipts and subscriptions between this domain and others.
"""
