"""Makes operands.zip: cases whose shapes, axes, pads, scales and the like are inputs of the graph, with several values of them.

    python make_operands.py OUT.zip        needs onnx 1.23.2, onnxruntime 1.32.0, numpy

Each case is a folder as in ONNX's own suites: one node and a data set for each value, with the results of ONNX Runtime on the CPU. All
inputs are free, and sizes of tensors are symbols, so that one compiled graph has to serve all data sets.
"""

import sys
import zipfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

rng = np.random.default_rng(23)
archive = zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED)
LOWEST, HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def put(name, data):
    # A fixed time, so that the same cases give the same file.
    archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def ints(*v):
    return np.array(v, np.int64)


def scalar(i):
    return np.array(i, np.int64)


def floats(*v):
    return np.array(v, np.float32)


def case(name, op, opset, sets, outputs=1, free=(), known=(), last=False, atol=1e-5, rtol=1e-4, **attributes):
    """One node; `sets` has the inputs of each data set, `None` for those left out. Inputs `free` are vectors of free length; those `known`
    are initialisers, alike in all sets. Of the other inputs, those of rank 2 or more have free sizes, all but the last one if `last` says so."""
    first = sets[0]
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(first)]
    kind = lambda x: helper.np_dtype_to_tensor_dtype(x.dtype)

    def declared(i, x):
        dims = [f"x{i}_{a}" for a in range(x.ndim)] if x.ndim > 1 or i in free else list(x.shape)
        if last and x.ndim > 1:
            dims[-1] = x.shape[-1]
        return helper.make_tensor_value_info(f"x{i}", kind(x), dims)

    given = [i for i, x in enumerate(first) if x is not None and i not in known]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **attributes)
    initialisers = [numpy_helper.from_array(first[i], f"x{i}") for i in known]
    inputs = [declared(i, first[i]) for i in given]

    def model(results):
        graph = helper.make_graph([node], name, inputs, results, initialisers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    untyped = model([onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)])
    session = ort.InferenceSession(untyped.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = []
    for k, values in enumerate(sets):
        out = session.run(None, {f"x{i}": values[i] for i in given})
        results.append(out)
        for what, tensors in (("input", [values[i] for i in given]), ("output", out)):
            for i, x in enumerate(tensors):
                put(f"{name}/test_data_set_{k}/{what}_{i}.pb", numpy_helper.from_array(np.asarray(x)).SerializeToString())
    typed = [
        helper.make_tensor_value_info(f"y{i}", kind(v), [f"y{i}_{a}" for a in range(v.ndim)])
        for i, v in enumerate(results[0])
    ]
    put(f"{name}/model.onnx", model(typed).SerializeToString())
    put(f"{name}/tolerance", f"{rtol} {atol}\n")


REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]


def reductions():
    for kind in REDUCTIONS:
        x = lambda *s: np.abs(normal(*s)) + np.float32(0.1) if kind == "LogSum" else normal(*s)
        one = [[x(2, 3, 4), ints(a)] for a in (0, 1, 2, -1)] + [[x(5, 1, 2), ints(-3)], [x(1, 1, 1), ints(1)]]
        for keep in (0, 1):
            case(f"reduce_{kind.lower()}_{keep}", f"Reduce{kind}", 18, one, keepdims=keep)
    two = [[normal(2, 3, 4), ints(0, 2)], [normal(2, 3, 4), ints(2, 1)], [normal(3, 5, 1), ints(-1, -3)]]
    for keep in (0, 1):
        case(f"reduce_two_{keep}", "ReduceSum", 13, two, keepdims=keep)
    case("reduce_all", "ReduceSum", 13, [[normal(2, 3), ints(0, 1)], [normal(4, 1), ints(-1, -2)]], keepdims=0)
    any_number = [[normal(2, 3, 4), ints(*a)] for a in ((), (1,), (2, 0), (0, 1, 2))]
    case("reduce_any_number", "ReduceSum", 13, any_number, free=[1])
    case("reduce_any_number_or_none", "ReduceSumSquare", 18, any_number, free=[1], noop_with_empty_axes=1)
    empty = [[normal(2, 0, 3), ints(1)], [normal(2, 0, 3), ints(0)], [normal(2, 2, 3), ints(2)]]
    case("reduce_of_none", "ReduceSum", 13, empty, keepdims=0)
    whole = lambda *s: rng.integers(-100, 100, s, dtype=np.int64)
    case("reduce_i64", "ReduceMax", 18, [[whole(3, 4), ints(0)], [whole(2, 5), ints(1)]], keepdims=0)
    case("reduce_long", "ReduceMean", 18, [[normal(67, 129), ints(0)], [normal(129, 67), ints(1)]], keepdims=0)


