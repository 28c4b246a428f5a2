"""Memory meters of a process, of the GPU and of the machine."""
