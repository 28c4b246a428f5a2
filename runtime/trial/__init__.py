"""Try a new model beside the one that runs, and let it take over once it is better."""
