"""Products beside the core, each in a folder of its own. The core reaches them through `seams` alone."""
