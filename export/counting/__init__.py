"""Memory and work of graphs, counted before they run."""
