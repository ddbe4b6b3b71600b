"""Makes microsoft.zip: cases of ONNX Runtime's operators, with the results of ONNX Runtime 1.32.0 on the CPU (or of NumPy, where it has
no kernel for that).

    python make_microsoft.py OUT.zip        needs onnx 1.23.2, onnxruntime 1.32.0, numpy

Each case is a folder as in ONNX's own suites: one node, one data set, its tolerance.
"""

import sys
import zipfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(5)
archive = zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED)


def put(name, data):
    # A fixed time, so that the same cases give the same file.
    archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def u8(*shape):
    return rng.integers(0, 256, shape, dtype=np.uint8)


def i8(*shape):
    return rng.integers(-128, 128, shape, dtype=np.int8)


def f(x):
    return np.array(x, np.float32)


def case(name, op, inputs, outputs, atol=1e-5, rtol=1e-4, **attributes):
    """One node; inputs are arrays or None for those left out, outputs are counted, attributes are the node's."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    while names and not names[-1]:
        names.pop()
    results = [f"y{i}" if wanted else "" for i, wanted in enumerate(outputs)]
    node = helper.make_node(op, names, results, domain="com.microsoft", **attributes)
    kind = lambda x: helper.np_dtype_to_tensor_dtype(x.dtype)
    given = [(n, x) for n, x in zip(names, inputs) if n]
    declared = [helper.make_tensor_value_info(n, kind(x), x.shape) for n, x in given]
    asked = [onnx.ValueInfoProto(name=n) for n in results if n]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    untyped = helper.make_model(helper.make_graph([node], name, declared, asked), opset_imports=opsets, ir_version=9)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(untyped.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = session.run(None, dict(given))
    typed = [helper.make_tensor_value_info(n, kind(v), v.shape) for n, v in zip([r for r in results if r], values)]
    model = helper.make_model(helper.make_graph([node], name, declared, typed), opset_imports=opsets, ir_version=9)
    put(f"{name}/model.onnx", model.SerializeToString())
    put(f"{name}/tolerance", f"{rtol} {atol}\n")
    for what, tensors in (("input", [x for _, x in given]), ("output", values)):
        for i, x in enumerate(tensors):
            put(f"{name}/test_data_set_0/{what}_{i}.pb", numpy_helper.from_array(x).SerializeToString())
    return values


def attention():
    b, s, h, d = 2, 5, 2, 8
    hidden = h * d
    x, w, bias = normal(b, s, 12), normal(12, 3 * hidden) * f(0.3), normal(3 * hidden)
    case("attention", "Attention", [x, w, bias], [1], num_heads=h)
    case("attention_causal", "Attention", [x, w, bias], [1], num_heads=h, unidirectional=1)
    lengths = np.array([5, 3], np.int32)
    case("attention_lengths", "Attention", [x, w, bias, lengths], [1], num_heads=h)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], np.int32)
    case("attention_mask", "Attention", [x, w, bias, mask], [1], num_heads=h, scale=0.2)
    past = normal(2, b, h, 3, d)
    case("attention_past", "Attention", [x, w, bias, None, past], [1, 1], num_heads=h, unidirectional=1)
    added = normal(b, h, s, s)
    case("attention_bias", "Attention", [x, w, bias, mask, None, added], [1], num_heads=h)
    narrow = normal(12, 2 * hidden + 6)
    case("attention_sizes", "Attention", [x, narrow, normal(2 * hidden + 6)], [1], num_heads=h,
         qkv_hidden_sizes=[hidden, hidden, 6])


def multi_head():
    b, s, t, h, d = 2, 3, 6, 2, 8
    hidden = h * d
    q, k, v = normal(b, s, hidden), normal(b, t, hidden), normal(b, t, hidden)
    case("mha", "MultiHeadAttention", [q, k, v], [1], num_heads=h)
    case("mha_bias", "MultiHeadAttention", [q, k, v, normal(3 * hidden)], [1], num_heads=h, scale=0.3)
    mask = np.array([[1] * 6, [1, 1, 1, 1, 0, 0]], np.int32)
    case("mha_mask", "MultiHeadAttention", [q, k, v, None, mask], [1], num_heads=h)
    case("mha_lengths", "MultiHeadAttention", [q, k, v, None, np.array([6, 4], np.int32)], [1], num_heads=h)
    case("mha_added", "MultiHeadAttention", [q, k, v, None, None, normal(1, h, s, t)], [1], num_heads=h)
    new_k, new_v = normal(b, s, hidden), normal(b, s, hidden)
    case("mha_past", "MultiHeadAttention",
         [q, new_k, new_v, None, None, None, normal(b, h, 4, d), normal(b, h, 4, d)], [1, 1, 1], num_heads=h)
    case("mha_causal", "MultiHeadAttention", [q, new_k, new_v], [1], num_heads=h, unidirectional=1)
    case("mha_cross", "MultiHeadAttention", [q, normal(b, h, t, d), normal(b, h, t, d)], [1], num_heads=h)


def grouped():
    b, hq, hkv, d = 2, 4, 2, 16
    angles = np.outer(np.arange(16), 1 / 100 ** (np.arange(d // 2) / (d // 2)))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    empty = np.zeros((b, hkv, 0, d), np.float32)

    def qkv(s):
        return normal(b, s, hq * d), normal(b, s, hkv * d), normal(b, s, hkv * d)

    s = 5
    prompt = [*qkv(s), empty, empty, np.full(b, s - 1, np.int32), np.array(s, np.int32)]
    case("gqa_prompt", "GroupQueryAttention", prompt, [1, 1, 1], num_heads=hq, kv_num_heads=hkv)
    rotary = prompt + [cos, sin]
    for name, more in (("rotary", {}), ("interleaved", {"rotary_interleaved": 1}), ("window", {"local_window_size": 2}),
                       ("softcap", {"softcap": 5.0, "scale": 0.5})):
        case(f"gqa_{name}", "GroupQueryAttention", rotary, [1, 1, 1], num_heads=hq, kv_num_heads=hkv, do_rotary=1, **more)
    past = [normal(b, hkv, 6, d), normal(b, hkv, 6, d)]
    step = [*qkv(1), *past, np.full(b, 6, np.int32), np.array(7, np.int32), cos, sin]
    case("gqa_step", "GroupQueryAttention", step, [1, 1, 1], num_heads=hq, kv_num_heads=hkv, do_rotary=1)
    packed = [normal(b, 1, (hq + 2 * hkv) * d), None, None, *past, np.full(b, 6, np.int32), np.array(7, np.int32), cos, sin]
    case("gqa_packed", "GroupQueryAttention", packed, [1, 1, 1], num_heads=hq, kv_num_heads=hkv, do_rotary=1)


def bits(name, k, n, block, bits, zero=False, unpacked_zero=False, bias=False):
    blocks = -(-k // block)
    w = u8(n, blocks, block * bits // 8)
    scales = (rng.random((n, blocks)).astype(np.float32) + f(0.1)) * f(0.05)
    z = None
    if zero:
        z = u8(n, -(-blocks * bits // 8))
    if unpacked_zero:
        z = rng.integers(0, 1 << bits, (n, blocks)).astype(np.float32)
    inputs = [normal(3, k), w, scales, z, None, normal(n) if bias else None]
    case(name, "MatMulNBits", inputs, [1], atol=1e-4, K=k, N=n, block_size=block, bits=bits)


def fused():
    x, skip, g, b = normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8)
    case("skip_layer_norm", "SkipLayerNormalization", [x, skip, g, b, normal(8)], [1, 0, 0, 1], epsilon=1e-5)
    case("skip_layer_norm_broadcast", "SkipLayerNormalization", [x, skip[:1], g, b], [1])
    case("skip_rms_norm", "SkipSimplifiedLayerNormalization", [x, skip, g], [1, 0, 0, 1], epsilon=1e-6)
    ids = rng.integers(0, 11, (2, 4), dtype=np.int32)
    tables = normal(11, 8), normal(6, 8), normal(2, 8)
    segments = rng.integers(0, 2, (2, 4), dtype=np.int32)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.int32)
    case("embed_layer_norm", "EmbedLayerNormalization", [ids, segments, *tables, g, b, mask], [1, 1, 1], epsilon=1e-5)
    case("embed_layer_norm_plain", "EmbedLayerNormalization", [ids, None, tables[0], tables[1], None, g, b], [1, 1])
    for op in ("BiasGelu", "FastGelu"):
        case(op.lower(), op, [x, b], [1])
    case("quick_gelu", "QuickGelu", [x], [1], alpha=1.5)
    a, c = normal(2, 3, 4), normal(2, 5, 3)
    case("fused_matmul", "FusedMatMul", [a, c], [1], transA=1, transB=1, alpha=0.5)
    case("fused_matmul_batch", "FusedMatMul", [normal(3, 2, 4), normal(2, 4, 5)], [1], transBatchA=1)
    case("fused_gemm", "FusedGemm", [normal(3, 4), normal(4, 5), normal(5)], [1], activation="Relu", alpha=0.5, beta=2.0)
    image, kernel = normal(1, 3, 6, 6), normal(4, 3, 3, 3)
    case("fused_conv", "FusedConv", [image, kernel, normal(4)], [1], activation="Relu", pads=[1, 1, 1, 1])
    case("fused_conv_leaky", "FusedConv", [image, kernel, normal(4)], [1], activation="LeakyRelu",
         activation_params=[0.2], strides=[2, 2])
    angles = np.outer(np.arange(9), 1 / 10 ** (np.arange(4) / 4))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    y = normal(2, 3, 16)
    case("rotary_first", "RotaryEmbedding", [y, np.array([2], np.int64), cos, sin], [1])
    positions = rng.integers(0, 9, (2, 3), dtype=np.int64)
    case("rotary_positions", "RotaryEmbedding", [y, positions, cos, sin], [1], interleaved=1)
    case("rotary_heads", "RotaryEmbedding", [normal(2, 2, 3, 8), positions, cos, sin], [1])


def quantised():
    x, y, s, z = u8(2, 3, 8), u8(2, 3, 8), f(0.02), np.array(120, np.uint8)
    # A result that lies between two integers may be rounded to either.
    near = {"atol": 1.0}
    for op in ("QLinearAdd", "QLinearMul"):
        case(op.lower(), op, [x, s, z, y, f(0.03), np.array(3, np.uint8), f(0.05), z], [1], **near)
    signed = [i8(2, 8), f(0.02), np.array(-5, np.int8), i8(8), f(0.01), np.array(7, np.int8), f(0.04), np.array(1, np.int8)]
    case("qlinearadd_signed", "QLinearAdd", signed, [1], **near)
    case("qlinearsigmoid", "QLinearSigmoid", [x, s, z, f(1 / 256), np.array(0, np.uint8)], [1], **near)
    case("qlinearleakyrelu", "QLinearLeakyRelu", [x, s, z, f(0.02), z], [1], alpha=0.3, **near)
    case("qlinearsoftmax", "QLinearSoftmax", [x, s, z, f(1 / 256), np.array(0, np.uint8)], [1], axis=-1, opset=13, **near)
    image = u8(1, 3, 5, 5)
    case("qlinearglobalaveragepool", "QLinearGlobalAveragePool", [image, s, z, f(0.01), z], [1], **near)
    case("qlinearglobalaveragepool_last", "QLinearGlobalAveragePool", [image, s, z, f(0.01), z], [1], channels_last=1, **near)
    case("qlinearaveragepool", "QLinearAveragePool", [image, s, z, f(0.015), z], [1], kernel_shape=[2, 2], strides=[2, 2], **near)
    case("qlinearconcat", "QLinearConcat", [f(0.03), z, x, s, z, y, f(0.04), np.array(9, np.uint8)], [1], axis=1, **near)
    condition = rng.random((2, 3, 8)) < 0.5
    case("qlinearwhere", "QLinearWhere", [condition, x, s, z, y, f(0.04), np.array(9, np.uint8), f(0.03), z], [1], **near)
    # Seven bits of weights: ONNX Runtime adds pairs of products in 16 bits on machines without VNNI, which saturate beyond that.
    a, b = u8(3, 6), rng.integers(-64, 64, (6, 4), dtype=np.int8)
    scales, zeros = (rng.random(4) * 0.1).astype(np.float32), i8(4)
    case("matmulintegertofloat", "MatMulIntegerToFloat", [a, b, s, scales, z, zeros, normal(4)], [1])
    case("dynamicquantizematmul", "DynamicQuantizeMatMul", [normal(3, 6), b, scales, zeros, normal(4)], [1], atol=1e-3)
    case("dynamicquantizematmul_plain", "DynamicQuantizeMatMul", [normal(2, 3, 6), b, f(0.05)], [1], atol=1e-3)
    bias = rng.integers(-100, 100, 4, dtype=np.int32)
    case("qgemm", "QGemm", [a, s, z, b, f(0.01), np.array(3, np.int8), bias, f(0.1), z], [1], **near)
    case("qgemm_float", "QGemm", [a, s, z, b, f(0.01), np.array(3, np.int8), bias], [1])
    case("quantizelinear", "QuantizeLinear", [normal(2, 3), f(0.02), np.array(7, np.int8)], [1])
    case("dequantizelinear", "DequantizeLinear", [x, s, z], [1])


def case_of(name, op, inputs, want, atol=1e-5, rtol=1e-4, **attributes):
    """A case of an operator that ONNX Runtime has no CPU kernel of: `want` is what its definition says, in NumPy."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    results = [f"y{i}" for i in range(len(want))]
    node = helper.make_node(op, names, results, domain="com.microsoft", **attributes)
    kind = lambda x: helper.np_dtype_to_tensor_dtype(x.dtype)
    given = [(n, x) for n, x in zip(names, inputs) if n]
    declared = [helper.make_tensor_value_info(n, kind(x), x.shape) for n, x in given]
    typed = [helper.make_tensor_value_info(n, kind(v), v.shape) for n, v in zip(results, want)]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], name, declared, typed), opset_imports=opsets, ir_version=9)
    put(f"{name}/model.onnx", model.SerializeToString())
    put(f"{name}/tolerance", f"{rtol} {atol}\n")
    for what, tensors in (("input", [x for _, x in given]), ("output", want)):
        for i, x in enumerate(tensors):
            put(f"{name}/test_data_set_0/{what}_{i}.pb", numpy_helper.from_array(x).SerializeToString())


