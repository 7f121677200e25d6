#!/usr/bin/env python3
"""Make the cases of tests/data/models that no exporter wrote: f16 decoding with an f16 cache and an f32 mask input, a
model-local function, an If whose condition comes with the inputs. Needs numpy and onnx.

Expected outputs are computed here in double, from the definition, and not by any runtime.
    tests/data/make_models.py tests/data/models
"""
import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h

B, HQ, HKV, D, PAST, S = 2, 4, 2, 16, 9, 3
KEYS = PAST + S


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def decode_case(rng, mask_in_f32):
    """One decoding step. The mask input is f32; it is added either to the f16 scores after a cast to f16, as exporters write
    it, or to scores that were cast to f32."""
    q, k, v = (rng.standard_normal((B, n, S, D)).astype(np.float16) for n in (HQ, HKV, HKV))
    past_k, past_v = (rng.standard_normal((B, HKV, PAST, D)).astype(np.float16) for _ in range(2))
    mask = np.zeros((B, 1, S, KEYS), np.float32)
    mask[:, :, np.triu(np.ones((S, KEYS)), PAST + 1).astype(bool)] = np.finfo(np.float16).min
    mask[1, :, :, :2] = np.finfo(np.float16).min

    nodes = [
        h.make_node("Concat", ["past_k", "k"], ["present_k"], axis=2),
        h.make_node("Concat", ["past_v", "v"], ["present_v"], axis=2),
    ]
    for name in "kv":
        nodes += [
            h.make_node("Unsqueeze", [f"present_{name}", "two"], [f"{name}5"]),
            h.make_node("Expand", [f"{name}5", "repeat"], [f"{name}6"]),
            h.make_node("Reshape", [f"{name}6", "joined"], [f"all_{name}"]),
        ]
    nodes += [
        h.make_node("Transpose", ["all_k"], ["kt"], perm=[0, 1, 3, 2]),
        h.make_node("MatMul", ["q", "kt"], ["raw"]),
        h.make_node("Mul", ["raw", "scale"], ["scores"]),
    ]
    if mask_in_f32:
        nodes += [h.make_node("Cast", ["scores"], ["scores32"], to=T.FLOAT),
                  h.make_node("Add", ["scores32", "mask"], ["masked"]),
                  h.make_node("Softmax", ["masked"], ["p32"], axis=-1),
                  h.make_node("Cast", ["p32"], ["p"], to=T.FLOAT16)]
    else:
        nodes += [h.make_node("Cast", ["mask"], ["mask16"], to=T.FLOAT16),
                  h.make_node("Add", ["scores", "mask16"], ["masked"]),
                  h.make_node("Softmax", ["masked"], ["p"], axis=-1)]
    nodes += [
        h.make_node("MatMul", ["p", "all_v"], ["heads"]),
        h.make_node("Transpose", ["heads"], ["bshd"], perm=[0, 2, 1, 3]),
        h.make_node("Reshape", ["bshd", "flat"], ["y"]),
    ]
    constants = {
        "two": np.array([2], np.int64), "repeat": np.array([1, 1, HQ // HKV, 1, 1], np.int64),
        "joined": np.array([0, HQ, -1, D], np.int64), "flat": np.array([0, 0, HQ * D], np.int64),
        "scale": np.array(D ** -0.5, np.float16),
    }
    inputs = {"q": q, "k": k, "v": v, "past_k": past_k, "past_v": past_v, "mask": mask}
    present_k, present_v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    kk, vv = (np.repeat(x.astype(np.float64), HQ // HKV, 1) for x in (present_k, present_v))
    p = softmax(q.astype(np.float64) @ kk.swapaxes(2, 3) * D ** -0.5 + mask)
    y = (p @ vv).transpose(0, 2, 1, 3).reshape(B, S, HQ * D).astype(np.float16)
    graph = h.make_graph(
        nodes, "decode",
        [h.make_tensor_value_info(n, T.FLOAT if n == "mask" else T.FLOAT16, shape_of(n)) for n in inputs],
        [h.make_tensor_value_info("y", T.FLOAT16, [B, "len", HQ * D]),
         h.make_tensor_value_info("present_k", T.FLOAT16, [B, HKV, "keys", D]),
         h.make_tensor_value_info("present_v", T.FLOAT16, [B, HKV, "keys", D])],
        [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()])
    return graph, [], inputs, [y, present_k, present_v], {"attention_calls": 1, "atol": 1e-2, "rtol": 1e-2}


def shape_of(name):
    heads = HQ if name == "q" else HKV
    if name == "mask":
        return [B, 1, "len", "keys"]
    return [B, heads, "past" if name.startswith("past") else "len", D]


def function_and_if_case(rng):
    """Attention as a model-local function with an attribute for the scale, inside the branch of an If; both branches differ."""
    attend = h.make_function(
        "local", "Attend", ["q", "k", "v"], ["o"],
        [h.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
         h.make_node("MatMul", ["q", "kt"], ["s"]),
         with_reference(h.make_node("Constant", [], ["c"]), "value_float", "scale"),
         h.make_node("Mul", ["s", "c"], ["t"]),
         h.make_node("Softmax", ["t"], ["p"], axis=-1),
         h.make_node("MatMul", ["p", "v"], ["o"])],
        [h.make_opsetid("", 17)], ["scale"])
    then_branch = h.make_graph([h.make_node("Attend", ["q", "k", "v"], ["then_y"], domain="local", scale=0.25)], "then", [],
                               [h.make_tensor_value_info("then_y", T.FLOAT, ["b", "s", 8])])
    else_branch = h.make_graph([h.make_node("Neg", ["v"], ["else_y"])], "else", [],
                               [h.make_tensor_value_info("else_y", T.FLOAT, ["b", "s", 8])])
    graph = h.make_graph(
        [h.make_node("If", ["use"], ["y"], then_branch=then_branch, else_branch=else_branch),
         h.make_node("Attend", ["q", "k", "y"], ["z"], domain="local", scale=0.5)],
        "function_and_if",
        [h.make_tensor_value_info("use", T.BOOL, []), *(h.make_tensor_value_info(n, T.FLOAT, ["b", "s", 8]) for n in "qkv")],
        [h.make_tensor_value_info("y", T.FLOAT, ["b", "s", 8]), h.make_tensor_value_info("z", T.FLOAT, ["b", "s", 8])])
    q, k, v = (rng.standard_normal((2, 5, 8)).astype(np.float32) for _ in range(3))
    q64, k64, v64 = (x.astype(np.float64) for x in (q, k, v))
    y = softmax(q64 @ k64.swapaxes(1, 2) * 0.25) @ v64
    z = softmax(q64 @ k64.swapaxes(1, 2) * 0.5) @ y
    inputs = {"use": np.array(True), "q": q, "k": k, "v": v}
    return graph, [attend], inputs, [y.astype(np.float32), z.astype(np.float32)], {"attention_calls": 2}


def mask_with_rows_of_its_own(rng):
    """One query and a mask of three rows for one key column: the sum repeats the query for each row, and the mask for each key."""
    q, k, v = (rng.standard_normal((2, 2, n, 8)).astype(np.float32) for n in (1, 5, 5))
    mask = rng.standard_normal((1, 2, 3, 1)).astype(np.float32)
    graph = h.make_graph(
        [h.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
         h.make_node("MatMul", ["q", "kt"], ["s"]),
         h.make_node("Add", ["s", "mask"], ["t"]),
         h.make_node("Softmax", ["t"], ["p"], axis=-1),
         h.make_node("MatMul", ["p", "v"], ["y"])],
        "mask_rows",
        [h.make_tensor_value_info("q", T.FLOAT, ["b", 2, "len", 8]), h.make_tensor_value_info("k", T.FLOAT, ["b", 2, "keys", 8]),
         h.make_tensor_value_info("v", T.FLOAT, ["b", 2, "keys", 8]),
         h.make_tensor_value_info("mask", T.FLOAT, [1, 2, "rows", "columns"])],
        [h.make_tensor_value_info("y", T.FLOAT, ["b", 2, "rows_out", 8])])
    y = softmax(q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3) + mask) @ v
    return graph, [], {"q": q, "k": k, "v": v, "mask": mask}, [y.astype(np.float32)], {"attention_calls": 1}


def with_reference(node, name, refers_to):
    attribute = node.attribute.add()
    attribute.name, attribute.ref_attr_name, attribute.type = name, refers_to, onnx.AttributeProto.FLOAT
    return node


def main(folder):
    rng = np.random.default_rng(20261130)
    cases = {
        "f16_cache_f32_mask": decode_case(rng, True),
        "f16_cache_f32_mask_cast": decode_case(rng, False),
        "function_and_if": function_and_if_case(rng),
        "mask_rows": mask_with_rows_of_its_own(rng),
    }
    for name, (graph, functions, inputs, outputs, meta) in cases.items():
        model = h.make_model(graph, functions=functions, ir_version=10,
                             opset_imports=[h.make_opsetid("", 17)] + [h.make_opsetid("local", 1)] * bool(functions))
        onnx.checker.check_model(model)
        case = Path(folder) / name
        case.mkdir(parents=True, exist_ok=True)
        (case / "model.onnx").write_bytes(model.SerializeToString())
        np.savez(case / "io.npz", **{f"in_{n}": a for n, a in inputs.items()}, **{f"out_{i}": a for i, a in enumerate(outputs)})
        (case / "meta.json").write_text(json.dumps({"name": name, **meta}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
