/* Inputs and expected outputs from npz files, from folders of ONNX test data, or made up. */
#include "case.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "fault.h"
#include "file.h"
#include "tensor.h"

void heed_case_create(heed_case *c, const heed_runner *r, const char *source)
{
    *c = (heed_case){ .source = heed_must_copy(source),
                      .n_inputs = heed_model_input_count(r->model),
                      .n_outputs = heed_model_output_count(r->model) };
    c->inputs = heed_must_alloc((size_t) c->n_inputs * sizeof *c->inputs);
    c->expected = heed_must_alloc((size_t) c->n_outputs * sizeof *c->expected);
}

void heed_case_destroy(heed_case *c)
{
    heed_arrays_destroy(c->inputs, c->n_inputs);
    heed_arrays_destroy(c->expected, c->n_outputs);
    free(c->inputs), free(c->expected), free(c->source);
    *c = (heed_case){ 0 };
}

/* "f32 [batch, 3]", with the names that the model gives to dimensions. */
static char *describe(const heed_value_info *info)
{
    if (info->ndim < 0) return heed_must_print("%s of any shape", heed_type_name(info->dtype));
    char *text = heed_must_print("%s [", heed_type_name(info->dtype));
    for (int d = 0; d < info->ndim; d++) {
        const char *comma = d ? ", " : "", *name = info->dim_names[d] ? info->dim_names[d] : "?";
        char *longer = info->shape[d] >= 0 ? heed_must_print("%s%s%lld", text, comma, (long long) info->shape[d])
                                           : heed_must_print("%s%s%s", text, comma, name);
        free(text);
        text = longer;
    }
    char *whole = heed_must_print("%s]", text);
    free(text);
    return whole;
}

int heed_case_require_inputs(const heed_case *c, const heed_runner *r)
{
    for (int i = 0; i < c->n_inputs; i++) {
        if (c->inputs[i].type) continue;
        heed_value_info info = heed_runner_input(r, i);
        char *what = describe(&info);
        heed_fault("%s: input '%s' (%s) is missing%s%s", r->path, info.name, what, c->source[0] ? " in " : "", c->source);
        free(what);
        return -1;
    }
    return 0;
}

int heed_case_read_inputs(heed_case *c, const heed_runner *r, const char *npz_path)
{
    heed_npz *npz;
    if (heed_npz_open(&npz, npz_path) != 0) return -1;
    int rc = 0;
    for (int i = 0; i < c->n_inputs && rc >= 0; i++) {
        if (c->inputs[i].type) continue;
        const char *name = heed_runner_input(r, i).name;
        char *marked = heed_must_print("in_%s", name);
        rc = heed_npz_read(npz, name, &c->inputs[i]);
        if (rc == 0) rc = heed_npz_read(npz, marked, &c->inputs[i]);
        free(marked);
    }
    heed_npz_close(npz);
    return rc < 0 ? -1 : 0;
}

static int require_expected(const heed_case *c)
{
    for (int i = 0; i < c->n_outputs; i++)
        if (c->expected[i].type) return 0;
    return heed_fault("%s: holds no expected output", c->source);
}

int heed_case_from_npz(heed_case *c, const heed_runner *r, const char *path)
{
    heed_case_create(c, r, path);
    heed_npz *npz;
    int rc = heed_npz_open(&npz, path);
    for (int i = 0; i < c->n_inputs && rc >= 0; i++) {
        char *key = heed_must_print("in_%s", heed_runner_input(r, i).name);
        rc = heed_npz_read(npz, key, &c->inputs[i]);
        free(key);
    }
    for (int i = 0; i < c->n_outputs && rc >= 0; i++) {
        char *key = heed_must_print("out_%d", i);
        rc = heed_npz_read(npz, key, &c->expected[i]);
        free(key);
    }
    heed_npz_close(npz);
    if (rc >= 0 && heed_case_require_inputs(c, r) == 0 && require_expected(c) == 0) return 0;
    heed_case_destroy(c);
    return -1;
}

