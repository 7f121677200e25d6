/* cmocka wants its friends before it, in this order. */
#ifndef HEED_TESTS_TEST_H
#define HEED_TESTS_TEST_H
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */
#endif
