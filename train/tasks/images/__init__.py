"""Define the task of completing images: each pixel is a point of a stream."""
