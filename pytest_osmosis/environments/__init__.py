"""verifiers environments: found, loaded in a process of their own, rolled out and scored, all by duck type.

Nothing here imports verifiers. What its classes are needed for is taken from the modules that the environment itself
has imported.
"""
