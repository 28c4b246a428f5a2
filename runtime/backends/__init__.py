"""What runs a bundle's graphs: one file a backend."""