def along_an_axis():
    for exclusive in (0, 1):
        for reverse in (0, 1):
            sets = [[normal(2, 3, 4), scalar(a)] for a in (0, 1, 2, -2)] + [[normal(7, 1, 2), scalar(0)]]
            case(f"cumsum_{exclusive}{reverse}", "CumSum", 14, sets, exclusive=exclusive, reverse=reverse)
    case("cumsum_i32_axis", "CumSum", 14, [[normal(3, 2), np.array(a, np.int32)] for a in (0, 1)])
    real = lambda *s: normal(*s)
    for name, more in (("", {}), ("_onesided", {"onesided": 1}), ("_inverse", {"inverse": 1})):
        last = 2 if name == "_inverse" else 1
        sets = [[real(2, 5, 4, last), None, scalar(a)] for a in (0, 1, 2, -2, -3)]
        case(f"dft{name}", "DFT", 20, sets, last=True, atol=1e-4, **more)
    sets = [[real(3, 6, 1), scalar(n), scalar(a)] for n, a in ((4, 0), (8, 1), (6, -2))]
    case("dft_length", "DFT", 20, sets, last=True, atol=1e-4)


def shapes():
    case("squeeze", "Squeeze", 13, [[normal(1, 3, 1, 4), ints(a)] for a in (0, 2, -4)])
    case("squeeze_two", "Squeeze", 13, [[normal(1, 3, 1), ints(0, 2)], [normal(1, 1, 5), ints(1, -3)]])
    case("unsqueeze", "Unsqueeze", 13, [[normal(2, 3), ints(a)] for a in (0, 1, 2, -1, -3)])
    case("unsqueeze_two", "Unsqueeze", 13, [[normal(2, 3), ints(*a)] for a in ((0, 3), (2, 1), (-1, 0))])
    case("reshape", "Reshape", 14, [[normal(2, 3, 4), ints(*s)] for s in ((4, 6), (-1, 2), (0, -1), (24, 1))])
    case("expand", "Expand", 13, [[normal(3, 1), ints(*s)] for s in ((2, 3, 4), (1, 1, 1), (2, 1, 5))])
    case("tile", "Tile", 13, [[normal(2, 3), ints(*r)] for r in ((1, 2), (3, 1), (0, 2))])
    case("constant_of_shape", "ConstantOfShape", 9, [[ints(*s)] for s in ((2, 3), (0, 4), (1, 1))])
    case("split", "Split", 13, [[normal(6, 2), ints(*s)] for s in ((1, 2, 3), (2, 2, 2), (0, 6, 0))], outputs=3)
    case("range", "Range", 11, [[scalar(a), scalar(b), scalar(c)] for a, b, c in ((0, 5, 1), (10, 3, -3), (2, 2, 1))])
    f = lambda v: np.array(v, np.float32)
    case("range_f32", "Range", 11, [[f(a), f(b), f(c)] for a, b, c in ((0, 1, 0.25), (1, -1, -0.5), (0, 0.9, 0.5))])
    hot = [[ints(1, -1, 2), scalar(d), f([0, 1])] for d in (3, 5, 4)]
    case("one_hot", "OneHot", 11, hot)
    case("top_k", "TopK", 11, [[normal(3, 5), ints(k)] for k in (1, 5, 3, 0)], outputs=2)
    case("trilu", "Trilu", 14, [[normal(4, 5), scalar(k)] for k in (0, 2, -3, 9)])
    crop = [[normal(5, 6), ints(*s)] for s in ((3, 8), (7, 2), (5, 6))]
    case("center_crop_pad", "CenterCropPad", 18, crop)
    image = [[normal(2, 12, 12), ints(5, 4), ints(2, 2)], [normal(1, 6, 16), ints(5, 6), ints(2, 3)]]
    case("col2im", "Col2Im", 18, image)
    padded = [[normal(1, 8, 9), ints(4, 4), ints(2, 2)], [normal(2, 9, 4), ints(4, 3), ints(3, 3)]]
    case("col2im_padded", "Col2Im", 18, padded, pads=[1, 1, 1, 1], strides=[2, 2], dilations=[1, 1])


