"""Power cuts of `edgefold run` with a broker: every legal state of the disk must go on.

    a recorded run ──> its operations on the disk ──> a crash point ──> a legal state of the disk
                                                                                │
    equal to a run that was never cut? <── the broker sends again <── a new run <┘

The method is that of ALICE (Pillai et al., OSDI 2014), in user space. Module `disk` states the
model of the disk; module `recording` records the operations, and `broker` is the broker.
"""

from attack.kinds.crash_states.cases import WAITS, Cases

__all__ = ["WAITS", "Cases"]
