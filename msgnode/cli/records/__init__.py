"""
`msgnode records`: the verbs for definitions of typed messages.
"""
