"""Makes microsoft.zip: cases of ONNX Runtime's operators, with the results of ONNX Runtime 1.32.0 on the CPU.

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
archive.close()
