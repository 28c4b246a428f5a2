"""Hold neural processes that pool or attend: CNP, NP, BNP, CANP, ANP, BANP and ConvCNP."""
