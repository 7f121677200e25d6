/* tensor.h - one ONNX TensorProto in a file: what the input_N.pb and output_N.pb of a test_data_set folder hold. */
#ifndef HEED_TOOLS_TENSOR_H
#define HEED_TOOLS_TENSOR_H

#include "array.h"

/* Read. *name is the tensor's own name, malloc'ed, "" if it has none. */
int heed_tensor_read_file(heed_array *out, char **name, const char *path);

#endif
