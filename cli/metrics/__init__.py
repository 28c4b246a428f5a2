"""Give metrics of a running loop to Prometheus."""
