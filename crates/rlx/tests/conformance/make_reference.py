"""Makes reference.zip: cases that ONNX's own suite lacks, with the results of ONNX's reference evaluator 1.23.2 (or of NumPy).

    python make_reference.py OUT.zip        needs onnx 1.23.2, numpy

Each case is a folder as in ONNX's own suites: one node, one data set, its tolerance.
"""

import sys
import zipfile

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

rng = np.random.default_rng(11)
archive = zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED)


def put(name, data):
    # A fixed time, so that the same cases give the same file.
    archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def case(name, op, opset, inputs, outputs=1, want=None, rtol=1e-4, atol=1e-5, domain="", **attributes):
    """One node; inputs are arrays or None for those left out. Without `want` the reference evaluator says what comes out."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    while names and not names[-1]:
        names.pop()
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    kind = lambda x: helper.np_dtype_to_tensor_dtype(x.dtype)
    given = [(n, x) for n, x in zip(names, inputs) if n]
    declared = [helper.make_tensor_value_info(n, kind(x), x.shape) for n, x in given]
    opsets = [helper.make_opsetid(domain, opset)] + ([helper.make_opsetid("", 20)] if domain else [])

    def model(typed):
        return helper.make_model(helper.make_graph([node], name, declared, typed), opset_imports=opsets, ir_version=10)

    if want is None:
        asked = [onnx.ValueInfoProto(name=n) for n in results]
        want = ReferenceEvaluator(model(asked)).run(None, dict(given))
    want = [np.asarray(v) for v in want]
    typed = [helper.make_tensor_value_info(n, kind(v), v.shape) for n, v in zip(results, want)]
    put(f"{name}/model.onnx", model(typed).SerializeToString())
    put(f"{name}/tolerance", f"{rtol} {atol}\n")
    for what, tensors in (("input", [x for _, x in given]), ("output", want)):
        for i, x in enumerate(tensors):
            put(f"{name}/test_data_set_0/{what}_{i}.pb", numpy_helper.from_array(x).SerializeToString())


def sampling():
    x = normal(2, 3, 4, 5)
    grid = (rng.random((2, 3, 2, 2)) * 3.6 - 1.8).astype(np.float32)
    for mode in ("nearest", "linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                case(f"grid_{mode}_{padding}_{corners}", "GridSample", 20, [x, grid], mode=mode, padding_mode=padding,
                     align_corners=corners)
    line = (rng.random((1, 4, 1)) * 2.4 - 1.2).astype(np.float64)
    case("grid_line_f64", "GridSample", 20, [normal(1, 2, 6, dtype=np.float64), line], mode="linear")
    # The reference divides by zero here; every place is mirrored to the one point.
    case("grid_single_point", "GridSample", 20, [x[:1, :1, :1, :1], grid[:1]], padding_mode="reflection", align_corners=1,
         want=[np.full((1, 1, 3, 2), x[0, 0, 0, 0])])
    case("grid_empty", "GridSample", 20, [x, np.zeros((2, 0, 3, 2), np.float32)],
         want=[np.zeros((2, 3, 0, 3), np.float32)])
    theta = normal(2, 2, 3)
    for corners in (0, 1):
        case(f"affine_{corners}", "AffineGrid", 20, [theta, np.array([2, 1, 3, 4], np.int64)], align_corners=corners)
    image = normal(2, 3, 7, 6)
    rois = np.array([[0, 0, 5, 6], [1.5, 2.5, 3, 4], [-2, -1, 9, 9], [4, 4, 3, 3]], np.float32)
    which = np.array([0, 1, 1, 0], np.int64)
    for mode in ("avg", "max"):
        for ratio in (0, 2):
            for shift in ("half_pixel", "output_half_pixel"):
                case(f"roi_{mode}_{ratio}_{shift}", "RoiAlign", 22, [image, rois, which], mode=mode, sampling_ratio=ratio,
                     coordinate_transformation_mode=shift, output_height=2, output_width=3, spatial_scale=0.8)
    case("roi_none", "RoiAlign", 22, [image, rois[:0], which[:0]], output_height=2, output_width=2,
         want=[np.zeros((0, 3, 2, 2), np.float32)])
    # No evaluator for this one: bin by bin.
    whole = np.array([[0, 0, 0, 5, 6], [1, 1.4, 2.6, 3, 4], [1, 4, 4, 3, 3], [0, 7, 8, 9, 9]], np.float32)
    pooled = np.zeros((4, 3, 2, 3), np.float32)
    for r, (n, *corners) in enumerate(whole):
        x1, y1, x2, y2 = (int(np.floor(c * 0.9 + 0.5)) for c in corners)
        high, wide = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i in range(2):
            for j in range(3):
                ys = range(y1 + int(np.floor(i * high / 2)), y1 + int(np.ceil((i + 1) * high / 2)))
                xs = range(x1 + int(np.floor(j * wide / 3)), x1 + int(np.ceil((j + 1) * wide / 3)))
                points = [image[int(n), :, a, b] for a in ys for b in xs if 0 <= a < 7 and 0 <= b < 6]
                if points:
                    pooled[r, :, i, j] = np.max(points, axis=0)
    case("max_roi_pool", "MaxRoiPool", 1, [image, whole], want=[pooled], pooled_shape=[2, 3], spatial_scale=0.9)
    x, w = normal(1, 4, 5, 5), normal(4, 2, 2, 2)
    offset, mask = normal(1, 2 * 4 * 2, 3, 3) * np.float32(0.7), rng.random((1, 2 * 4, 3, 3)).astype(np.float32)
    case("deform_groups", "DeformConv", 22, [x, w, offset, normal(4), mask], group=2, offset_group=2, strides=[2, 2],
         pads=[1, 1, 1, 1], kernel_shape=[2, 2])
    case("deform_dilated", "DeformConv", 22, [x, normal(3, 4, 2, 2), normal(1, 8, 3, 3)], dilations=[2, 2],
         kernel_shape=[2, 2], pads=[0, 0, 0, 0])


def unique(name, x, **attributes):
    case(f"unique_{name}", "Unique", 11, [x], outputs=4, **attributes)


def kept(boxes, scores, most, overlap, least):
    """Box by box: the best of those left, which strikes out what it overlaps."""
    out = []
    area = lambda b: (b[2] - b[0]) * (b[3] - b[1])
    for n in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            left = [i for i in np.argsort(-scores[n, c], kind="stable") if scores[n, c, i] > least]
            for _ in range(most):
                if not left:
                    break
                best = left.pop(0)
                out.append([n, c, best])

                def shared(i):
                    a, b = boxes[n, best].astype(np.float64), boxes[n, i].astype(np.float64)
                    d = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0).prod()
                    return d / (area(a) + area(b) - d)

                left = [i for i in left if shared(i) <= overlap]
    return np.array(out, np.int64).reshape(-1, 3)


def selection():
    unique("ints", rng.integers(-3, 4, 30))
    # The reference evaluator fails here.
    x = rng.integers(0, 6, (5, 4)).astype(np.int32)
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    case("unique_unsorted", "Unique", 11, [x], outputs=4, sorted=0,
         want=[values[order], first[order], np.argsort(order)[inverse.reshape(-1)], counts[order]])
    unique("rows", rng.integers(0, 2, (9, 3)).astype(np.float32), axis=0)
    unique("rows_unsorted", rng.integers(0, 2, (9, 3)).astype(np.int8), axis=0, sorted=0)
    unique("columns", rng.integers(0, 2, (2, 3, 8)).astype(np.float64), axis=-1)
    unique("same", np.full(7, 2.5, np.float32))
    # NumPy: NaNs are equal and come last; −0 equals 0, and the first of them stands.
    x = np.array([np.nan, 1, -0.0, np.nan, 0.0, -np.inf, np.inf, 1], np.float32)
    want = [np.array([-np.inf, -0.0, 1, np.inf, np.nan], np.float32), np.array([5, 2, 1, 6, 0]),
            np.array([4, 2, 1, 4, 1, 0, 3, 2]), np.array([1, 2, 2, 1, 2])]
    case("unique_specials", "Unique", 11, [x], outputs=4, want=want)
    none = np.zeros(0, np.int64)
    case("unique_none", "Unique", 11, [np.zeros(0, np.float32)], outputs=4, want=[np.zeros(0, np.float32), none, none, none])
    centre, size = rng.random((2, 40, 2)) * 10, rng.random((2, 40, 2)) * 3 + 0.5
    boxes = np.concatenate([centre - size / 2, centre + size / 2], -1).astype(np.float32)
    scores = rng.random((2, 3, 40)).astype(np.float32)
    most = np.array(8, np.int64)
    for k, (overlap, least) in enumerate([(0.3, 0.2), (0.0, 0.5), (0.7, 0.0)]):
        case(f"nms_{k}", "NonMaxSuppression", 11,
             [boxes, scores, most, np.array([overlap], np.float32), np.array([least], np.float32)],
             want=[kept(boxes, scores, 8, overlap, least)])
    middle = np.concatenate([centre, size], -1).astype(np.float32)
    case("nms_centres", "NonMaxSuppression", 11, [middle, scores, most, np.array([0.4], np.float32)], center_point_box=1,
         want=[kept(boxes, scores, 8, 0.4, -np.inf)])
    case("nms_nothing", "NonMaxSuppression", 11, [boxes, scores], want=[np.zeros((0, 3), np.int64)])
    case("nms_no_boxes", "NonMaxSuppression", 11, [boxes[:, :0], scores[:, :, :0], most],
         want=[np.zeros((0, 3), np.int64)])
    for name, x in (("five", normal(5, 5)), ("one", normal(1, 1)), ("batch", normal(2, 3, 4, 4, dtype=np.float64)),
                    ("zero_pivot", np.array([[0, 2, 1], [1, 0, 3], [4, 1, 0]], np.float32))):
        case(f"det_{name}", "Det", 22, [x], want=[np.linalg.det(x)])
    singular = np.array([[1, 2, 3], [2, 4, 6], [1, 0, 1]], np.float32)
    case("det_singular", "Det", 22, [singular], want=[np.array(0, np.float32)])
    case("det_zeros", "Det", 22, [np.zeros((2, 3, 3), np.float32)], want=[np.zeros(2, np.float32)])
    case("det_nothing", "Det", 22, [np.zeros((2, 0, 0), np.float32)], want=[np.ones(2, np.float32)])


def parts(z, dtype):
    return np.stack([z.real, z.imag], -1).astype(dtype)


def signals():
    for dtype in (np.float32, np.float64):
        for n in (1, 5, 8, 12):
            z = normal(2, n) + 1j * normal(2, n)
            name = f"{np.dtype(dtype).name}_{n}"
            axis, length = np.array(1, np.int64), None
            x = parts(z, dtype)
            z = x[..., 0].astype(np.complex128) + 1j * x[..., 1]
            case(f"dft_{name}", "DFT", 20, [x, length, axis], want=[parts(np.fft.fft(z), dtype)])
            case(f"idft_{name}", "DFT", 20, [x, length, axis], want=[parts(np.fft.ifft(z), dtype)], inverse=1)
            real = x[..., :1]
            half = np.fft.rfft(real[..., 0].astype(np.float64))
            case(f"rdft_{name}", "DFT", 20, [real, length, axis], want=[parts(half, dtype)], onesided=1)
            back = parts(half, dtype)
            case(f"irdft_{name}", "DFT", 20, [back, np.array(n, np.int64), axis], inverse=1, onesided=1,
                 want=[np.fft.irfft(back[..., 0].astype(np.float64) + 1j * back[..., 1], n)[..., None].astype(dtype)])
    x = normal(3, 6, 2)
    z = x[..., 0] + 1j * x[..., 1]
    for n in (4, 9):
        case(f"dft_length_{n}", "DFT", 20, [x, np.array(n, np.int64), np.array(-2, np.int64)],
             want=[parts(np.fft.fft(z, n), np.float32)])
    case("dft_first_axis", "DFT", 20, [x, None, np.array(0, np.int64)], want=[parts(np.fft.fft(z, axis=0), np.float32)])
    case("dft_old", "DFT", 17, [x], want=[parts(np.fft.fft(z, axis=1), np.float32)])
    signal, window = normal(2, 23, 1), np.hanning(8).astype(np.float32)
    frames = np.stack([signal[:, i : i + 8, 0] for i in range(0, 16, 3)], 1)
    case("stft_window", "STFT", 17, [signal, np.array(3, np.int64), window],
         want=[parts(np.fft.rfft(frames * window), np.float32)])
    case("stft_plain", "STFT", 17, [signal, np.array(3, np.int64), None, np.array(8, np.int64)], onesided=0,
         want=[parts(np.fft.fft(frames), np.float32)])
    z = normal(1, 12, 2)
    both = (z[..., 0] + 1j * z[..., 1]).astype(np.complex128)
    frames = np.stack([both[:, i : i + 4] for i in range(0, 9, 4)], 1)
    case("stft_complex", "STFT", 17, [z, np.array(4, np.int64), None, np.array(4, np.int64)], onesided=0,
         want=[parts(np.fft.fft(frames), np.float32)])
    for op, f in (("HannWindow", np.hanning), ("HammingWindow", None), ("BlackmanWindow", np.blackman)):
        for n in (2, 7, 16):
            size = np.array(n, np.int64)
            if f is not None:
                case(f"{op}_{n}_symmetric".lower(), op, 17, [size], want=[f(n)], periodic=0, output_datatype=11, atol=1e-12)
                case(f"{op}_{n}".lower(), op, 17, [size], want=[f(n + 1)[:n]], output_datatype=11, atol=1e-12)
            else:
                case(f"{op}_{n}".lower(), op, 17, [size], rtol=1e-3)
    for k, (bands, length, rate, low, high) in enumerate([(8, 16, 8000, 0.0, 4000.0), (10, 64, 16000, 60.0, 7000.0)]):
        given = [np.array(v, np.int32) for v in (bands, length, rate)] + [np.float32(low).reshape(()), np.float32(high).reshape(())]
        case(f"mel_{k}", "MelWeightMatrix", 17, given, rtol=1e-3)


def recent():
    b, t, hq, hkv, d = 2, 4, 4, 2, 3
    q, k, v = normal(b, t, hq * d), normal(b, t, hkv * d), normal(b, t, hkv * 5)
    decay, beta = -rng.random((b, t, hkv * d)).astype(np.float32), rng.random((b, t, hkv)).astype(np.float32)
    past = normal(b, hkv, d, 5)
    for rule, more in (("linear", [None, None]), ("gated", [decay, None]), ("delta", [None, beta]), ("gated_delta", [decay, beta])):
        case(f"linear_attention_{rule}", "LinearAttention", 27, [q, k, v, past, *more], outputs=2, q_num_heads=hq,
             kv_num_heads=hkv, update_rule=rule)
    x, w = normal(2, 3, 5), normal(3, 1, 4)
    case("causal_conv", "CausalConvWithState", 27, [x, w, normal(3), normal(2, 3, 3)], outputs=2, activation="silu")
    case("causal_conv_short", "CausalConvWithState", 27, [x[:, :, :1], w], outputs=2)
    a, c = normal(2, 3, dtype=np.float64), normal(2, 3, dtype=np.float64)
    case("swiglu_f64", "SwiGLU", 28, [a, c], want=[a / (1 + np.exp(-0.7 * a)) * c], alpha=0.7, rtol=1e-6)
    x, g, m, h = (normal(3, 4, dtype=np.float64) for _ in range(4))
    h = np.abs(h)
    rate, count = np.array(0.1, np.float32), np.array(3, np.int64)
    training = {"domain": "ai.onnx.preview.training"}
    case("adam_f64", "Adam", 1, [rate, count, x, g, m, h], outputs=3, alpha=0.9, beta=0.99, norm_coefficient=0.01,
         norm_coefficient_post=0.02, epsilon=1e-3, **training)
    case("adagrad_f64", "Adagrad", 1, [rate, count, x, g, h], outputs=2, decay_factor=0.1, norm_coefficient=0.01,
         epsilon=1e-3, **training)
    tokens = rng.integers(0, 4, (3, 12)).astype(np.int64)
    for mode in ("TF", "IDF", "TFIDF"):
        case(f"tfidf_{mode.lower()}", "TfIdfVectorizer", 9, [tokens], mode=mode, min_gram_length=1, max_gram_length=3,
             max_skip_count=2, ngram_counts=[0, 3, 9], ngram_indexes=[2, 0, 1, 5, 3, 4, 6],
             pool_int64s=[0, 1, 2, 0, 1, 1, 2, 3, 3, 0, 1, 2], weights=[0.5, 1.0, 2.0, 0.25, 3.0, 1.5, 4.0])
    image, kernel = rng.integers(0, 256, (1, 4, 5, 5)).astype(np.uint8), rng.integers(-128, 128, (4, 2, 3, 3)).astype(np.int8)
    scales, zeros = (rng.random(4) * 0.02 + 0.001).astype(np.float32), np.zeros(4, np.int8)
    bias = rng.integers(-500, 500, 4).astype(np.int32)
    xs, xz, ys, yz = np.float32(0.03), np.uint8(120), np.float32(0.2), np.uint8(100)
    wide = np.pad(image.astype(np.int64) - int(xz), ((0, 0), (0, 0), (1, 1), (1, 1)))
    acc = np.zeros((1, 4, 3, 3), np.int64)
    for o in range(4):
        group = slice(2 * (o // 2), 2 * (o // 2) + 2)
        for i in range(3):
            for j in range(3):
                patch = wide[0, group, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
                acc[0, o, i, j] = (patch * kernel[o].astype(np.int64)).sum() + bias[o]
    y = np.clip(np.rint(acc * (xs * scales / ys)[None, :, None, None]) + int(yz), 0, 255).astype(np.uint8)
    scalar = lambda v: np.asarray(v)
    case("qlinearconv_groups", "QLinearConv", 10,
         [image, scalar(xs), scalar(xz), kernel, scales, zeros, scalar(ys), scalar(yz), bias], want=[y], group=2,
         strides=[2, 2], pads=[1, 1, 1, 1])


sampling()
selection()
signals()
recent()
archive.close()
