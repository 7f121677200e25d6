/* Tensors whose data lie in another file of the model's folder, mapped read-only. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx/importer.h"

static const char *entry(const tensor_proto *proto, const char *key)
{
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const Heed__Onnx__StringStringEntryProto *pair = proto->external_data[i];
        if (pair->key && strcmp(pair->key, key) == 0) return pair->value ? pair->value : "";
    }
    return NULL;
}

static heed_status number_entry(const tensor_proto *proto, const char *key, size_t otherwise, size_t *out)
{
    const char *text = entry(proto, key);
    *out = otherwise;
    if (!text) return HEED_OK;
    size_t x = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) x = heed_size_add(heed_size_mul(x, 10), (size_t) (*at - '0'));
    if (at == text || *at || x >= PTRDIFF_MAX)
        return heed_fail(HEED_ERR_FORMAT, "external data: %s is '%.40s', expected a number of bytes", key, text);
    *out = x;
    return HEED_OK;
}

/* A path that, link by link, leads to something inside the folder. */
static heed_status find_file(struct import *im, const char *location, char **out)
{
    if (!im->folder) return heed_fail(HEED_ERR_FILE, "external data '%.120s': the model has no folder to look in", location);
    if (!*location || *location == '/')
        return heed_fail(HEED_ERR_FORMAT, "external data '%.120s': expected a path relative to the model's folder", location);
    char *path = heed_arena_printf(im->arena, "%s/%s", im->folder, location);
    if (!path) return HEED_NO_MEMORY();
    char *root = realpath(im->folder, NULL), *real = realpath(path, NULL);
    heed_status status = HEED_OK;
    size_t n = root ? strlen(root) : 0;
    if (!root || !real) status = heed_fail(HEED_ERR_FILE, "external data '%.120s': %s", location, strerror(errno));
    else if (n > 1 && (strncmp(root, real, n) != 0 || real[n] != '/'))
        status = heed_fail(HEED_ERR_FORMAT, "external data '%.120s': lies outside the model's folder", location);
    else if (!(*out = heed_arena_strdup(im->arena, real))) status = HEED_NO_MEMORY();
    free(root);
    free(real);
    return status;
}

static heed_status map_open_file(struct import *im, int file, const char *location, struct heed_onnx_map *map)
{
    struct stat about;
    if (fstat(file, &about) != 0) return heed_fail(HEED_ERR_FILE, "external data '%.120s': %s", location, strerror(errno));
    if (!S_ISREG(about.st_mode)) return heed_fail(HEED_ERR_FILE, "external data '%.120s': is not a regular file", location);
    map->bytes = (size_t) about.st_size;
    if (map->bytes) map->data = mmap(NULL, map->bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (map->data == MAP_FAILED)
        return heed_fail(HEED_ERR_FILE, "external data '%.120s': cannot be mapped: %s", location, strerror(errno));
    map->next = im->model->maps;
    im->model->maps = map;
    return HEED_OK;
}

/* Each location is mapped once. */
static heed_status find_map(struct import *im, const char *location, const struct heed_onnx_map **out)
{
    void **known = heed_names_add(&im->files, location, strlen(location));
    if (!known) return HEED_NO_MEMORY();
    if (!*known) {
        char *path = NULL;
        HEED_TRY(find_file(im, location, &path));
        struct heed_onnx_map *map = HEED_NEW(im->model->graph->arena, struct heed_onnx_map);
        if (!map) return HEED_NO_MEMORY();
        int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
        if (file < 0) return heed_fail(HEED_ERR_FILE, "external data '%.120s': %s", location, strerror(errno));
        heed_status status = map_open_file(im, file, location, map);
        close(file);
        if (status) return status;
        *known = map;
    }
    *out = *known;
    return HEED_OK;
}

heed_status heed_onnx_external(struct import *im, const tensor_proto *proto, size_t bytes, const void **out)
{
    const char *location = entry(proto, "location");
    const struct heed_onnx_map *map = NULL;
    size_t offset, length;
    if (!location) return heed_fail(HEED_ERR_FORMAT, "external data: has no location");
    HEED_TRY(number_entry(proto, "offset", 0, &offset));
    HEED_TRY(number_entry(proto, "length", bytes, &length));
    if (length != bytes)
        return heed_fail(HEED_ERR_FORMAT, "external data '%.120s': length is %zu, expected %zu", location, length, bytes);
    HEED_TRY(find_map(im, location, &map));
    if (offset > map->bytes || bytes > map->bytes - offset)
        return heed_fail(HEED_ERR_FORMAT, "external data '%.120s': bytes %zu to %zu, but the file has %zu", location, offset,
                         offset + bytes, map->bytes);
    *out = map->data ? (const unsigned char *) map->data + offset : NULL;
    return HEED_OK;
}

void heed_onnx_unmap(struct heed_onnx_map *maps)
{
    for (; maps; maps = maps->next)
        if (maps->data) munmap(maps->data, maps->bytes);
}
