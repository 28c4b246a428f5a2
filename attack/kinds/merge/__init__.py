"""States of parts of a stream that are joined in any order and any tree."""

from attack.kinds.merge.cases import Cases

__all__ = ["Cases"]
