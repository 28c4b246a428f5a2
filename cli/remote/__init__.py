"""Work on boards at a distance by the system's OpenSSH: look, copy, install, run, bring back."""
