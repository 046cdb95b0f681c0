"""
The HTTP API `/api/v1`: endpoints with typed parameters and answers, and their OpenAPI description.
"""
