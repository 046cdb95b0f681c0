"""
REST: messages by `/message` and `/resource`, subscriptions by `/events`, and their OpenAPI document.
"""
