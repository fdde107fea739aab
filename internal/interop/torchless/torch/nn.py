class Module:
    """Nothing here is one; libraries ask whether a value is."""
