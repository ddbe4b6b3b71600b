"""Runs a quantised file in ONNX Runtime, as its nodes say: near what the model gave, and nearly what RLX makes of the file.

    python quantized.py QUANTIZED.onnx INPUTS.npz MODEL_OUTPUTS.npz RLX_OUTPUTS.npz COSINE apart|joined

Nodes are joined to integer products where weights have seven bits: on machines without VNNI pairs are added in 16 bits, which saturate with
weights of eight.
"""

import sys

import numpy as np
import onnxruntime

file, inputs, wide, narrow, least, how = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
if how == "apart":
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
data, wide, narrow = np.load(inputs), np.load(wide), np.load(narrow)
find = lambda n: next(data[k] for k in (n, f"in.{n}") if k in data.files)
results = session.run(None, {i.name: find(i.name) for i in session.get_inputs()})
cosine = lambda a, b: float(a @ b / np.sqrt((a @ a) * (b @ b)))
for o, got in zip(session.get_outputs(), results):
    flat = lambda x: x.astype(np.float64).ravel()
    near, same = cosine(flat(got), flat(wide[o.name])), cosine(flat(got), flat(narrow[o.name]))
    print(f"ONNX Runtime: output {o.name} cosine {near:.5f} to the model, {same:.7f} to RLX")
    if near < float(least) or same < 0.999:
        sys.exit(1)