def slices():
    x = normal(4, 5, 6)
    free = [
        [x, ints(1), ints(3), ints(0), ints(1)],
        [x, ints(-1), ints(LOWEST), ints(1), ints(-1)],
        [x, ints(0), ints(HIGHEST), ints(-1), ints(2)],
        [x, ints(4), ints(1), ints(2), ints(1)],
        [x, ints(-100), ints(LOWEST), ints(0), ints(-1)],
        [x, ints(5), ints(0), ints(2), ints(-2)],
        [normal(2, 0, 3), ints(-1), ints(LOWEST), ints(1), ints(-1)],
        [x, ints(1), ints(HIGHEST), ints(0), ints(HIGHEST)],
    ]
    case("slice", "Slice", 13, free)
    case("slice_axes", "Slice", 13, [s[:4] for s in free if s[4][0] == 1])
    case("slice_steps", "Slice", 13, [[x, ints(*a), ints(*b), None, ints(*c)] for a, b, c in
         (((0, 1), (4, 5), (1, 2)), ((3, -1), (0, LOWEST), (-2, -1)), ((1, 2), (2, 2), (3, 1)))])
    case("slice_two", "Slice", 13, [[x, ints(1, 0), ints(3, HIGHEST), ints(*a), ints(1, 2)] for a in ((0, 2), (2, 1), (-3, -1))])
    case("slice_bounds", "Slice", 13, [[x, ints(a), ints(b), ints(1), ints(-1)] for a, b in
         ((-1, LOWEST), (-100, LOWEST), (2, 0), (0, 4), (100, 1))], known=[3, 4])
    case("slice_any_number", "Slice", 13, [[x, ints(1), ints(3), ints(0), ints(1)],
         [x, ints(1, 2), ints(3, 9), ints(0, 2), ints(1, 3)]], free=[1, 2, 3, 4])


def pads():
    x = normal(3, 4)
    given = [(0, 1, 2, 0), (1, 1, 1, 1), (0, 0, 0, 0), (2, 0, 0, 3)]
    for mode in ("constant", "edge", "reflect", "wrap"):
        case(f"pad_{mode}", "Pad", 19, [[x, ints(*p)] for p in given], mode=mode)
    case("pad_cropped", "Pad", 19, [[x, ints(*p), np.array(1.5, np.float32)] for p in ((-1, 0, 2, 1), (0, -2, -1, 3), (1, 1, -1, -1))])
    case("pad_axes", "Pad", 19, [[x, ints(*p), None, ints(*a)] for p, a in
         (((1, 2), (0,)), ((0, 1), (1,)), ((-1, 1), (-1,)), ((2, 0), (-2,)))])
    case("pad_axes_two", "Pad", 19, [[x, ints(1, 2, 0, 1), np.array(7, np.float32), ints(*a)] for a in ((0, 1), (1, 0), (-1, -2))])
    case("pad_axes_free_only", "Pad", 19, [[x, ints(1, 2), None, ints(a)] for a in (0, 1)], known=[1])


