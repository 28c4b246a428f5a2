"""Turn a traced graph into a graph of a bundle: rewrite it, check it, and name its values."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from edgefold.export.graphs.operators import having
from edgefold.export.graphs.rewriting import EditableGraph, attribute, constant, constant_name
from edgefold.export.graphs.static_graph import inferred
from edgefold.export.graphs.step_graphs import StepGraph
from edgefold.export.lowering.passes import PASSES, absorb
from edgefold.export.lowering.trace import StepFunction, reads

AXES_18 = having("axes_18")


def simplify(proto: onnx.ModelProto, step: StepFunction | StepGraph) -> onnx.ModelProto:
    """Return a graph after clean-up and checks; the same graph always gives the same bytes.

    The graph may then differ from what its step declares: inputs that nobody reads are removed, and
    points, targets and predictions may get another shape of the same bytes.
    """
    model = ir.from_proto(inferred(proto))
    g = EditableGraph(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    for value in list(g.ir.initializers.values()):
        array = constant(value)
        if array is not None and value.name != constant_name(array):
            ir.convenience.replace_all_uses_with(value, g.constant(array))
            del g.ir.initializers[str(value.name)]
    roles = {f"{step.name}.{tensor.name}": tensor.role for tensor in (*step.inputs, *step.outputs)}
    changed = True
    while changed:
        changed = any([one(g) for one in PASSES] + [absorb(g, roles)])
        common.RemoveUnusedNodesPass()(model)
        common.CommonSubexpressionEliminationPass()(model)
    for value in list(g.ir.inputs):
        if not value.uses():
            g.ir.inputs.remove(value)
    _settle_results(g)
    common.RemoveUnusedNodesPass()(model)
    common.ClearMetadataAndDocStringPass()(model)
    _name(g, step)
    simple = g.to_proto()
    older = onnx.ModelProto()
    older.CopyFrom(simple)
    try:
        return _checked(_as_opset_17(older))
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
        return _checked(simple)


def _settle_results(g: EditableGraph) -> None:
    """Remove the Identity before each output whose value another node makes.

    An output that is constant and repeats one number is made by an Expand of that number, so that
    no file holds the whole array.
    """
    for index, result in enumerate(g.ir.outputs):
        end = result.producer()
        assert end is not None and end.inputs[0] is not None
        source, array = end.inputs[0], constant(end.inputs[0])
        if array is not None and array.size > 1 and np.all(array == array.flat[0]):
            shape = np.array(array.shape, np.int64)
            operands = [g.constant(array.reshape(-1)[0]), g.constant(shape)]
            source = g.add(end, "Expand", operands, [source], [array.shape])[0]
        if source.producer() is not None and not source.is_graph_output():
            name, result.name = result.name, None
            source.name, g.ir.outputs[index] = name, source
            ir.convenience.replace_all_uses_with(result, source)
            g.ir.remove(end, safe=True)


def _name(g: EditableGraph, step: StepFunction | StepGraph) -> None:
    """Name inner values and nodes by operator and position, so that equal graphs get equal names.

    Inputs and outputs lose the step's name in front. A Gemm loses attributes with default values.
    """
    ends = [*g.ir.inputs, *g.ir.outputs]
    for value in ends:
        value.name = str(value.name).removeprefix(f"{step.name}.")
    names = {value.name for value in ends}
    for index, node in enumerate(ir.traversal.RecursiveGraphIterator(g.ir)):
        node.version = None
        for name, default in (("alpha", 1), ("beta", 1), ("transA", 0), ("transB", 0)):
            if node.op_type == "Gemm" and attribute(node, name, None) == default:
                del node.attributes[name]
        for place, value in enumerate(node.outputs):
            if value not in ends:
                name = f"{node.op_type.lower()}_{index}" + (f"_{place}" if place else "")
                while name in names:
                    name += "_"
                value.name = name
        node.name = node.outputs[0].name
    g.ir.name = step.name


def _checked(model: onnx.ModelProto) -> onnx.ModelProto:
    onnx.checker.check_model(model, full_check=True)
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def _as_opset_17(model: onnx.ModelProto) -> onnx.ModelProto:
    """Change a model to version 17 of ONNX's operators, in place, and return it.

    The checker refuses the result if version 17 lacks an operator. In version 18 some operators
    became functions of others, Relu among them. Where onnxruntime has no kernel for a type, it runs
    the parts of the function: this costs 9 % of an attentive query in float16.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        settings = {setting.name: setting for setting in node.attribute}
        if node.op_type in AXES_18 and len(node.input) == 2 and node.input[1] in constants:
            axes = onnx.numpy_helper.to_array(constants[node.input.pop()]).tolist()
            node.attribute.append(onnx.helper.make_attribute("axes", axes))
        if node.op_type == "Split" and "num_outputs" in settings:
            node.attribute.remove(settings["num_outputs"])
    used = {name for node in model.graph.node for name in reads(node)}
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(tensors)
    model.opset_import[0].version = 17
    return model
