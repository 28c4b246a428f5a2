"""The kinds of attack, one file each."""
