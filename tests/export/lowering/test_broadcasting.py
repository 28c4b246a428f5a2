from __future__ import annotations

from tests.export.lowering.test_passes import simplified


def test_axes_in_front_and_repeats_go_where_operators_broadcast() -> None:
    _, kinds = simplified("""g (float[1,1] scale, float[1,4,9] x) => (float[1,4,9] out) {
        axis = Constant <value_ints = [0]> ()
        lifted = Unsqueeze (scale, axis)
        a = Mul (x, lifted)
        shape = Constant <value_ints = [1, 4, 9]> ()
        wide = Expand (lifted, shape)
        out = Max (a, wide)
    }""")
    assert kinds == {"Mul": 1, "Max": 1}


def test_an_axis_that_a_result_needs_stays() -> None:
    _, kinds = simplified("""g (float[4] a, float[1,1] b) => (float[1,1,4] out) {
        axes = Constant <value_ints = [0, 1]> ()
        lifted = Unsqueeze (a, axes)
        out = Add (lifted, b)
    }""")
    assert kinds == {"Reshape": 1, "Add": 1}


def test_an_axis_within_a_shape_stays() -> None:
    _, kinds = simplified("""g (float[3] a, float[2,3] b) => (float[3,2,3] out) {
        axes = Constant <value_ints = [1, 2]> ()
        lifted = Unsqueeze (a, axes)
        out = Add (lifted, b)
    }""")
    assert kinds == {"Reshape": 1, "Add": 1}


def test_a_reduction_keeps_its_axis_as_the_reshape_behind_it_wants() -> None:
    made, kinds = simplified("""g (float[2,3,4] a) => (float[2,3,1] out, float[2,4] most) {
        axis = Constant <value_ints = [2]> ()
        total = ReduceSum <keepdims = 0> (a, axis)
        lifted = Unsqueeze (total, axis)
        out = Neg (lifted)
        middle = Constant <value_ints = [1]> ()
        largest = ReduceMax <keepdims = 1> (a, middle)
        flat = Squeeze (largest, middle)
        most = Neg (flat)
    }""")
    assert kinds == {"ReduceSum": 1, "ReduceMax": 1, "Neg": 2}
    assert made.graph.output[0].type.tensor_type.shape.dim[2].dim_value == 1


def test_one_place_of_an_axis_that_is_removed_is_a_gather() -> None:
    _, kinds = simplified("""g (float[2,3,4] a) => (float[2,4] out, float[2,4] last) {
        start = Constant <value_ints = [1]> ()
        end = Constant <value_ints = [2]> ()
        part = Slice (a, start, end, start)
        flat = Squeeze (part, start)
        out = Neg (flat)
        tail = Constant <value_ints = [-1]> ()
        behind = Constant <value_ints = [9]> ()
        rest = Slice (a, tail, behind, start)
        ends = Squeeze (rest, start)
        last = Neg (ends)
    }""")
    assert kinds == {"Gather": 2, "Neg": 2}


def test_the_same_places_along_all_other_axes_are_a_gather() -> None:
    _, kinds = simplified("""g (float[1,3,4] a, float[1,5] b) => (float[1,1,4] out) {
        best = ArgMax <axis = 1> (b)
        two = Constant <value_ints = [3]> ()
        place = Mod (best, two)
        axis = Constant <value_ints = [2]> ()
        lifted = Unsqueeze (place, axis)
        shape = Constant <value_ints = [1, 1, 4]> ()
        places = Expand (lifted, shape)
        out = GatherElements <axis = 1> (a, places)
    }""")
    assert kinds["Gather"] == 1 and not kinds["GatherElements"] and not kinds["Expand"]


def test_places_of_each_stream_are_no_gather() -> None:
    _, kinds = simplified("""g (float[2,3,4] a, float[2,3] b) => (float[2,1,4] out) {
        best = ArgMax <axis = 1> (b)
        axis = Constant <value_ints = [2]> ()
        lifted = Unsqueeze (best, axis)
        shape = Constant <value_ints = [2, 1, 4]> ()
        places = Expand (lifted, shape)
        out = GatherElements <axis = 1> (a, places)
    }""")
    assert kinds["GatherElements"] == 1


def test_a_part_of_a_concatenation_is_what_was_put_there() -> None:
    _, kinds = simplified("""g (float[2,3] a, float[2,4] b) => (float[2,7] both, float[2,4] out,
            float[2,3] first, float[2,5] more, float[2,2] over) {
        both = Concat <axis = 1> (a, b)
        start = Constant <value_ints = [-4]> ()
        end = Constant <value_ints = [99]> ()
        axis = Constant <value_ints = [1]> ()
        part = Slice (both, start, end, axis)
        out = Neg (part)
        sizes = Constant <value_ints = [3, 4]> ()
        one, other = Split <axis = 1> (both, sizes)
        first = Neg (one)
        otherwise = Constant <value_ints = [5, 2]> ()
        most, rest = Split <axis = 1> (both, otherwise)
        more = Neg (most)
        over = Neg (rest)
    }""")
    assert kinds == {"Concat": 1, "Split": 1, "Neg": 4}


def test_a_truth_value_is_compared_with_nothing() -> None:
    _, kinds = simplified("""g (float[3] a, float[3] b) => (float[3] out, float[3] number) {
        flag = Less (a, b)
        number = Cast <to = 1> (flag)
        zero = Constant <value_float = 0.0> ()
        again = Greater (number, zero)
        out = Where (again, a, b)
    }""")
    assert kinds == {"Less": 1, "Cast": 1, "Where": 1}
