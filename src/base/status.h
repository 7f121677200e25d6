/* base/status.h - how a failure travels: a status up the stack, one line of words in a per-thread buffer. */
#ifndef HEED_BASE_STATUS_H
#define HEED_BASE_STATUS_H

#include <heed/common.h>

#if defined(__GNUC__)
#define HEED_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define HEED_PRINTF(fmt, args)
#endif

/* Keep the message (cut at 1023 characters, control characters replaced so that it stays one line) and return `status`:
 *     return heed_fail(HEED_ERR_ARGUMENT, "q: rank is %d, expected 4", rank); */
heed_status heed_fail(heed_status status, const char *fmt, ...) HEED_PRINTF(2, 3);

/* Put words in front of the message of a failure that passes by: "node 'MatMul_3': " + what was there. */
heed_status heed_fail_prefix(heed_status status, const char *fmt, ...) HEED_PRINTF(2, 3);

#define HEED_TRY(expr)                                                                                                           \
    do {                                                                                                                         \
        heed_status heed_try_status_ = (expr);                                                                                   \
        if (heed_try_status_ != HEED_OK) return heed_try_status_;                                                                \
    } while (0)

#endif
