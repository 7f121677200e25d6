"""Unfused attention in PyTorch (the math back end) and onnxruntime (MatMul, Softmax, MatMul): medians and best times in
microseconds.

    python bench/peers/unfused.py [--batch 8] [--heads 8] [--len 128] [--dim 64] [--threads 2] [--calls 201]

All calls of one come before those of the other: called in turn, the idle threads of each spin in the other's way. Needs numpy, onnx, onnxruntime, torch.
"""
import argparse
import statistics
import time

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch.nn.attention import SDPBackend, sdpa_kernel


def torch_call(q, k, v, threads):
    torch.set_num_threads(threads)
    tensors = [torch.from_numpy(x) for x in (q, k, v)]

    def call():
        with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(*tensors).numpy()

    return call


def onnxruntime_call(q, k, v, threads):
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [q.shape[-1] ** -0.5])
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["products"]),
        helper.make_node("Mul", ["products", "scale"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["out"]),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in zip("qkv", (q, k, v))]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, q.shape)]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, [scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = dict(zip("qkv", (q, k, v)))
    return lambda: session.run(None, feed)[0]


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("batch", 8), ("heads", 8), ("len", 128), ("dim", 64), ("threads", 2), ("calls", 201)):
        parser.add_argument("--" + name, type=int, default=value)
    a = parser.parse_args()
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((a.batch, a.heads, a.len, a.dim), dtype=np.float32) for _ in range(3))
    arms = {
        f"torch {torch.__version__} math": torch_call(q, k, v, a.threads),
        f"onnxruntime {onnxruntime.__version__} unfused": onnxruntime_call(q, k, v, a.threads),
    }
    times = {name: [] for name in arms}
    results = {name: call() for name, call in arms.items()}
    for name, call in arms.items():
        for n in range(a.calls + 20):
            start = time.perf_counter()
            call()
            if n >= 20:
                times[name].append((time.perf_counter() - start) * 1e6)
    for name in arms:
        median, best = statistics.median(times[name]), min(times[name])
        print(f"{name}: {median:.1f} us (best {best:.1f}): median of {a.calls}, {a.threads} threads")
    first, second = results.values()
    print(f"largest difference {np.abs(first - second).max():.3g}")


if __name__ == "__main__":
    main()
