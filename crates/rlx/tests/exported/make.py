"""Writes tiny models as PyTorch's two exporters write them, with inputs and PyTorch's results at two shapes or more.

    pip install -r requirements.txt
    python make.py OUT [NAME ...]

Each model becomes OUT/<name>.<exporter>.zip with model.onnx, `tolerance` (relative and absolute) and, for each data set k,
test_data_set_<k>/input_<i>.pb and output_<i>.pb. Exporters are `script` (`torch.onnx.export(dynamo=False)`, which traces) and `dynamo`
(`dynamo=True`, by `torch.export`). What an exporter refuses, or what ONNX Runtime then computes otherwise than PyTorch, is printed.
Weights are seeded and lie on a coarse grid, so that the archives stay small.
"""

import argparse
import io
import logging
import sys
import traceback
import warnings
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper

from models import MODELS

GRID = 1 / 64


def seeded(model):
    """Weights on a grid: small files, and the same ones each time."""
    state = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if p.dim() > 1:
                scale = min(0.4, (3.0 / max(1, p[0].numel())) ** 0.5)
                p.copy_(torch.round((torch.rand(p.shape, generator=state) * 2 - 1) * scale / GRID) * GRID)
            elif "bias" in name:
                p.copy_(torch.round((torch.rand(p.shape, generator=state) * 2 - 1) * 0.1 / GRID) * GRID)
            elif p.is_floating_point() and p.numel() and torch.all(p == 1):
                p.copy_(1 + torch.round((torch.rand(p.shape, generator=state) * 2 - 1) * 0.2 / GRID) * GRID)
        for name, b in sorted(model.named_buffers()):
            if name.endswith("running_mean"):
                b.copy_(torch.round((torch.rand(b.shape, generator=state) * 2 - 1) * 0.2 / GRID) * GRID)
            elif name.endswith("running_var"):
                b.copy_(1 + torch.round(torch.rand(b.shape, generator=state) * 0.5 / GRID) * GRID)
    return model.eval()


def flat(outputs):
    """All tensors of a result, in order."""
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, dict):
        outputs = outputs.values()
    return [t for o in outputs for t in flat(o)] if outputs is not None else []


def exported(spec, exporter):
    """The bytes of the model's file."""
    model = seeded(spec.build())
    given = spec.inputs(*spec.sizes[0])
    names = list(given)
    buffer = io.BytesIO()
    if exporter == "script":
        torch.onnx.export(
            model, tuple(given.values()), buffer, input_names=names, output_names=spec.outputs,
            dynamic_axes=spec.axes, opset_version=spec.opset, dynamo=False,
        )
        return model, buffer.getvalue()
    shapes = [{a: torch.export.Dim.AUTO for a in spec.axes.get(n, {})} for n in names]
    program = torch.onnx.export(
        model, tuple(given.values()), input_names=names, output_names=spec.outputs,
        dynamic_shapes=tuple(shapes), dynamo=True, external_data=False, verbose=False,
    )
    program.save(buffer)
    return model, buffer.getvalue()


def message(array, name):
    return numpy_helper.from_array(np.ascontiguousarray(array), name).SerializeToString()


def write(out, spec, exporter):
    """Writes a model; what ONNX Runtime makes of it."""
    model, data = exported(spec, exporter)
    proto = onnx.load_from_string(data)
    for node in proto.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for f in proto.functions:
        for node in f.node:
            node.doc_string = ""
            del node.metadata_props[:]
    for v in [*proto.graph.input, *proto.graph.output, *proto.graph.value_info, *proto.graph.initializer]:
        v.doc_string = ""
        del v.metadata_props[:]
    del proto.graph.metadata_props[:]
    if exporter == "dynamo":
        del proto.graph.value_info[:]
    data = proto.SerializeToString()
    inputs = [i.name for i in proto.graph.input]
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    files = {"model.onnx": data, "tolerance": b"2e-4 2e-5"}
    notes = []
    for k, sizes in enumerate(spec.sizes):
        given = spec.inputs(*sizes)
        with torch.no_grad():
            want = [t.numpy() for t in flat(model(*given.values()))]
        feed = {n: given[n].numpy() for n in inputs}
        for i, n in enumerate(inputs):
            files[f"test_data_set_{k}/input_{i}.pb"] = message(feed[n], n)
        for i, (o, w) in enumerate(zip(proto.graph.output, want)):
            files[f"test_data_set_{k}/output_{i}.pb"] = message(w, o.name)
        try:
            got = session.run(None, feed)
            worst = max(float(np.abs(g.astype(np.float64) - w).max(initial=0)) for g, w in zip(got, want))
            if worst > 1e-4:
                notes.append(f"{sizes}: ONNX Runtime differs by {worst:.2e}")
        except Exception as e:
            notes.append(f"{sizes}: ONNX Runtime: {str(e).splitlines()[0][:160]}")
    path = out / f"{spec.name}.{exporter}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, content in files.items():
            # Without the time of day, the same archive each time.
            z.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 9)
    return f"{len(data) / 1024:.0f} KiB, {path.stat().st_size / 1024:.0f} KiB in the archive", notes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--traceback", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    # One op of PyTorch's own, which `script` cannot write.
    torch.backends.mha.set_fastpath_enabled(False)
    args.out.mkdir(parents=True, exist_ok=True)
    for spec in MODELS:
        if args.names and not any(n in spec.name for n in args.names):
            continue
        for exporter in spec.exporters:
            label = f"{spec.name}.{exporter}"
            try:
                with torch.no_grad():
                    size, notes = write(args.out, spec, exporter)
                print(f"{label}: {size}", *notes, sep="\n    ", flush=True)
            except Exception as e:
                print(f"{label}: NOT EXPORTED: {type(e).__name__}: {str(e).strip().splitlines()[0][:200]}", flush=True)
                if args.traceback:
                    traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