def resizes():
    x = normal(1, 2, 5, 6)
    up = [floats(1, 1, 2, 3), floats(1, 1, 0.6, 0.5), floats(1, 1, 1, 1), floats(1, 1, 1.37, 0.81)]
    coordinates = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
    for mode in ("linear", "nearest", "cubic"):
        for c in coordinates:
            if (mode, c) == ("nearest", "align_corners"):
                continue  # Places at a half are rounded as arithmetic has it.
            # Where a size was rounded, ONNX Runtime aligns corners by the rounded one, ONNX's own cases by what it was.
            scales = up[:3] if c == "align_corners" else up
            case(f"resize_{mode}_{c}", "Resize", 19, [[x, None, s] for s in scales], mode=mode, coordinate_transformation_mode=c, atol=1e-4)
    for how in ("floor", "ceil", "round_prefer_ceil"):
        case(f"resize_{how}", "Resize", 19, [[x, None, s] for s in up[:3]], mode="nearest", nearest_mode=how,
             coordinate_transformation_mode="asymmetric")
    case("resize_exclude", "Resize", 19, [[x, None, s] for s in up], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5, atol=1e-4)
    for mode in ("linear", "cubic"):
        case(f"resize_antialias_{mode}", "Resize", 19, [[x, None, s] for s in up], mode=mode, antialias=1, atol=1e-4)
    case("resize_axes", "Resize", 19, [[x, None, s] for s in (floats(2, 0.5), floats(1.5, 3))], mode="linear", axes=[3, 2], atol=1e-4)
    for policy in ("not_larger", "not_smaller"):
        case(f"resize_{policy}", "Resize", 19, [[x, None, None, ints(*s)] for s in ((10, 8), (3, 3), (7, 20))], mode="linear",
             axes=[2, 3], keep_aspect_ratio_policy=policy, atol=1e-4)
    case("resize_sizes", "Resize", 19, [[x, None, None, ints(1, 2, *s)] for s in ((10, 8), (3, 3), (5, 6))], mode="cubic", atol=1e-4)
    rois = [floats(0, 0, 0.2, 0.1, 1, 1, 0.8, 1.2), floats(0, 0, 0, 0, 1, 1, 1, 1), floats(0, 0, 0.6, 0.3, 1, 1, 0.1, 0.9)]
    case("resize_crop", "Resize", 19, [[x, r, None, ints(1, 2, 3, 4)] for r in rois], mode="linear",
         coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=10.0, atol=1e-4)
    # Where a scale is 1 ONNX Runtime does not look at the region.
    scales = [up[0], up[1], floats(1, 1, 1.2, 1.5)]
    case("resize_crop_scales", "Resize", 19, [[x, r, s] for r, s in zip(rois, scales)], mode="linear",
         coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=-2.0, atol=1e-4)
    case("resize_10", "Resize", 10, [[x, s] for s in up[:3]], mode="nearest")
    case("resize_10_known", "Resize", 10, [[x, up[1]], [normal(1, 2, 7, 4), up[1]]], mode="nearest", known=[1])
    case("resize_10_both", "Resize", 10, [[x, s] for s in (floats(1, 1, 0.6, 2), floats(1, 1, 3, 0.5))], mode="nearest")
    case("resize_10_both_known", "Resize", 10, [[x, floats(1, 1, 0.6, 2)]], mode="nearest", known=[1])
    case("resize_10_linear", "Resize", 10, [[x, s] for s in up[:3]], mode="linear", atol=1e-4)
    case("upsample", "Upsample", 9, [[x, s] for s in (up[0], up[2], floats(1, 1, 3, 1.5))], mode="linear", atol=1e-4)


reductions()
along_an_axis()
shapes()
slices()
pads()
resizes()
archive.close()
