"""Choose rows by an expression such as `temp > 3 and site in ('a', 'b')`, safely.

The text is parsed with Python's grammar, and only comparisons, `and`, `or`, `not`, `in`, `is None`
and constants are accepted: nothing of it is ever executed. SQL's `is null`, `=` and `<>` are read,
too, and backticks enclose a name that Python could not read: `wind speed`. A row whose comparison
meets a missing value is left out, as SQL does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timezone
from typing import Any, NamedTuple

from edgefold.fleets.tables.arrow import require_compute, require_pyarrow
from edgefold.fleets.tables.columns import LakeColumn
from edgefold.runtime.errors import DataError

HOW = "write it as temp > 3 and site in ('a', 'b'), or wind is not null"
COMPARED = {
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
}
WORDS = {
    **{word: word for word in ("and", "or", "not", "in", "is")},
    **{"null": "None", "true": "True", "false": "False", "=": "==", "<>": "!="},
}
"""How Python writes SQL's words and signs."""
QUOTED = re.compile(r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
TOKENS = re.compile(QUOTED.pattern + r"""|`[^`]+`|\w+|<>|[=<>!]=|=""")
"""Matches a text in quotes, a name in backticks, a word, or a sign of comparison."""
_NAME = r"(?!(?:and|or|not|in|is|None|True|False)\b)[^\W\d]\w*\b"
TWO_NAMES = re.compile(rf"\b{_NAME}(?:[ \t]+{_NAME})+")
"""Matches names with nothing but spaces between them, which Python does not read."""
MOST_DEPTH = 100
MIRRORED = {ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Lt: ast.Gt, ast.LtE: ast.GtE}


class FilterForm(NamedTuple):
    """Says in which form a filter is computed: on arrays, or as an expression for statistics.

    Attributes:
        column: Returns a column's values by its name.
        constant: Returns a constant of pyarrow in this form.
    """

    column: Callable[[str], Any]
    constant: Callable[[Any], Any]


class RowFilter:
    """Holds a parsed expression; `names` are the columns that it reads.

    Args:
        text: The expression.

    Raises:
        DataError: The text is no such expression.
    """

    def __init__(self, text: str):
        self.text = text
        source, self._names = _in_python(text)
        try:
            self._tree = ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise DataError(f"the filter {text!r} cannot be read: {_why(text, error)}.") from None
        if _is_deep(self._tree):
            raise DataError(f"the filter has parts nested deeper than {MOST_DEPTH}; write less.")
        names: dict[str, None] = {}
        self._require(self._tree, names)
        self.names = tuple(names)

    def taken(
        self,
        columns: Mapping[str, LakeColumn],
        arrays: Mapping[str, Any],
        values: Mapping[str, Any],
        n: int,
    ) -> Any:
        """Return which of n rows are taken, an array of booleans; None if all are.

        Args:
            columns: Descriptions of the columns, which say how texts of times are read.
            arrays: The columns of the rows by name.
            values: The values of columns that the rows have in common.
            n: The number of rows.
        """
        pa = require_pyarrow()

        def column(name: str) -> Any:
            if name in arrays:
                array, type = arrays[name], columns[name].type
                is_mixed = pa.types.is_boolean(array.type) and not pa.types.is_boolean(type)
                return array.cast(type) if is_mixed else array  # other files have numbers
            return pa.scalar(values[name], columns[name].type)

        result = self._compute(self._tree, columns, FilterForm(column, lambda value: value))
        if isinstance(result, pa.Scalar):
            return None if result.as_py() else pa.repeat(False, n)
        result = result.fill_null(False)
        return None if result.true_count == n else result

    def expression(self, columns: Mapping[str, LakeColumn], values: Mapping[str, Any]) -> Any:
        """Return the filter as an expression of pyarrow, which compares it with statistics.

        Args:
            columns: As in `taken`.
            values: As in `taken`: constants in the expression.

        Raises:
            DataError: A constant cannot be compared with its column.
        """
        pc = require_compute()

        def column(name: str) -> Any:
            if name not in values:
                return pc.field(name)
            return pc.scalar(require_pyarrow().scalar(values[name], columns[name].type))

        return self._compute(self._tree, columns, FilterForm(column, pc.scalar))

    # Parsing ------------------------------------------------------------------------------------

    def _require(self, node: ast.expr, names: dict[str, None]) -> None:
        """Raise DataError for a part that is not allowed; collect the names of columns."""
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self._require(value, names)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._require(node.operand, names)
        elif isinstance(node, ast.Name):  # a column of booleans
            names[self._column(node)] = None
        elif isinstance(node, ast.Compare):
            for left, operator, right in _pairs(node):
                name, constant, _ = self._sides(left, operator, right)
                names[name] = None
                self._constant(constant, operator)
        else:
            self._refuse(node)

    def _column(self, node: ast.expr) -> str:
        assert isinstance(node, ast.Name)
        return self._names.get(node.id, node.id)

    def _sides(
        self, left: ast.expr, operator: ast.cmpop, right: ast.expr
    ) -> tuple[str, ast.expr, type[ast.cmpop]]:
        """Return the column, the constant and the operator with the column on the left."""
        kind = type(operator)
        sides = isinstance(left, ast.Name), isinstance(right, ast.Name)
        if sides == (True, False):
            return self._column(left), right, kind
        if sides == (False, True) and kind in COMPARED:
            return self._column(right), left, MIRRORED.get(kind, kind)
        raise DataError(
            f"the filter's {ast.unparse(ast.Compare(left, [operator], [right]))!r} does not "
            f"compare a column with a constant; {HOW}."
        )

    def _constant(self, node: ast.expr, operator: ast.cmpop) -> Any:
        """Return a constant's value, of several a list; raise DataError for anything else."""
        is_list = isinstance(operator, ast.In | ast.NotIn)
        if is_list and isinstance(node, ast.Tuple | ast.List | ast.Set):
            return [self._constant(part, ast.Eq()) for part in node.elts]
        if is_list and isinstance(node, ast.Constant):  # ('a') is no tuple in Python
            return [node.value]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self._constant(node.operand, operator)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
            return node.value
        if isinstance(node, ast.Constant) and node.value is None:
            if isinstance(operator, ast.Is | ast.IsNot):
                return None
            raise DataError(f"the filter compares with null; {HOW}.")
        return self._refuse(node)

    def _refuse(self, node: ast.expr) -> Any:
        part = ast.unparse(node)
        raise DataError(
            f"the filter's {part!r} is not taken: only comparisons of a column with constants, "
            f"and, or, not, in, is null are; {HOW}."
        )

    # Computing ----------------------------------------------------------------------------------

    def _compute(self, node: ast.expr, columns: Mapping[str, LakeColumn], form: FilterForm) -> Any:
        pc = require_compute()
        if isinstance(node, ast.BoolOp):
            join = pc.and_kleene if isinstance(node.op, ast.And) else pc.or_kleene
            result = self._compute(node.values[0], columns, form)
            for value in node.values[1:]:
                result = join(result, self._compute(value, columns, form))
            return result
        if isinstance(node, ast.UnaryOp):
            return pc.invert(self._compute(node.operand, columns, form))
        if isinstance(node, ast.Name):
            name = self._column(node)
            if columns[name].type != require_pyarrow().bool_():
                raise DataError(
                    f"the filter uses {name!r} as yes or no, and it is {columns[name].type}; "
                    "compare it with a constant."
                )
            return form.column(name)
        assert isinstance(node, ast.Compare)
        result = None
        for left, operator, right in _pairs(node):
            part = self._compared(left, operator, right, columns, form)
            result = part if result is None else pc.and_kleene(result, part)
        return result

    def _compared(
        self,
        left: ast.expr,
        operator: ast.cmpop,
        right: ast.expr,
        columns: Mapping[str, LakeColumn],
        form: FilterForm,
    ) -> Any:
        pa = require_pyarrow()
        pc = require_compute()
        name, node, kind = self._sides(left, operator, right)
        column, constant = columns[name], self._constant(node, operator)
        values = form.column(name)
        if kind in (ast.Is, ast.IsNot):
            if constant is not None:
                raise DataError(f"the filter's `is` takes only null; use == for {constant!r}.")
            is_null = pc.is_null(values)
            return is_null if kind is ast.Is else pc.invert(is_null)
        if kind in (ast.In, ast.NotIn):
            result = form.constant(pa.scalar(False))
            for each in constant:
                equal = pc.equal(values, form.constant(_scalar(column, each)))
                result = pc.or_kleene(result, equal)
            return result if kind is ast.In else pc.invert(result)
        return getattr(pc, COMPARED[kind])(values, form.constant(_scalar(column, constant)))


def _is_deep(tree: ast.AST) -> bool:
    layer = [tree]
    for _ in range(MOST_DEPTH):
        layer = [child for node in layer for child in ast.iter_child_nodes(node)]
    return bool(layer)


def _in_python(text: str) -> tuple[str, dict[str, str]]:
    """Return the text with SQL's words and signs as Python's, and names in backticks replaced.

    Returns:
        The text, and the names of columns by what stands in their place.
    """
    names: dict[str, str] = {}

    def spoken(match: re.Match[str]) -> str:
        token = match[0]
        if token[0] == "`":
            place = f"column_in_backticks_{len(names)}"
            names[place] = token[1:-1]
            return place
        return WORDS.get(token.lower(), token)

    return TOKENS.sub(spoken, text.strip()), names


def _why(text: str, error: Exception) -> str:
    """Return why a text is no expression, and what to write."""
    source, _ = _in_python(text)
    if (two := TWO_NAMES.search(QUOTED.sub("''", source))) is not None:
        return f"put a name with spaces in backticks, as in `{two[0]}` > 3"
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{reason}; {HOW}"


def _pairs(node: ast.Compare) -> list[tuple[ast.expr, ast.cmpop, ast.expr]]:
    """Return the comparisons of a chain such as 1 < a < 3."""
    terms = [node.left, *node.comparators]
    return list(zip(terms, node.ops, terms[1:], strict=False))


def _scalar(column: LakeColumn, value: Any) -> Any:
    """Return a constant as a scalar of pyarrow that can be compared with a column.

    Raises:
        DataError: The constant is of another kind than the column.
    """
    pa = require_pyarrow()
    is_yes_or_no = pa.types.is_boolean(column.type)
    if is_yes_or_no and isinstance(value, bool):
        return pa.scalar(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if column.kind == "number" and not is_yes_or_no and is_number:
        fits = isinstance(value, float) or -(1 << 63) <= value < 1 << 63
        return pa.scalar(value if fits else float(str(value)))  # of a text, infinity at worst
    if column.kind == "text" and isinstance(value, str):
        return pa.scalar(value)
    if column.kind == "time" and isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            raise DataError(
                f"the filter compares {column.name!r} with {value!r}, which is no time such as "
                "'2024-01-31' or '2024-01-31T12:00:00'."
            ) from None
        if pa.types.is_date(column.type):
            return pa.scalar(date(moment.year, moment.month, moment.day), column.type)
        if column.type.tz is None:
            if moment.tzinfo is not None:
                moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
        elif moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return pa.scalar(moment, pa.timestamp("us", column.type.tz))
    kinds = {"number": "numbers", "time": "times, in quotes", "text": "texts, in quotes"}
    words = "true or false" if is_yes_or_no else kinds[column.kind]
    raise DataError(
        f"the filter compares {column.name!r} with {value!r}, and its values are {words}."
    )
