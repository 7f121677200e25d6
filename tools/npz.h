/* npz.h - NumPy's .npz: a zip archive of .npy members, stored or deflated. */
#ifndef HEED_TOOLS_NPZ_H
#define HEED_TOOLS_NPZ_H

#include "array.h"

typedef struct heed_npz heed_npz;

int heed_npz_open(heed_npz **out, const char *path);
void heed_npz_close(heed_npz *npz);
/* Read the array called `key`: 1 read, 0 there is none, -1 it is there but wrong. */
int heed_npz_read(heed_npz *npz, const char *key, heed_array *out);
/* Name of array number i without ".npy", NULL past the last; valid until the next call. */
const char *heed_npz_key(heed_npz *npz, int i);

/* Write arrays under their names: the whole file, or what was there before stays. */
int heed_npz_write(const char *path, int n, const char *const *names, const heed_array *arrays);

#endif
