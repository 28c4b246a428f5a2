"""Bundles on disk: manifest, graph files and signatures, all verified before anything opens."""
