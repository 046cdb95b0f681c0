"""
Access policies, by the parts that XACML names: decision, language, replay, enforcement, administration.
"""
