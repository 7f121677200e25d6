#!/usr/bin/env python3
"""Whole models: heed fused, heed unfused and onnxruntime's CPU provider on the same inputs, in alternating rounds.

    bench/peers/model.py MODEL.onnx --inputs IN.npz [--heed build/tools/heed] [--threads 2] [--rounds 7] [--repeat 10]

Prints for each arm the median over all runs, and for each other arm the ratio to heed fused: the median of the rounds' ratios, with
the lowest and highest round. Needs numpy and onnxruntime.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

# Kept out of both sides: they pin an older BLAS kernel.
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)

import numpy as np
import onnxruntime


def heed_arm(options, *extra):
    def run():
        done = subprocess.run(
            [options.heed, "run", options.model, "--inputs", options.inputs, "--threads", str(options.threads),
             "--repeat", str(options.repeat), "--json", *extra], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["time_ms"]["median"]
    return run


def onnxruntime_arm(options):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    session = onnxruntime.InferenceSession(options.model, settings, providers=["CPUExecutionProvider"])
    arrays = np.load(options.inputs)
    feeds = {name.removeprefix("in_"): arrays[name] for name in arrays.files if not name.startswith("out_")}
    session.run(None, feeds)

    def run():
        times = []
        for _ in range(options.repeat):
            start = time.perf_counter()
            session.run(None, feeds)
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times)
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--heed", default="build/tools/heed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeat", type=int, default=10)
    options = parser.parse_args()

    arms = {"heed fused": heed_arm(options), "heed unfused": heed_arm(options, "--no-fuse"),
            "onnxruntime " + onnxruntime.__version__: onnxruntime_arm(options)}
    rounds = []
    for i in range(options.rounds):
        order = list(arms) if i % 2 == 0 else list(arms)[::-1]
        rounds.append({name: arms[name]() for name in order})
    base = "heed fused"
    for name in arms:
        ratios = sorted(r[name] / r[base] for r in rounds)
        print(f"{name:24} {statistics.median(r[name] for r in rounds):9.2f} ms   {statistics.median(ratios):5.2f} x "
              f"[{ratios[0]:.2f}, {ratios[-1]:.2f}]")


if __name__ == "__main__":
    main()
