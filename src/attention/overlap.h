/* attention/overlap.h - may two strided arrays share memory? */
#ifndef HEED_ATTENTION_OVERLAP_H
#define HEED_ATTENTION_OVERLAP_H

#include "base/tensor.h"

/* 1 unless the two are known to have no byte in common. Views that interleave in one packed buffer are told apart. */
int heed_tensors_overlap(const heed_tensor *a, const heed_tensor *b);
/* 1 unless every element of the tensor is known to have bytes of its own. */
int heed_tensor_overlaps_itself(const heed_tensor *t);

#endif
