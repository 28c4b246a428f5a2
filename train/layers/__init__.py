"""Hold the layers that several models share, each next to the form that devices run."""