def more_attention():
    b, s, h, d = 2, 5, 2, 8
    hidden = h * d
    # Heads packed beside each other give what they do apart, which is all that the CPU has kernels for.
    q, k, v = (normal(b, s, h, d) for _ in range(3))
    apart = [x.reshape(b, s, hidden) for x in (q, k, v)]
    want = case("mha_apart", "MultiHeadAttention", apart, [1], num_heads=h)
    case_of("mha_packed", "MultiHeadAttention", [np.stack([q, k, v], 3)], want, num_heads=h)
    case_of("mha_packed_pair", "MultiHeadAttention", [apart[0], np.stack([k, v], 3)], want, num_heads=h)
    hq, hkv, d = 4, 2, 16
    empty = np.zeros((b, hkv, 0, d), np.float32)
    prompt = [normal(b, s, hq * d), normal(b, s, hkv * d), normal(b, s, hkv * d), empty, empty,
              np.full(b, s - 1, np.int32), np.array(s, np.int32)]
    heads = {"num_heads": hq, "kv_num_heads": hkv}
    case("gqa_smooth", "GroupQueryAttention", prompt, [1, 1, 1], smooth_softmax=1, **heads)
    case("gqa_sink", "GroupQueryAttention", [*prompt, None, None, None, None, normal(hq)], [1, 1, 1], **heads)
    case("gqa_sink_window", "GroupQueryAttention", [*prompt, None, None, None, None, normal(hq)], [1, 1, 1],
         local_window_size=2, softcap=3.0, **heads)
    case("gqa_added", "GroupQueryAttention", [*prompt, None, None, None, normal(1, hq, s, s)], [1, 1, 1], **heads)
    angles = np.outer(np.arange(16), 1 / 100 ** (np.arange(d // 2) / (d // 2)))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    past = [normal(b, hkv, 6, d), normal(b, hkv, 6, d)]
    step = [normal(b, 1, hq * d), normal(b, 1, hkv * d), normal(b, 1, hkv * d), *past, np.full(b, 6, np.int32),
            np.array(7, np.int32), cos, sin, np.full((b, 1), 6, np.int64)]
    case("gqa_positions", "GroupQueryAttention", step, [1, 1, 1], do_rotary=1, **heads)
    case("gqa_step_window_cap", "GroupQueryAttention", step[:9], [1, 1, 1], do_rotary=1, local_window_size=3, softcap=2.0, **heads)
    # Norms of queries and keys before they are used: no kernel of the CPU has them.
    scales = [normal(d) + f(1), normal(d) + f(1)]
    normed = lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w
    apart = lambda x, n: x.reshape(b, -1, n, d).transpose(0, 2, 1, 3)
    q, k, v = normed(apart(prompt[0], hq), scales[0]), normed(apart(prompt[1], hkv), scales[1]), apart(prompt[2], hkv)
    scores = q @ np.repeat(k, hq // hkv, 1).transpose(0, 1, 3, 2) / np.sqrt(d)
    scores = np.where(np.tri(s, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    y = (p / p.sum(-1, keepdims=True)) @ np.repeat(v, hq // hkv, 1)
    y = y.transpose(0, 2, 1, 3).reshape(b, s, hq * d)
    rest = [None] * 7
    case_of("gqa_norms", "GroupQueryAttention", [*prompt, *rest, *scales], [y.astype(np.float32), k.astype(np.float32), v], **heads)


def packed():
    """Three sequences of 2, 4 and 1 rows out of 4."""
    lengths, steps, h, d = [2, 4, 1], 4, 2, 8
    hidden, b = h * d, 3
    there = [(i, j) for i in range(b) for j in range(steps) if j < lengths[i]]
    padding = [(i, j) for i in range(b) for j in range(steps) if j >= lengths[i]]
    offsets = np.array([i * steps + j for i, j in there + padding], np.int32).reshape(b, steps)
    ends = np.cumsum([0, *lengths]).astype(np.int32)
    x = normal(b, steps, 6)
    rows = np.stack([x[i, j] for i, j in there])
    case_of("remove_padding", "RemovePadding", [x, np.array(lengths, np.int32)],
            [rows, offsets, ends, np.array([4], np.int32)])
    padded = np.zeros_like(x)
    for (i, j), row in zip(there, rows):
        padded[i, j] = row
    case_of("restore_padding", "RestorePadding", [rows, offsets], [padded])

    def attention(q, k, v, added):
        out = []
        for i in range(b):
            at = slice(ends[i], ends[i + 1])
            parts = [p[at].reshape(lengths[i], h, d).transpose(1, 0, 2) for p in (q, k, v)]
            scores = parts[0] @ parts[1].transpose(0, 2, 1) / np.sqrt(d)
            if added is not None:
                scores = scores + added[0, :, : lengths[i], : lengths[i]]
            p = np.exp(scores - scores.max(-1, keepdims=True))
            out.append(((p / p.sum(-1, keepdims=True)) @ parts[2]).transpose(1, 0, 2).reshape(lengths[i], hidden))
        return np.concatenate(out).astype(np.float32)

    w, bias, added = normal(6, 3 * hidden) * f(0.3), normal(3 * hidden), normal(1, h, steps, steps)
    parts = np.split(rows @ w + bias, 3, axis=1)
    case_of("packed_attention", "PackedAttention", [rows, w, bias, offsets, ends], [attention(*parts, None)], num_heads=h)
    case_of("packed_attention_bias", "PackedAttention", [rows, w, bias, offsets, ends, added], [attention(*parts, added)], num_heads=h)
    n = len(there)
    q, k, v = (normal(n, hidden) for _ in range(3))
    case_of("packed_mha", "PackedMultiHeadAttention", [q, k, v, None, offsets, ends], [attention(q, k, v, None)], num_heads=h)
    together = np.stack([p.reshape(n, h, d) for p in (q, k, v)], axis=2)
    biased = [p + part for p, part in zip((q, k, v), np.split(bias, 3))]
    case_of("packed_mha_together", "PackedMultiHeadAttention", [together, None, None, bias, offsets, ends, added],
            [attention(*biased, added)], num_heads=h)


def diffusion():
    from math import erf

    x, bias, skip = normal(2, 6, 8), normal(8), normal(2, 6, 8)
    case_of("bias_add", "BiasAdd", [x, bias, skip], [x + bias + skip])
    left, right = np.split(x + bias, 2, axis=-1)
    gelu = np.vectorize(lambda v: 0.5 * v * (1 + erf(v / 2**0.5)))(right).astype(np.float32)
    case_of("bias_split_gelu", "BiasSplitGelu", [x, bias], [left * gelu])

    def softmax(v):
        p = np.exp(v - v.max(-1, keepdims=True))
        return (p / p.sum(-1, keepdims=True)).astype(np.float32)

    scores, mask = normal(2, 3, 4, 5), normal(2, 1, 1, 5)
    case_of("bias_softmax", "BiasSoftmax", [scores, mask], [softmax(scores + mask)], axis=3, is_inner_broadcast=1)
    outer = normal(1, 3, 4, 5)
    flat = softmax((scores + outer).reshape(2, 3, 20)).reshape(2, 3, 4, 5)
    case_of("bias_softmax_axes", "BiasSoftmax", [scores, outer], [flat], axis=2, is_inner_broadcast=0)
    image, gamma, beta = normal(2, 3, 4, 8), normal(8), normal(8)

    def group_norm(v, groups, silu):
        g = v.astype(np.float64).reshape(2, 12, groups, -1)
        mean, var = g.mean((1, 3), keepdims=True), g.var((1, 3), keepdims=True)
        y = ((g - mean) / np.sqrt(var + 1e-5)).reshape(v.shape) * gamma + beta
        return (y / (1 + np.exp(-y)) if silu else y).astype(np.float32)

    for silu in (0, 1):
        case_of(f"group_norm_{silu}", "GroupNorm", [image, gamma, beta], [group_norm(image, 4, silu)], groups=4, activation=silu)
    first = image.transpose(0, 3, 1, 2).copy()
    case_of("group_norm_first", "GroupNorm", [first, gamma, beta], [group_norm(image, 2, 0).transpose(0, 3, 1, 2).copy()],
            groups=2, activation=0, channels_last=0)
    other, one = normal(2, 3, 4, 8), normal(2, 8)
    total = image + other + bias
    case_of("skip_group_norm", "SkipGroupNorm", [image, gamma, beta, other, bias], [group_norm(total, 4, 1), total],
            groups=4, activation=1)
    total = image + one[:, None, None]
    case_of("skip_group_norm_channels", "SkipGroupNorm", [image, gamma, beta, one], [group_norm(total, 4, 0), total],
            groups=4, activation=0)
    case("nhwc_max_pool", "NhwcMaxPool", [u8(2, 5, 6, 3)], [1], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    first, kernel, shift = normal(2, 3, 5, 6), normal(4, 3, 3, 2), normal(4)
    how = {"strides": [2, 1], "pads": [1, 0, 1, 1]}
    want = case("fused_conv_plain", "FusedConv", [first, kernel, shift], [1], **how)[0]
    case_of("nhwc_conv", "NhwcConv", [first.transpose(0, 2, 3, 1).copy(), kernel, shift], [want.transpose(0, 2, 3, 1).copy()], **how)
    case("nhwc_max_pool_signed", "NhwcMaxPool", [i8(1, 4, 4, 5)], [1], kernel_shape=[2, 2], strides=[2, 2])


def blocks():
    # Rows of a matrix that belong to blocks in another order.
    groups = np.array([(i * 7) % 4 for i in range(64)], np.int32)
    w, scales = u8(5, 4, 8), (rng.random((5, 4)).astype(np.float32) + f(0.1)) * f(0.05)
    case("matmulnbits_groups", "MatMulNBits", [normal(3, 64), w, scales.reshape(-1), None, groups], [1], atol=1e-4,
         K=64, N=5, block_size=16, bits=4)
    bits("matmulnbits_2", 64, 4, 32, 2, zero=True)
    for kind, name in ((0, "fp4"), (1, "nf4")):
        most = rng.random(-(-6 * 48 // 16)).astype(np.float32) + f(0.1)
        case(f"matmulbnb4_{name}", "MatMulBnb4", [normal(3, 48), u8(6 * 24), most], [1], atol=1e-4, K=48, N=6, block_size=16,
             quant_type=kind)
    at = np.array([[0, 3], [-1, 2]], np.int64)
    table, scales = u8(5, 16), rng.random((5, 2)).astype(np.float32)
    case("gather_blocks_4", "GatherBlockQuantized", [table, at, scales], [1], bits=4, block_size=16, gather_axis=0, quantize_axis=1)
    case("gather_blocks_4_zero", "GatherBlockQuantized", [table, at, scales, u8(5, 1)], [1], bits=4, block_size=16,
         gather_axis=0, quantize_axis=1)
    case("gather_blocks_8", "GatherBlockQuantized", [u8(5, 32), at, scales, u8(5, 2)], [1], bits=8, block_size=16,
         gather_axis=0, quantize_axis=1)


def plain():
    x = normal(2, 3)
    case("expand_dims", "ExpandDims", [x, np.array(-1, np.int32)], [1])
    case("gather_nd", "GatherND", [normal(2, 3, 4), np.array([[0, 1], [1, 2]], np.int64)], [1])
    grid = (rng.random((1, 3, 2, 2)) * 2.4 - 1.2).astype(np.float32)
    case("grid_sample", "GridSample", [normal(1, 2, 4, 5), grid], [1], mode="bilinear", padding_mode="border")
    case("pad", "Pad", [x, np.array([1, 0, 0, 2], np.int64), f(0.5)], [1])
    case("pad_reflect", "Pad", [x, np.array([0, 1, 1, 2], np.int64)], [1], mode="reflect")
    case("range", "Range", [f(1), f(3), f(0.5)], [1])
    case("range_default", "Range", [np.array(2, np.int32), np.array(7, np.int32)], [1])
    case("trilu", "Trilu", [normal(2, 4, 5), np.array(1, np.int64)], [1], upper=0)
    case("unique", "Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], [1, 1, 1])
    case("gelu", "Gelu", [x], [1])
    case("transpose_matmul", "TransposeMatMul", [normal(4, 3), normal(4, 5)], [1], transA=1)


def more_quantised():
    near = {"atol": 1.0}
    s, z = f(0.02), np.array(120, np.uint8)
    x, w = u8(1, 4, 6, 6), rng.integers(-64, 64, (5, 2, 3, 3), dtype=np.int8)
    per_channel = (rng.random(5) * 0.02 + 0.005).astype(np.float32)
    bias = rng.integers(-200, 200, 5, dtype=np.int32)
    w1 = rng.integers(-64, 64, (5, 4, 3, 3), dtype=np.int8)
    conv = lambda image, kernel: [image, s, z, kernel, per_channel, np.zeros(5, np.int8), f(0.1), z, bias]
    case("qlinearconv", "QLinearConv", conv(x, w1), [1], pads=[1, 1, 1, 1], **near)
    last = x.transpose(0, 2, 3, 1).copy()
    case("qlinearconv_last", "QLinearConv", conv(last, w1), [1], pads=[1, 1, 1, 1], strides=[2, 2], channels_last=1, **near)
    b, t, h, d = 2, 5, 2, 8
    hidden = h * d
    tokens, projection = u8(b, t, 12), rng.integers(-64, 64, (12, 3 * hidden), dtype=np.int8)
    given = [tokens, projection, normal(3 * hidden), s, f(0.01)]
    case("qattention", "QAttention", [*given, None, z, np.array(0, np.int8)], [1], num_heads=h, atol=1e-4)
    lengths = np.array([5, 3], np.int32)
    case("qattention_lengths", "QAttention", [*given, lengths, z, np.array(0, np.int8)], [1], num_heads=h, atol=1e-4)
    columns = (rng.random(3 * hidden) * 0.02 + 0.002).astype(np.float32)
    past = normal(2, b, h, 3, d)
    case("qattention_past", "QAttention", [tokens, projection, normal(3 * hidden), s, columns, None, z,
         np.zeros(3 * hidden, np.int8), past], [1, 1], num_heads=h, unidirectional=1, atol=1e-4)
    ids = rng.integers(0, 11, (2, 4), dtype=np.int32)
    segments = rng.integers(0, 2, (2, 4), dtype=np.int32)
    tables = [u8(11, 8), u8(6, 8), u8(2, 8), u8(8), u8(8)]
    scales = [f(v) for v in (0.02, 0.01, 0.03, 0.015, 0.01)]
    zeros = [np.array(v, np.uint8) for v in (128, 120, 130, 3, 127)]
    case("qembedlayernorm", "QEmbedLayerNormalization", [ids, segments, *tables, None, *scales, *zeros], [1, 1], epsilon=1e-5)
    # The original rounds what it multiplies the weights with to eight bits at every step.
    steps, width, hidden = 4, 6, 5
    for name, directions in (("", 1), ("_both", 2)):
        wide = lambda n: rng.integers(-100, 100, (directions, n, 4 * hidden), dtype=np.int8)
        weights = [normal(steps, 2, width), wide(width), wide(hidden), normal(directions, 8 * hidden)]
        scales = [np.full(directions, 0.004, np.float32), np.zeros(directions, np.int8)]
        more = {"direction": "bidirectional"} if directions == 2 else {}
        case(f"dynamicquantizelstm{name}", "DynamicQuantizeLSTM", [*weights, None, None, None, None, *scales, *scales], [1, 1, 1],
             hidden_size=hidden, atol=2e-2, rtol=2e-2, **more)
    i = u8(2, 3, 4)
    real = (i.astype(np.float32) - 120) * 0.02
    mean = np.clip(np.round(real.mean(1) / 0.01) + 100, 0, 255).astype(np.uint8)
    case_of("qlinearreducemean", "QLinearReduceMean", [i, s, z, f(0.01), np.array(100, np.uint8)], [mean], axes=[1], keepdims=0, **near)
    small = i8(3, 4)
    case_of("reduce_sum_integer", "ReduceSumInteger", [small], [small.astype(np.int32).sum(1, keepdims=True, dtype=np.int32)], axes=[1], keepdims=1)
    other = i8(4)
    case_of("mul_integer", "MulInteger", [small, np.array(3, np.int8), other, np.array(-2, np.int8)],
            [(small.astype(np.int32) - 3) * (other.astype(np.int32) + 2)])


attention()
multi_head()
grouped()
fused()
quantised()
bits("matmulnbits_4", 40, 6, 16, 4)
bits("matmulnbits_4_zero", 64, 5, 16, 4, zero=True)
bits("matmulnbits_4_odd", 48, 5, 16, 4, zero=True, bias=True)
bits("matmulnbits_8", 32, 4, 32, 8, zero=True)
bits("matmulnbits_4_float_zero", 64, 5, 32, 4, unpacked_zero=True)
more_attention()
packed()
diffusion()
blocks()
plain()
more_quantised()
archive.close()
