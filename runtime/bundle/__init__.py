"""Read bundles on disk: manifest, graph files and signatures, verified before anything opens."""
