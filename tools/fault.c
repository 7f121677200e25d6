/* The words of the last failure, and memory that may not fail. */
#include "fault.h"

#include <heed/heed.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char fault[1024];

static void keep(const char *text)
{
    size_t n = strlen(text);
    if (n >= sizeof fault) n = sizeof fault - 1;
    for (size_t i = 0; i < n; i++) fault[i] = (unsigned char) text[i] < 0x20 || text[i] == 0x7f ? ' ' : text[i];
    fault[n] = 0;
}

int heed_fault(const char *fmt, ...)
{
    char text[sizeof fault]; /* the arguments may point into `fault` */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    keep(text);
    return -1;
}

int heed_fault_prefix(const char *fmt, ...)
{
    char text[2 * sizeof fault];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof fault, fmt, args);
    va_end(args);
    strcat(text, fault);
    keep(text);
    return -1;
}

int heed_fault_library(const char *subject)
{
    const char *message = heed_last_message();
    if (!subject || strncmp(message, subject, strlen(subject)) == 0) return heed_fault("%s", message);
    return heed_fault("%s: %s", subject, message);
}

const char *heed_fault_text(void)
{
    return fault;
}

int heed_fault_print(void)
{
    fprintf(stderr, "heed: %s\n", fault);
    return HEED_EXIT_FAILED;
}

void *heed_must_grow(void *old, size_t bytes)
{
    void *ptr = realloc(old, bytes ? bytes : 1);
    if (ptr) return ptr;
    fputs("heed: out of memory\n", stderr);
    exit(HEED_EXIT_FAILED);
}

void *heed_must_alloc(size_t bytes)
{
    return memset(heed_must_grow(NULL, bytes), 0, bytes);
}

char *heed_must_copy(const char *text)
{
    size_t n = strlen(text) + 1;
    return memcpy(heed_must_grow(NULL, n), text, n);
}

char *heed_must_print(const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = heed_must_grow(NULL, (size_t) (n < 0 ? 0 : n) + 1);
    text[0] = 0;
    if (n > 0) vsnprintf(text, (size_t) n + 1, fmt, again);
    va_end(again);
    return text;
}
