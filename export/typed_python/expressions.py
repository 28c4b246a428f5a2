"""Make C of the expressions of a rule's function."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from edgefold.export.typed_python.effects import changes_fields
from edgefold.export.typed_python.errors import SubsetError, refused
from edgefold.export.typed_python.kinds import (
    ARRAYS,
    BOOL,
    FLOAT,
    INT,
    SINGLE,
    WORD,
    Kind,
    c_name,
    fields_of,
    kind_of_constant,
    struct_name,
)
from edgefold.export.typed_python.values import (
    AND,
    CALL,
    CHOICE,
    COMPARISONS,
    MATH,
    MATH_TESTS,
    OF_BITS,
    OPERATORS,
    OR,
    ORDER,
    SAME,
    UNARY,
    Expression,
    NeededCode,
    number_text,
    signature_of,
)


class Expressions:
    """Makes C of the expressions of one function.

    Args:
        program: Collects the code that the function needs.
        function: The function.
        variables: The kinds of the function's variables by name, which statements add to.
    """

    def __init__(self, program: NeededCode, function: FunctionType, variables: dict[str, Kind]):
        self.program, self.function, self.variables = program, function, variables
        self.globals: Mapping[str, Any] = function.__globals__

    def value(self, node: ast.expr) -> Expression:
        """Return an expression in C.

        Raises:
            SubsetError: The expression is not in the subset.
        """
        folded = self._constant(node)
        if folded is not None:
            return folded
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise refused(node, self.function, "no such expression in the subset")
        value: Expression = method(node)
        return value

    def condition(self, node: ast.expr) -> Expression:
        """Return a truth value."""
        value = self.value(node)
        if value.kind == FLOAT:
            return Expression(f"{value.within(SAME)} != 0.0", BOOL, SAME)
        if not value.kind.is_number:
            raise refused(node, self.function, "no truth value")
        return value

    def number(self, node: ast.expr) -> Expression:
        """Return a number: a float, an int or a truth value."""
        value = self.value(node)
        if value.kind not in (FLOAT, INT, BOOL):
            raise refused(node, self.function, f"a {value.kind.word} is no number")
        return value

    def require_one_order(self, node: ast.AST, operands: Sequence[ast.expr]) -> None:
        """Refuse operands of which one changes what another one reads: C has no order for them.

        A call changes a rule if its function assigns to a field of it, or calls one that does.
        """
        changing = [o for o in operands if any(self._changes(part) for part in ast.walk(o))]
        others = len(operands) - 1
        reading = [o for o in operands if o not in changing and self._reads(o)]
        if others and (len(changing) > 1 or (changing and reading)):
            raise refused(node, self.function, "C does not say which of these comes first")

    def _reads(self, node: ast.expr) -> bool:
        """Return whether an expression reads fields or calls a function that may read them."""
        return any(
            isinstance(part, (ast.Attribute, ast.Subscript)) and self._constant(part) is None
            for part in ast.walk(node)
            if isinstance(part, ast.expr) and not self._is_module(getattr(part, "value", part))
        )

    def _changes(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        function = self._function_of(node.func)
        return function is not None and changes_fields(function)

    def _function_of(self, func: ast.expr) -> FunctionType | None:
        """Return the function of a module or of a rule's class that an expression names."""
        try:
            if isinstance(func, ast.Attribute) and not self._is_module(func.value):
                member = inspect.getattr_static(self.value(func.value).kind.of, func.attr, None)
            else:
                member = self._target(func)
        except (SubsetError, AttributeError):
            return None
        return member if isinstance(member, FunctionType) else None

    # Constants -----------------------------------------------------------------------------------

    def _constant(self, node: ast.expr) -> Expression | None:
        """Return an expression of nothing but constants, computed; else None."""
        if isinstance(node, ast.Call) or self._is_variable(node):
            return None
        try:
            constant = eval(compile(ast.Expression(node), "rule", "eval"), dict(self.globals))
        except Exception:
            return None
        if isinstance(node, ast.Name):
            kind = kind_of_constant(constant)
            if kind is None:
                return None
            if kind.word != "word":
                module = self.globals["__name__"]
                if kind.word == "tuple":
                    return self.literal(constant)
                return Expression(self.program.constant(node.id, constant, module), kind)
        return self.literal(constant)

    def _is_variable(self, node: ast.expr) -> bool:
        return any(isinstance(n, ast.Name) and n.id in self.variables for n in ast.walk(node))

    def literal(self, constant: Any) -> Expression | None:
        """Return a number, a word or a NamedTuple as C; None for another object."""
        kind = kind_of_constant(constant)
        if kind is None or kind.word == "list":
            return None
        if kind == WORD:
            return Expression(self.program.word(constant), WORD)
        if kind.word == "tuple":
            self.program.struct(kind.of)
            items = [self.literal(item) for item in constant]
            if any(item is None for item in items):
                return None
            texts = ", ".join(item.text for item in items if item is not None)
            return Expression(f"({kind.c}){{{texts}}}", kind)
        text = number_text(constant)
        return Expression(text, kind, UNARY if text.startswith("-") else CALL)

    # Names and places ----------------------------------------------------------------------------

    def _name(self, node: ast.Name) -> Expression:
        kind = self.variables.get(node.id)
        if kind is None:
            raise refused(node, self.function, "no variable or constant of the subset")
        return Expression(c_name(node.id), kind)

    def _attribute(self, node: ast.Attribute) -> Expression:
        of = self.value(node.value)
        if of.kind.word not in ("rule", "tuple"):
            raise refused(node, self.function, f"a {of.kind.word} has no fields")
        self.program.struct(of.kind.of)
        fields = fields_of(of.kind.of)
        if node.attr in fields:
            kind, text = fields[node.attr], of.field(node.attr)
            if kind.word == "rule":
                return Expression(f"&{text}", kind, UNARY)
            return Expression(text, kind)
        member = inspect.getattr_static(of.kind.of, node.attr, None)
        if isinstance(member, property) and isinstance(member.fget, FunctionType):
            return self._called(node, member.fget, [], {}, of)
        raise refused(node, self.function, f"no field of {of.kind.of.__name__}")

    def _subscript(self, node: ast.Subscript) -> Expression:
        of = self.value(node.value)
        if of.kind.word not in ("list", *ARRAYS):
            raise refused(node, self.function, f"a {of.kind.word} has no places")
        if isinstance(node.slice, ast.UnaryOp) and of.kind.size:
            at = self._constant(node.slice)
            assert at is not None
            return Expression(f"{of.text}[{of.kind.size + int(at.text)}]", of.kind.item)
        at = self.value(node.slice)
        if at.kind not in (INT, BOOL):
            raise refused(node, self.function, "a place is an int")
        if of.kind.word == "array":  # numpy computes in float32 with it, so a float must be made
            return Expression(f"{of.text}[{at.text}]", SINGLE)
        if of.kind.word in ARRAYS:
            return Expression(f"(double){of.text}[{at.text}]", FLOAT, UNARY)
        return Expression(f"{of.text}[{at.text}]", of.kind.item)

    # Operators -----------------------------------------------------------------------------------

    def _unaryop(self, node: ast.UnaryOp) -> Expression:
        if isinstance(node.op, ast.Not):
            return Expression(f"!{self.condition(node.operand).within(UNARY)}", BOOL, UNARY)
        if not isinstance(node.op, ast.USub):
            raise refused(node, self.function, "no such operator in the subset")
        value = self.number(node.operand)
        return Expression(f"-{value.within(UNARY)}", FLOAT if value.kind == FLOAT else INT, UNARY)

    def _binop(self, node: ast.BinOp) -> Expression:
        self.require_one_order(node, [node.left, node.right])
        return self.operation(node, node.op, self.number(node.left), self.number(node.right))

    def operation(
        self, node: ast.AST, op: ast.operator, left: Expression, right: Expression
    ) -> Expression:
        """Return the value of an operator on two numbers; `node` is for an error."""
        if type(op) not in OPERATORS:
            raise refused(node, self.function, "no such operator in the subset")
        text, rank = OPERATORS[type(op)]
        is_float = FLOAT in (left.kind, right.kind)
        if isinstance(op, OF_BITS) and is_float:
            raise refused(node, self.function, "floats have no bits")
        if isinstance(op, ast.FloorDiv):
            if is_float:
                return Expression(f"floor({left.within(13)} / {right.within(14)})", FLOAT)
            return Expression(f"edgefold_quotient({left.text}, {right.text})", INT)
        if isinstance(op, ast.Mod):
            kind, name = (FLOAT, "float_remainder") if is_float else (INT, "remainder")
            return Expression(f"edgefold_{name}({left.text}, {right.text})", kind)
        if isinstance(op, ast.Div):
            left, right, is_float = left.as_float, right.as_float, True
        if isinstance(op, ast.LShift):
            left = Expression(f"(int64_t){left.within(UNARY)}", INT, UNARY)
        if isinstance(op, OF_BITS):
            return Expression(f"{left.within(UNARY)} {text} {right.within(UNARY)}", INT, rank)
        # Left-hand operands of the same rank need no parentheses, right-hand ones do.
        both = f"{left.within(rank)} {text} {right.within(rank + 1)}"
        return Expression(both, FLOAT if is_float else INT, rank)

    def _boolop(self, node: ast.BoolOp) -> Expression:
        text, rank = ("&&", AND) if isinstance(node.op, ast.And) else ("||", OR)
        values = [self.condition(value).within(rank + 2) for value in node.values]
        return Expression(f" {text} ".join(values), BOOL, rank)

    def _compare(self, node: ast.Compare) -> Expression:
        terms = [node.left, *node.comparators]
        for middle in terms[1:-1]:
            if any(isinstance(part, ast.Call) for part in ast.walk(middle)):
                self._require_pure(middle)
        parts = []
        for left, op, right in zip(terms, node.ops, terms[1:], strict=False):
            parts.append(self._comparison(node, left, op, right))
        if len(parts) == 1:
            return parts[0]
        return Expression(" && ".join(part.within(AND + 1) for part in parts), BOOL, AND)

    def _require_pure(self, node: ast.expr) -> None:
        """Refuse a middle term of a chain that calls more than functions of numbers."""
        pure = {"abs", "min", "max", "round", "float", "int", "len", "math"}
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                root = part.func.value if isinstance(part.func, ast.Attribute) else part.func
                if not (isinstance(root, ast.Name) and root.id in pure):
                    raise refused(node, self.function, "a chain would call this two times")

    def _comparison(
        self, node: ast.Compare, left: ast.expr, op: ast.cmpop, right: ast.expr
    ) -> Expression:
        if isinstance(op, (ast.In, ast.NotIn)):
            item, numbers = self.number(left), self.value(right)
            text = self._index(node, numbers, item)
            return Expression(f"{text} {'<' if isinstance(op, ast.NotIn) else '>='} 0", BOOL, ORDER)
        if type(op) not in COMPARISONS:
            raise refused(node, self.function, "no such comparison in the subset")
        self.require_one_order(node, [left, right])
        rank = SAME if isinstance(op, (ast.Eq, ast.NotEq)) else ORDER
        one, other = self.value(left), self.value(right)
        if (one.kind == WORD) != (other.kind == WORD) or not (
            one.kind.is_number and other.kind.is_number
        ):
            raise refused(node, self.function, "these are not compared")
        text = f"{one.within(rank + 1)} {COMPARISONS[type(op)]} {other.within(rank + 1)}"
        return Expression(text, BOOL, rank)

    def _ifexp(self, node: ast.IfExp) -> Expression:
        test, yes, no = self.condition(node.test), self.value(node.body), self.value(node.orelse)
        kind = yes.kind if yes.kind.fits(no.kind) else no.kind
        if not (kind.fits(yes.kind) and kind.fits(no.kind)) or kind.word == "list":
            raise refused(node, self.function, "the two values have different types")
        if kind == FLOAT:
            yes, no = yes.as_float, no.as_float
        text = f"{test.within(CHOICE + 1)} ? {yes.within(CHOICE)} : {no.within(CHOICE)}"
        return Expression(text, kind, CHOICE)

    # Calls ---------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Expression:
        func = node.func
        self.require_one_order(node, [*node.args, *(keyword.value for keyword in node.keywords)])
        if isinstance(func, ast.Name) and func.id in self.variables:
            raise refused(node, self.function, "no function of the subset")
        if isinstance(func, ast.Attribute) and not self._is_module(func.value):
            return self._method(node, func)
        target = self._target(func)
        if target in MATH:
            arguments = ", ".join(self.number(argument).as_float.text for argument in node.args)
            return Expression(f"{MATH[target]}({arguments})", FLOAT)
        if target in MATH_TESTS:
            return Expression(
                f"{MATH_TESTS[target]}({self.number(node.args[0]).text}) != 0", BOOL, SAME
            )
        if target in (math.floor, math.ceil, round) and len(node.args) == 1:
            name = {math.floor: "floor", math.ceil: "ceil", round: "rint"}[target]
            return Expression(f"(int64_t){name}({self.number(node.args[0]).text})", INT, UNARY)
        if target in (min, max) and node.args:
            return self._extreme(node, "least" if target is min else "most")
        if target in (abs, int, float, bool, len) and len(node.args) == 1:
            return self._converted(node, target)
        if isinstance(target, FunctionType):
            return self._called(node, target, node.args, self._keywords(node), None)
        if isinstance(target, type) and hasattr(target, "_fields"):
            return self._made(node, target)
        raise refused(node, self.function, "no function of the subset")

    def _is_module(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == "math" and "math" not in self.variables

    def _target(self, func: ast.expr) -> Any:
        try:
            return eval(compile(ast.Expression(func), "rule", "eval"), dict(self.globals))
        except Exception:
            raise refused(func, self.function, "no function of the subset") from None

    def _keywords(self, node: ast.Call) -> dict[str, ast.expr]:
        return {str(keyword.arg): keyword.value for keyword in node.keywords}

    def _extreme(self, node: ast.Call, name: str) -> Expression:
        if len(node.args) == 1:
            numbers = self.value(node.args[0])
            if numbers.kind.word != "list" or numbers.kind.item != FLOAT or not numbers.kind.size:
                raise refused(node, self.function, "a list of floats of known length is needed")
            return Expression(f"edgefold_{name}_of({numbers.text}, {numbers.kind.size})", FLOAT)
        values = [self.number(argument) for argument in node.args]
        is_float = any(value.kind == FLOAT for value in values)
        text = values[0].text
        for value in values[1:]:
            text = f"edgefold_{name}{'' if is_float else '_whole'}({text}, {value.text})"
        return Expression(text, FLOAT if is_float else INT)

    def _converted(self, node: ast.Call, target: Any) -> Expression:
        if target is len:
            numbers = self.value(node.args[0])
            if numbers.kind.word != "list" or not numbers.kind.size:
                raise refused(node, self.function, "its length is not fixed")
            return Expression(str(numbers.kind.size), INT)
        if target is bool:
            value = self.condition(node.args[0])
            return Expression(f"{value.within(SAME + 1)} != 0", BOOL, SAME)
        if target is float:
            value = self.value(node.args[0])
            if value.kind == SINGLE:
                return Expression(f"(double){value.text}", FLOAT, UNARY)
        value = self.number(node.args[0])
        if target is float:
            return value.as_float
        if target is int:
            return Expression(f"(int64_t){value.within(UNARY)}", INT, UNARY)
        if value.kind == FLOAT:
            return Expression(f"fabs({value.text})", FLOAT)
        return Expression(f"edgefold_abs_whole({value.text})", INT)

    def _method(self, node: ast.Call, func: ast.Attribute) -> Expression:
        of = self.value(func.value)
        if of.kind.word == "list" and func.attr == "index":
            return Expression(self._index(node, of, self.number(node.args[0])), INT)
        if of.kind == INT and func.attr == "bit_length":
            return Expression(f"edgefold_bit_length({of.text})", INT)
        if of.kind.word not in ("rule", "tuple"):
            raise refused(node, self.function, f"a {of.kind.word} has no methods")
        member = inspect.getattr_static(of.kind.of, func.attr, None)
        if isinstance(member, staticmethod):
            function = member.__func__
            assert isinstance(function, FunctionType)
            return self._called(node, function, node.args, self._keywords(node), None)
        if not isinstance(member, FunctionType):
            raise refused(node, self.function, f"no method of {of.kind.of.__name__}")
        return self._called(node, member, node.args, self._keywords(node), of)

    def _index(self, node: ast.AST, numbers: Expression, item: Expression) -> str:
        kind = numbers.kind
        if kind.word != "list" or not kind.size:
            raise refused(node, self.function, "a list of known length is needed")
        name = "edgefold_index" if kind.item == FLOAT else "edgefold_index_whole"
        return f"{name}({numbers.text}, {kind.size}, {item.text})"

    def _called(
        self,
        node: ast.AST,
        function: FunctionType,
        given: list[ast.expr],
        named: dict[str, ast.expr],
        of: Expression | None,
    ) -> Expression:
        """Return the call of a function, or of a method of the object `of`."""
        parameters, result = signature_of(function, None if of is None else of.kind.of)
        name = self.program.function(function, None if of is None else of.kind.of)
        if result.of is not None:
            self.program.struct(result.of)
        texts = []
        rest = list(parameters.items())
        if of is not None:
            texts.append(of.text)
            rest = rest[1:]
        defaults = inspect.signature(function).parameters
        for place, (parameter, kind) in enumerate(rest):
            if place < len(given):
                value = self.value(given[place])
            elif parameter in named:
                value = self.value(named[parameter])
            else:
                default = self.literal(defaults[parameter].default)
                if default is None:
                    raise refused(node, self.function, f"argument {parameter} is missing")
                value = default
            if not kind.fits(value.kind):
                why = f"argument {parameter} is a {kind.word}, not a {value.kind.word}"
                raise refused(node, self.function, why)
            texts.append(value.text)
        return Expression(f"{name}({', '.join(texts)})", result)

    def _made(self, node: ast.Call, of: Any) -> Expression:
        """Return a NamedTuple that is made of its fields."""
        self.program.struct(of)
        named, texts = self._keywords(node), []
        for place, (name, kind) in enumerate(fields_of(of).items()):
            if place < len(node.args):
                value = self.value(node.args[place])
            elif name in named:
                value = self.value(named[name])
            else:
                default = self.literal(of._field_defaults.get(name))
                if default is None:
                    raise refused(node, self.function, f"field {name} is missing")
                value = default
            if not kind.fits(value.kind):
                raise refused(node, self.function, f"field {name} is a {kind.word}")
            texts.append(value.text)
        return Expression(f"(struct {struct_name(of)}){{{', '.join(texts)}}}", Kind("tuple", of))
