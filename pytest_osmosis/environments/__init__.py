"""verifiers environments: asked for their rows, rolled out and scored, all by duck type.

Nothing here imports verifiers. Where its classes are needed, they are taken from the modules that the environment
itself has imported.
"""
