/* fault.h - how a failure travels through the tools: -1 up the stack, one line of words kept here until it is printed. */
#ifndef HEED_TOOLS_FAULT_H
#define HEED_TOOLS_FAULT_H

#include <stddef.h>

#if defined(__GNUC__)
#define HEED_FORMAT(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define HEED_FORMAT(fmt, args)
#endif

/* Exit codes of every command. */
enum { HEED_EXIT_OK = 0, HEED_EXIT_FAILED = 1, HEED_EXIT_USAGE = 2 };

/* Keep the words of a failure, on one line whatever the arguments hold, and return -1. */
int heed_fault(const char *fmt, ...) HEED_FORMAT(1, 2);
/* Put words in front of those that are there, and return -1: heed_fault_prefix("%s: ", path). */
int heed_fault_prefix(const char *fmt, ...) HEED_FORMAT(1, 2);
/* Take over the library's last message, with `subject` in front unless it begins with it already. */
int heed_fault_library(const char *subject);
const char *heed_fault_text(void);

/* Print "heed: ..." on the error stream and return HEED_EXIT_FAILED. */
int heed_fault_print(void);

/* Small memory, never NULL: without it the program says so and ends. What a file or model sizes is allocated as an array
 * (array.h), which may fail. */
void *heed_must_alloc(size_t bytes);
void *heed_must_grow(void *old, size_t bytes);
char *heed_must_copy(const char *text);
char *heed_must_print(const char *fmt, ...) HEED_FORMAT(1, 2);

#endif
