"""Read the figures of records, compare them, and check gates on them."""
