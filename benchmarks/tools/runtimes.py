"""Run one operator of ONNX on onnxruntime and on OpenVINO, each with one thread and in float32."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

from tools.measure import peer

OPSET, IR_VERSION = 23, 11
"""The first opset with Attention and RotaryEmbedding, and the file format of its time."""


def runtimes(operator: str, inputs: Mapping[str, Any], **attributes: Any) -> dict[str, Callable[[], Any]]:
    """Return a call for each runtime that is installed, by the name of the runtime; both read one model.

    The result has the shape of the first input.
    """
    if not (onnx := peer("onnx")):
        return {}
    helper: Any = onnx.helper

    def value(name: str, array: Any) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    node = helper.make_node(operator, list(inputs), ["result"], **attributes)
    result = value("result", next(iter(inputs.values())))
    graph = helper.make_graph([node], operator, [value(*one) for one in inputs.items()], [result])
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION).SerializeToString()
    found: dict[str, Callable[[], Any]] = {}
    if package := peer("onnxruntime"):
        options: Any = package.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session: Any = package.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        found["onnxruntime"] = lambda: session.run(None, dict(inputs))[0]
    if package := peer("openvino"):
        core: Any = package.Core()
        settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
        compiled: Any = core.compile_model(core.read_model(io.BytesIO(model)), "CPU", settings)
        arrays = list(inputs.values())
        found["openvino"] = lambda: compiled(arrays, share_inputs=True, share_outputs=True)[0]
    return found
