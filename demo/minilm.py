"""The demo's default sentences and its tokenizer, shared with export.py."""
import numpy as np

SENTENCES = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "A cheetah is running behind its prey.",
    "Transformers spend most of their time in attention.",
    "Softmax of scaled dot products weighs the values.",
]


def encode(tokenizer, sentences):
    """Token ids and mask, int64 [sentences, longest], padded on the right."""
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(sentences))
    ids = np.array([e.ids for e in encoded], np.int64)
    mask = np.array([e.attention_mask for e in encoded], np.int64)
    return ids, mask
