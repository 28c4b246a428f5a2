"""Run a bundle's graphs: each backend is one file or one folder."""
