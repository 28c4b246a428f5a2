"""Write records as text for a terminal."""
