"""Hold the models that come with Edgefold, and the registry of their names."""
