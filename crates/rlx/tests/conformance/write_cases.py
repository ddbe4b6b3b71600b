"""Writes the node cases of the installed `onnx` package as folders.

    python write_cases.py OUT

Each case becomes OUT/<name>/ with model.onnx, `tolerance` (relative and absolute, in one line) and, for each data set k,
test_data_set_<k>/input_<i>.pb and output_<i>.pb.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases


def message(value, declared):
    """A value as the message that its declared type asks for."""
    if isinstance(value, (onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto)):
        return value
    kind = declared.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, declared.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, declared.name)
    return numpy_helper.from_array(np.asarray(value), declared.name)


def main(out):
    cases = collect_testcases(None)
    for case in cases:
        folder = out / case.name
        folder.mkdir(parents=True, exist_ok=True)
        graph = case.model.graph
        for k, (inputs, outputs) in enumerate(case.data_sets):
            data = folder / f"test_data_set_{k}"
            data.mkdir(exist_ok=True)
            for kind, values, declared in (("input", inputs, graph.input), ("output", outputs, graph.output)):
                for i, (value, declaration) in enumerate(zip(values, declared)):
                    (data / f"{kind}_{i}.pb").write_bytes(message(value, declaration).SerializeToString())
        (folder / "tolerance").write_text(f"{case.rtol} {case.atol}\n")
        # Last: a folder with a model is complete.
        (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    print(f"{len(cases)} node cases")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
