"""Turn a step graph into statements, and statements into C text."""
