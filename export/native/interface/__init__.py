"""Write the C around the graph functions: struct, functions of the API, snapshots."""
