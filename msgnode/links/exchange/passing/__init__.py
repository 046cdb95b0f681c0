"""
Passing on: messages of other domains that go to a third one, and the proof of who sent them.
"""
