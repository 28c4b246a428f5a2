"""Read bundles from disk, and verify manifest, graph files and signatures before use."""
