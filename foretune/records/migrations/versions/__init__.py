"""One file a version of the schema, in the order of their numbers."""