/* ------------------------------------------------------------------------------------------------- made up */

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double next_normal(uint64_t *state) /* Box and Muller */
{
    double u = ((double) (next_random(state) >> 11) + 1) * 0x1p-53, v = (double) (next_random(state) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static int random_shape(heed_value_info *info, const heed_bindings *dims)
{
    for (int d = 0; d < info->ndim; d++) {
        if (info->shape[d] >= 0) continue;
        info->shape[d] = 1;
        for (int i = 0; info->dim_names[d] && i < dims->n; i++)
            if (strcmp(dims->items[i].name, info->dim_names[d]) == 0 &&
                heed_parse_int(dims->items[i].value, 0, INT64_MAX, &info->shape[d]) != 0)
                return heed_fault_prefix("dimension '%s': ", dims->items[i].name);
    }
    return 0;
}

int heed_case_randomize(heed_case *c, const heed_runner *r, const heed_bindings *dims, uint64_t seed)
{
    for (int i = 0; i < c->n_inputs; i++) {
        heed_array *a = &c->inputs[i];
        if (a->type) continue;
        heed_value_info info = heed_runner_input(r, i);
        const heed_type *type = heed_type_from_dl(info.dtype);
        if (!type || info.ndim < 0)
            return heed_fault("%s: input '%s': type or rank is not known, --random cannot make it", r->path, info.name);
        if (random_shape(&info, dims) != 0) return -1;
        if (heed_array_create(a, type, info.ndim, info.shape) != 0)
            return heed_fault_prefix("%s: input '%s': ", r->path, info.name);
        for (int64_t k = 0, n = heed_array_count(a); k < n; k++)
            heed_array_set(a, k, heed_type_is_float(type) ? next_normal(&seed) : (double) (next_random(&seed) >> 63));
    }
    return 0;
}

/* ------------------------------------------------------------------------------------ ONNX test data folders */

/* Read input_0.pb, input_1.pb, ... as far as they go. A tensor belongs to the value of its own name, or of its number. */
static int read_tensors(heed_array *to, int n, const heed_runner *r, const char *folder, const char *what,
                        int (*find)(const heed_runner *r, const char *name))
{
    for (int i = 0;; i++) {
        char *path = heed_must_print("%s/%s_%d.pb", folder, what, i), *name = NULL;
        int rc = 0;
        if (!heed_file_exists(path)) {
            free(path);
            return 0;
        }
        heed_array a;
        if ((rc = heed_tensor_read_file(&a, &name, path)) == 0) {
            int at = find(r, name);
            if (at < 0) at = i;
            if (at >= n || to[at].type) {
                rc = heed_fault("%s: the model has no %s for it", path, what);
                heed_array_destroy(&a);
            } else {
                to[at] = a;
            }
        }
        free(path), free(name);
        if (rc != 0) return -1;
    }
}

static int case_from_folder(heed_case *c, const heed_runner *r, const char *folder)
{
    heed_case_create(c, r, folder);
    if (read_tensors(c->inputs, c->n_inputs, r, folder, "input", heed_runner_find_input) == 0 &&
        read_tensors(c->expected, c->n_outputs, r, folder, "output", heed_runner_find_output) == 0 &&
        heed_case_require_inputs(c, r) == 0 && require_expected(c) == 0)
        return 0;
    heed_case_destroy(c);
    return -1;
}

static int is_data_set(const struct dirent *entry)
{
    return strncmp(entry->d_name, "test_data_set_", 14) == 0;
}

int heed_cases_from_folder(heed_case **cases, int *n, const heed_runner *r, const char *path)
{
    *cases = NULL, *n = 0;
    if (!heed_file_is_folder(path)) return heed_fault("%s: is not a folder", path);
    struct dirent **entries = NULL;
    int n_sets = scandir(path, &entries, is_data_set, versionsort), rc = 0;
    *cases = heed_must_alloc((size_t) (n_sets > 0 ? n_sets : 1) * sizeof **cases);
    if (n_sets <= 0) {
        rc = case_from_folder(*cases, r, path);
        *n = rc == 0;
    }
    for (int i = 0; i < n_sets; i++) {
        char *folder = heed_must_print("%s/%s", path, entries[i]->d_name);
        if (rc == 0 && (rc = case_from_folder(&(*cases)[*n], r, folder)) == 0) ++*n;
        free(folder), free(entries[i]);
    }
    free(entries);
    if (rc == 0) return 0;
    for (int i = 0; i < *n; i++) heed_case_destroy(&(*cases)[i]);
    free(*cases);
    *cases = NULL, *n = 0;
    return -1;
}
