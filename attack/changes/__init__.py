"""Changes that attacks make to arrays, graphs and manifests."""
