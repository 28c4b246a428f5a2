"""Write a bundle's C as an extension of PostgreSQL: an aggregate whose result is a state."""
