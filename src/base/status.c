/* The per-thread message and the names of statuses. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];

static void make_one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char) *text < 0x20 || *text == 0x7f) *text = ' ';
}

heed_status heed_fail(heed_status status, const char *fmt, ...)
{
    char text[sizeof message]; /* the arguments may point into `message` */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    make_one_line(text);
    memcpy(message, text, sizeof message);
    return status;
}

heed_status heed_fail_prefix(heed_status status, const char *fmt, ...)
{
    char text[sizeof message];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "%s", message);
    make_one_line(text);
    memcpy(message, text, sizeof message);
    return status;
}

const char *heed_last_message(void)
{
    return message;
}

const char *heed_status_string(heed_status status)
{
    switch (status) {
    case HEED_OK: return "HEED_OK";
    case HEED_ERR_ARGUMENT: return "HEED_ERR_ARGUMENT";
    case HEED_ERR_MEMORY: return "HEED_ERR_MEMORY";
    case HEED_ERR_UNSUPPORTED: return "HEED_ERR_UNSUPPORTED";
    case HEED_ERR_FILE: return "HEED_ERR_FILE";
    case HEED_ERR_FORMAT: return "HEED_ERR_FORMAT";
    case HEED_ERR_DEVICE: return "HEED_ERR_DEVICE";
    case HEED_ERR_INTERNAL: return "HEED_ERR_INTERNAL";
    }
    return "unknown status";
}

#define HEED_STR_(x) #x
#define HEED_STR(x) HEED_STR_(x)

int heed_version_number(void)
{
    return HEED_VERSION_MAJOR * 10000 + HEED_VERSION_MINOR * 100 + HEED_VERSION_PATCH;
}

const char *heed_version_string(void)
{
    return HEED_STR(HEED_VERSION_MAJOR) "." HEED_STR(HEED_VERSION_MINOR) "." HEED_STR(HEED_VERSION_PATCH);
}
