"""Names of the Osmosis SDK for code that imports them, where the SDK or a name of it is missing (`sdk_shim`).

The modules in `osmosis_ai/` have the paths of the SDK's. Each lists the names that it offers in `__all__`.
"""
