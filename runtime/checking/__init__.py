"""Check a bundle: replay its recorded stream, or compare two backends tensor by tensor."""
