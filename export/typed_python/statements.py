"""Make C of the statements of a rule's function."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import FunctionType

from edgefold.export.typed_python.arrays import ArrayLoops
from edgefold.export.typed_python.errors import refused
from edgefold.export.typed_python.expressions import Expressions
from edgefold.export.typed_python.kinds import (
    ARRAYS,
    BOOL,
    FLOAT,
    INT,
    NOTHING,
    Kind,
    c_name,
    fields_of,
    kind_of_hint,
)
from edgefold.export.typed_python.values import CALL, Expression, NeededCode, signature_of
from edgefold.runtime import kept_numbers

INDENT = "    "


class FunctionWriter:
    """Writes one function of a rule as a static function of C.

    Args:
        program: Collects the code that the function needs.
        function: The function, or a method of the class `of`.
        name: Its name in C.
        of: The class of a method; else None.

    Attributes:
        head: The declaration, without a semicolon.
        lines: The lines of the definition.
    """

    def __init__(self, program: NeededCode, function: FunctionType, name: str, of: type | None):
        self._program, self._function = program, function
        parameters, self._result = signature_of(function, of)
        self._variables = dict(parameters)
        self._parameters = frozenset(parameters)
        self._late: dict[str, Kind] = {}
        self._n_copies = self._n_loops = 0
        self._expressions = Expressions(program, function, self._variables)
        self._loops = ArrayLoops(self._expressions)
        source = textwrap.dedent(inspect.getsource(function))
        (tree,) = ast.parse(source).body
        assert isinstance(tree, ast.FunctionDef)
        self._tree = tree
        for kind in [*parameters.values(), self._result]:
            if kind.of is not None:
                program.struct(kind.of)
        listed = ", ".join(_parameter(c_name(n), kind) for n, kind in parameters.items())
        self.head = f"static {self._result.c} {name}({listed or 'void'})"
        body = tree.body[1:] if ast.get_docstring(tree) else tree.body
        lines = self._block(body, 1, is_top=True)
        late = [f"{INDENT}{_declared(c_name(n), kind)}" for n, kind in self._late.items()]
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        idle = [f"{INDENT}(void){c_name(n)};" for n in parameters if n not in used]
        self.lines = [f"{self.head} {{", *idle, *late, *lines, "}"]

    def _block(self, body: list[ast.stmt], depth: int, is_top: bool = False) -> list[str]:
        lines: list[str] = []
        for statement in body:
            method = getattr(self, f"_{type(statement).__name__.lower()}", None)
            if method is None:
                raise refused(statement, self._function, "no such statement in the subset")
            self._is_top = is_top
            lines += [f"{INDENT * depth}{line}" for line in method(statement)]
        return lines

    def _inner(self, body: list[ast.stmt]) -> list[str]:
        return self._block(body, 1)

    # Simple statements ---------------------------------------------------------------------------

    def _pass(self, node: ast.Pass) -> list[str]:
        return []

    def _assert(self, node: ast.Assert) -> list[str]:
        return []

    def _break(self, node: ast.Break) -> list[str]:
        return ["break;"]

    def _continue(self, node: ast.Continue) -> list[str]:
        return ["continue;"]

    def _expr(self, node: ast.Expr) -> list[str]:
        if isinstance(node.value, ast.Constant):
            return []
        value = self._expressions.value(node.value)
        return [f"{value.text};" if value.kind == NOTHING else f"(void){value.within(CALL)};"]

    def _return(self, node: ast.Return) -> list[str]:
        if node.value is None:
            return ["return;"]
        value = self._expressions.value(node.value)
        if not self._result.fits(value.kind):
            why = f"the result is a {self._result.word}, this is a {value.kind.word}"
            raise refused(node, self._function, why)
        if self._result == NOTHING:
            return [f"{value.text};", "return;"]
        return [f"return {value.text};"]

    # Assignments ---------------------------------------------------------------------------------

    def _annassign(self, node: ast.AnnAssign) -> list[str]:
        if node.value is None:
            raise refused(node, self._function, "a variable begins with a value")
        hint = eval(ast.unparse(node.annotation), dict(self._function.__globals__))
        return self._assigned(node, node.target, node.value, kind_of_hint(hint))

    def _assign(self, node: ast.Assign) -> list[str]:
        if len(node.targets) > 1:
            last = node.targets[-1]
            lines = self._assigned(node, last, node.value)
            for target in node.targets[:-1]:
                lines += self._assigned(node, target, last)
            return lines
        (target,) = node.targets
        if not isinstance(target, ast.Tuple):
            return self._assigned(node, target, node.value)
        if isinstance(node.value, ast.Tuple):
            return self._several(node, target.elts, node.value.elts)
        return self._unpacked(node, target.elts)

    def _several(
        self, node: ast.Assign, targets: list[ast.expr], values: list[ast.expr]
    ) -> list[str]:
        """Assign values to as many targets; those that a later value reads get a copy first."""
        if len(targets) != len(values):
            raise refused(node, self._function, "as many values as targets are needed")
        lines: list[str] = []
        copies: list[tuple[ast.expr, ast.expr]] = []
        for place, (target, value) in enumerate(zip(targets, values, strict=True)):
            later = [ast.unparse(part) for v in values[place + 1 :] for part in ast.walk(v)
                     if isinstance(part, (ast.Name, ast.Attribute))]  # fmt: skip
            calls = any(isinstance(p, ast.Call) for v in values[place + 1 :] for p in ast.walk(v))
            is_read = ast.unparse(target) in later or (calls and isinstance(target, ast.Attribute))
            if is_read:
                name = f"kept_{self._n_copies}"
                self._n_copies += 1
                copy = ast.copy_location(ast.Name(name, ast.Load()), node)
                lines += self._assigned(node, copy, value)
                copies.append((target, copy))
            else:
                lines += self._assigned(node, target, value)
        for target, kept in copies:
            lines += self._assigned(node, target, kept)
        return lines

    def _unpacked(self, node: ast.Assign, targets: list[ast.expr]) -> list[str]:
        """Assign the fields of a NamedTuple to as many targets; `_` is left out."""
        value = self._expressions.value(node.value)
        if value.kind.word != "tuple" or len(fields_of(value.kind.of)) != len(targets):
            raise refused(node, self._function, "a NamedTuple with as many fields is needed")
        name = f"kept_{self._n_copies}"
        self._n_copies += 1
        lines = [f"const {value.kind.c} {name} = {value.text};"]
        whole = Expression(name, value.kind)
        for target, (field, kind) in zip(targets, fields_of(value.kind.of).items(), strict=True):
            if not (isinstance(target, ast.Name) and target.id == "_"):
                lines += self._stored(node, target, Expression(whole.field(field), kind))
        return lines

    def _assigned(
        self, node: ast.AST, target: ast.expr, value: ast.expr, kind: Kind | None = None
    ) -> list[str]:
        """Assign an expression, which may be a list, to a place."""
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
            return self._loops.assignment(target, value)
        sums, value = self._loops.hoisted(value)
        if sums:
            return [*sums, *self._assigned(node, target, value, kind)]
        if _is_list(value, self._function):
            return self._listed(node, target, value)
        made = self._expressions.value(value)
        if made.kind.word == "list":
            return self._copied(node, target, made)
        if isinstance(value, ast.Call) and made.kind.word == "rule":
            raise refused(node, self._function, "no rule is a result")
        return self._stored(node, target, made, kind)

    def _stored(
        self, node: ast.AST, target: ast.expr, value: Expression, kind: Kind | None = None
    ) -> list[str]:
        """Assign a number, a NamedTuple or a pointer to a rule to a place."""
        if isinstance(target, ast.Name):
            return self._into_variable(node, target.id, value, kind)
        if isinstance(target, ast.Subscript):
            place = self._expressions.value(target)
            of = self._expressions.value(target.value)
            if of.kind.word in ARRAYS:
                at = self._expressions.value(target.slice)
                return [f"{of.text}[{at.text}] = ({of.kind.c}){value.within(CALL)};"]
        else:
            place = self._expressions.value(target)
        if not place.kind.fits(value.kind):
            why = f"a {value.kind.word} is assigned to a {place.kind.word}"
            raise refused(node, self._function, why)
        if place.kind.word == "rule":
            return [f"{place.text[1:]} = *{value.within(CALL)};"]
        return [f"{place.text} = {value.text};"]

    def _into_variable(
        self, node: ast.AST, name: str, value: Expression, kind: Kind | None
    ) -> list[str]:
        known = self._variables.get(name)
        if known is not None:
            if not known.fits(value.kind):
                why = f"{name} is a {known.word}, and a {value.kind.word} is assigned"
                raise refused(node, self._function, why)
            return [f"{c_name(name)} = {value.text};"]
        kind = kind or value.kind
        if value.kind == NOTHING:
            raise refused(node, self._function, "the function has no result")
        self._variables[name] = kind
        if self._is_top:
            return [f"{_typed(kind)}{c_name(name)} = {value.text};"]
        self._late[name] = kind
        return [f"{c_name(name)} = {value.text};"]

    def _augassign(self, node: ast.AugAssign) -> list[str]:
        place = self._expressions.value(node.target)
        right = self._expressions.number(node.value)
        result = self._expressions.operation(node, node.op, place, right)
        if not place.kind.fits(result.kind) and place.kind != BOOL:
            why = f"a {result.kind.word} is assigned to a {place.kind.word}"
            raise refused(node, self._function, why)
        simple = {ast.Add: "+=", ast.Sub: "-=", ast.Mult: "*="}
        if type(node.op) in simple and place.kind in (FLOAT, INT):
            return [f"{place.text} {simple[type(node.op)]} {right.text};"]
        if isinstance(node.op, ast.BitOr) and place.kind == BOOL:
            return [f"{place.text} |= {right.within(CALL)};"]
        return [f"{place.text} = {result.text};"]

    # Lists ---------------------------------------------------------------------------------------

    def _list_place(self, node: ast.AST, target: ast.expr, kind: Kind) -> tuple[str, list[str]]:
        """Return the name of a list to assign to, and lines that declare it if it is new."""
        if isinstance(target, ast.Name) and target.id not in self._variables:
            if not kind.size:
                raise refused(node, self._function, "the list's length is not known")
            self._variables[target.id] = kind
            name = c_name(target.id)
            if self._is_top:
                return name, [f"{kind.c} {name}[{kind.size}];"]
            self._late[target.id] = kind
            return name, []
        place = self._expressions.value(target)
        if place.kind.word != "list" or (
            kind.size and place.kind.size and place.kind.size != kind.size
        ):
            raise refused(node, self._function, "the two lists have different lengths")
        return place.text, []

    def _copied(self, node: ast.AST, target: ast.expr, value: Expression) -> list[str]:
        """Copy a list."""
        place, lines = self._list_place(node, target, value.kind)
        if place == value.text:
            return lines
        size = value.kind.size or self._expressions.value(target).kind.size
        return [*lines, f"memcpy({place}, {value.text}, {size} * sizeof *{place});"]

    def _listed(self, node: ast.AST, target: ast.expr, value: ast.expr) -> list[str]:
        """Assign a list that is written as a display, a comprehension or by a function of lists."""
        if isinstance(value, ast.List):
            if len(value.elts) == 1 and isinstance(value.elts[0], ast.Starred):
                return self._copied(node, target, self._expressions.value(value.elts[0].value))
            return self._display(node, target, [self._expressions.number(e) for e in value.elts])
        if isinstance(value, ast.ListComp):
            return self._comprehension(node, target, value)
        assert isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
        function = self._function.__globals__[value.func.id]
        if function is kept_numbers.filled:
            return self._filled(node, target, value)
        numbers = self._expressions.value(value.args[0])
        lines = self._copied(node, target, numbers)
        place = self._expressions.value(target).text
        rest = [self._expressions.value(argument) for argument in value.args[1:]]
        size = numbers.kind.size
        if function is kept_numbers.replaced:
            return [*lines, f"{place}[{rest[0].text}] = {rest[1].text};"]
        if function is kept_numbers.shifted:
            return [
                *lines,
                f"memmove({place}, {place} + 1, {size - 1} * sizeof *{place});",
                f"{place}[{size - 1}] = {rest[0].text};",
            ]
        return [*lines, f"edgefold_sort({place}, {rest[0].text});"]

    def _display(self, node: ast.AST, target: ast.expr, items: list[Expression]) -> list[str]:
        item = FLOAT if any(one.kind == FLOAT for one in items) else INT
        kind = Kind("list", item=item, size=len(items))
        copy = f"listed_{self._n_copies}"
        self._n_copies += 1
        texts = ", ".join(one.text for one in items)
        place, lines = self._list_place(node, target, kind)
        return [
            *lines,
            f"const {kind.c} {copy}[{kind.size}] = {{{texts}}};",
            f"memcpy({place}, {copy}, sizeof {copy});",
        ]

    def _filled(self, node: ast.AST, target: ast.expr, value: ast.Call) -> list[str]:
        number = self._expressions.number(value.args[0])
        size = self._expressions.value(value.args[1])
        n = int(eval(ast.unparse(value.args[1]), dict(self._function.__globals__)))
        place, lines = self._list_place(node, target, Kind("list", item=number.kind, size=n))
        at = self._new_loop()
        return [
            *lines,
            f"for (int {at} = 0; {at} < {size.text}; {at}++)",
            f"{INDENT}{place}[{at}] = {number.text};",
        ]

    def _new_loop(self) -> str:
        self._n_loops += 1
        return f"at_{self._n_loops}"

    def _comprehension(self, node: ast.AST, target: ast.expr, value: ast.ListComp) -> list[str]:
        (loop,) = value.generators
        if loop.ifs or not isinstance(loop.target, ast.Name):
            raise refused(node, self._function, "a list of all items is needed")
        at, head = self._new_loop(), []
        if isinstance(loop.iter, ast.Call):  # over range(N)
            n = int(eval(ast.unparse(loop.iter.args[0]), dict(self._function.__globals__)))
            self._variables[loop.target.id] = INT
            head = [f"const int64_t {c_name(loop.target.id)} = {at};"]
        else:
            numbers = self._expressions.value(loop.iter)
            n = numbers.kind.size
            self._variables[loop.target.id] = numbers.kind.item
            head = [f"const {numbers.kind.c} {c_name(loop.target.id)} = {numbers.text}[{at}];"]
        if not any(isinstance(n, ast.Name) and n.id == loop.target.id for n in ast.walk(value.elt)):
            head = []
        item = self._expressions.number(value.elt)
        del self._variables[loop.target.id]
        place, lines = self._list_place(node, target, Kind("list", item=item.kind, size=n))
        return [
            *lines,
            f"for (int {at} = 0; {at} < {n}; {at}++) {{",
            *(f"{INDENT}{line}" for line in head),
            f"{INDENT}{place}[{at}] = {item.text};",
            "}",
        ]

    # Branches and loops --------------------------------------------------------------------------

    def _if(self, node: ast.If) -> list[str]:
        test = self._expressions.condition(node.test)
        lines = [f"if ({test.text}) {{", *self._inner(node.body)]
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            first, *rest = self._if(node.orelse[0])
            return [*lines, f"}} else {first}", *rest]
        if node.orelse:
            lines += ["} else {", *self._inner(node.orelse)]
        return [*lines, "}"]

    def _while(self, node: ast.While) -> list[str]:
        if node.orelse:
            raise refused(node, self._function, "no else behind a loop in the subset")
        test = self._expressions.condition(node.test)
        return [f"while ({test.text}) {{", *self._inner(node.body), "}"]

    def _for(self, node: ast.For) -> list[str]:
        if node.orelse:
            raise refused(node, self._function, "no else behind a loop in the subset")
        call = node.iter if isinstance(node.iter, ast.Call) else None
        name = call.func.id if call is not None and isinstance(call.func, ast.Name) else ""
        if call is not None and name == "range":
            return self._counted(node, call)
        at = self._new_loop()
        if call is not None and name == "enumerate":
            assert isinstance(node.target, ast.Tuple)
            index, *targets = node.target.elts
            return self._over(node, at, targets, call.args[:1], index)
        if call is not None and name == "zip":
            assert isinstance(node.target, ast.Tuple)
            return self._over(node, at, node.target.elts, call.args)
        return self._over(node, at, [node.target], [node.iter])

    def _counted(self, node: ast.For, call: ast.Call) -> list[str]:
        """Loop over a range of integers."""
        if not isinstance(node.target, ast.Name):
            raise refused(node, self._function, "one variable counts")
        bounds = [self._expressions.value(argument) for argument in call.args]
        if any(bound.kind not in (INT, BOOL) for bound in bounds):
            raise refused(node, self._function, "a range has ints")
        first, last = ("0", bounds[0]) if len(bounds) == 1 else (bounds[0].text, bounds[1])
        before = []
        if not isinstance(call.args[min(1, len(bounds) - 1)], ast.Constant):
            # Python computes the end once, before the loop.
            end = f"end_{self._n_loops}"
            self._n_loops += 1
            before = [f"const int64_t {end} = {last.text};"]
            last = Expression(end, INT)
        step = 1 if len(bounds) < 3 else int(ast.literal_eval(call.args[2]))
        name = c_name(node.target.id)
        compare, move = ("<", f"{name}++") if step == 1 else ("<", f"{name} += {step}")
        if step < 0:
            compare, move = ">", f"{name} -= {-step}"
        head = f"for (int64_t {name} = {first}; {name} {compare} {last.within(11)}; {move}) {{"
        return [*before, *self._loop(head, [], {node.target.id: INT}, node)]

    def _over(
        self,
        node: ast.For,
        at: str,
        targets: list[ast.expr],
        lists: list[ast.expr],
        index: ast.expr | None = None,
    ) -> list[str]:
        """Loop over the items of one or several lists of fixed length."""
        kinds: dict[str, Kind] = {}
        lines = []
        n = 0
        for target, of in zip(targets, lists, strict=True):
            numbers = self._expressions.value(of)
            if numbers.kind.word != "list" or not numbers.kind.size:
                raise refused(node, self._function, "a list of known length is needed")
            if not isinstance(target, ast.Name):
                raise refused(node, self._function, "a variable is needed")
            if isinstance(of, ast.Attribute) and _assigns(node.body, of.attr):
                # Python goes on over the list that was there, and C would see the new one.
                raise refused(node, self._function, "the loop's list is replaced within it")
            n = numbers.kind.size
            kinds[target.id] = numbers.kind.item
            if target.id != "_":
                item = f"{numbers.text}[{at}]"
                lines.append(f"const {numbers.kind.c} {c_name(target.id)} = {item};")
        if isinstance(index, ast.Name):
            kinds[index.id] = INT
            lines.insert(0, f"const int64_t {c_name(index.id)} = {at};")
        return self._loop(f"for (int {at} = 0; {at} < {n}; {at}++) {{", lines, kinds, node)

    def _loop(
        self, head: str, lines: list[str], kinds: dict[str, Kind], node: ast.For
    ) -> list[str]:
        hidden = {name: self._variables.pop(name, None) for name in kinds}
        self._variables.update(kinds)
        body = self._inner(node.body)
        for name, kind in hidden.items():
            del self._variables[name]
            if kind is not None:
                self._variables[name] = kind
        return [head, *(f"{INDENT}{line}" for line in lines), *body, "}"]


def _is_list(node: ast.expr, function: FunctionType) -> bool:
    """Return whether an expression makes a list."""
    if isinstance(node, (ast.List, ast.ListComp)):
        return True
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return False
    makers = (kept_numbers.filled, kept_numbers.replaced, kept_numbers.shifted)
    return function.__globals__.get(node.func.id) in (*makers, kept_numbers.ordered)


def _assigns(body: list[ast.stmt], name: str) -> bool:
    """Return whether statements assign to a field of this name, not counting what they call."""
    return any(
        isinstance(part, ast.Attribute) and part.attr == name and isinstance(part.ctx, ast.Store)
        for statement in body
        for part in ast.walk(statement)
    )


def _typed(kind: Kind) -> str:
    """Return a type as it stands in front of a variable's name."""
    if kind.word in ("rule", *ARRAYS):
        return f"{kind.c} *"
    return f"{kind.c} "


def _parameter(name: str, kind: Kind) -> str:
    if kind.word == "list":
        return f"const {kind.c} *{name}"
    return f"{_typed(kind)}{name}"


def _declared(name: str, kind: Kind) -> str:
    """Return the declaration of a variable that a block within the function sets first."""
    if kind.word == "list":
        return f"{kind.c} {name}[{kind.size}];"
    if kind.word == "tuple":
        return f"{kind.c} {name} = {{0}};"
    return f"{_typed(kind)}{name} = 0;"
