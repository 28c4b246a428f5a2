"""Run a bundle's graphs on a CPU or a GPU: each backend is one file or one folder here."""
