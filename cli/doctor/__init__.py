"""What this machine has, what it lacks, and how to install that."""
