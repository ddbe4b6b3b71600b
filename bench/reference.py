"""A model's outputs in f64: the ONNX project's reference evaluator (NumPy) on the model with every f32 made f64. Slow, so kept in bench/.cache.

It shares nothing with RLX nor with its peers. `None` where the evaluator lacks an operator in f64.
"""

import hashlib
from pathlib import Path

CACHE = Path(__file__).resolve().parent / ".cache" / "f64"


def widen(model):
    """Makes every f32 of a model f64: initialisers, constants, casts, declared types; bodies of control flow too."""
    import numpy as np
    from onnx import AttributeProto, TensorProto, numpy_helper

    def tensor(t):
        if t.data_type == TensorProto.FLOAT:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float64), t.name))

    def value(v):
        if v.type.tensor_type.elem_type == TensorProto.FLOAT:
            v.type.tensor_type.elem_type = TensorProto.DOUBLE

    def graph(g):
        for t in g.initializer:
            tensor(t)
        for v in [*g.input, *g.output]:
            value(v)
        del g.value_info[:]
        for node in g.node:
            for a in node.attribute:
                if a.type == AttributeProto.TENSOR:
                    tensor(a.t)
                elif a.type == AttributeProto.GRAPH:
                    graph(a.g)
                elif node.op_type == "Cast" and a.name == "to" and a.i == TensorProto.FLOAT:
                    a.i = TensorProto.DOUBLE

    graph(model.graph)
    return model


def f64_outputs(path, inputs, names):
    """The outputs of these names, or `None`."""
    import numpy as np
    import onnx
    from onnx.reference import ReferenceEvaluator

    digest = hashlib.sha256(Path(path).read_bytes())
    for name in sorted(inputs):
        digest.update(name.encode() + np.ascontiguousarray(inputs[name]).tobytes())
    kept = CACHE / f"{digest.hexdigest()[:24]}.npz"
    if not kept.exists():
        wide = {n: v.astype(np.float64) if v.dtype == np.float32 else v for n, v in inputs.items()}
        try:
            outputs = ReferenceEvaluator(widen(onnx.load(str(path)))).run(None, wide)
        except Exception as error:  # its operators differ in what they take
            print(f"no f64 reference of {Path(path).name}: {type(error).__name__}: {str(error)[:200]}")
            return None
        CACHE.mkdir(parents=True, exist_ok=True)
        np.savez(kept, **dict(zip(names, outputs)))
    with np.load(kept) as z:
        return [z[n] for n in names]
