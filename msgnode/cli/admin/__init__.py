"""
`msgnode admin`: what operators ask of a running node, and tell it.
"""
