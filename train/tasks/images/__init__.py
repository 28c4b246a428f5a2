"""Tasks of images whose pixels are points."""
