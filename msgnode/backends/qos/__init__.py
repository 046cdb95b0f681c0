"""
The embedded QoS broker: reservations of relay bandwidth, in front of coturn.
"""
