"""One file a version of the schema, in the order of their numbers.

``v1_records`` is the first.
"""
