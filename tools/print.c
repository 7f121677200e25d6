/* Tables, styles, JSON, progress. */
#include "print.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int has_colour(void)
{
    static int known = -1;
    if (known < 0) {
        const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
        known = isatty(STDOUT_FILENO) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
    }
    return known;
}

const char *heed_style_on(heed_style style)
{
    static const char *const codes[] = { "", "\033[1m", "\033[32m", "\033[31m" };
    return has_colour() ? codes[style] : "";
}

const char *heed_style_off(heed_style style)
{
    return style != HEED_STYLE_PLAIN && has_colour() ? "\033[0m" : "";
}

typedef struct cell {
    char *text;
    size_t width;
    heed_style style;
} cell;

struct heed_table {
    const char *columns;
    size_t n_columns, n, room;
    cell *cells;
};

heed_table *heed_table_create(const char *columns)
{
    heed_table *t = heed_must_alloc(sizeof *t);
    *t = (heed_table){ .columns = columns, .n_columns = strlen(columns) };
    return t;
}

/* Characters, not bytes: those of UTF-8 that begin one. */
static size_t width_of(const char *text)
{
    size_t n = 0;
    for (; *text; text++) n += ((unsigned char) *text & 0xc0) != 0x80;
    return n;
}

static void to_one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char) *text < 0x20 || *text == 0x7f) *text = ' ';
}

void heed_table_add(heed_table *t, heed_style style, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    to_one_line(text);
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->cells = heed_must_grow(t->cells, t->room * sizeof *t->cells);
    }
    t->cells[t->n++] = (cell){ heed_must_copy(text), width_of(text), style };
}

static void print_cell(const cell *c, size_t width, int right, int last)
{
    int space = (int) (width - c->width);
    if (right) printf("%*s", space, "");
    printf("%s%s%s", heed_style_on(c->style), c->text, heed_style_off(c->style));
    if (!right && !last) printf("%*s", space, "");
    fputs(last ? "\n" : "  ", stdout);
}

void heed_table_print(heed_table *t)
{
    size_t *widths = heed_must_alloc(t->n_columns * sizeof *widths);
    for (size_t i = 0; i < t->n; i++)
        if (t->cells[i].width > widths[i % t->n_columns]) widths[i % t->n_columns] = t->cells[i].width;
    for (size_t i = 0; i < t->n; i++) {
        size_t column = i % t->n_columns;
        if (i < t->n_columns) t->cells[i].style = HEED_STYLE_BOLD;
        print_cell(&t->cells[i], widths[column], t->columns[column] == 'r', column == t->n_columns - 1);
    }
    free(widths);
    heed_table_destroy(t);
}

void heed_table_destroy(heed_table *t)
{
    for (size_t i = 0; i < t->n; i++) free(t->cells[i].text);
    free(t->cells), free(t);
}

void heed_print_indented(const char *indent, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        printf("%s%.*s\n", indent, (int) n, text);
        text += n + (text[n] == '\n');
    }
}

void heed_json_init(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){ heed_must_alloc, free });
}

/* Length of the UTF-8 character at p, 0 if there is none (RFC 3629: no overlong forms, no surrogates). */
static size_t utf8_length(const unsigned char *p)
{
    if (p[0] < 0x80) return 1;
    size_t n = p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f)) return 0;
    if ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)) return 0;
    return n;
}

void heed_json_text(cJSON *object, const char *name, const char *text)
{
    char *valid = heed_must_alloc(3 * strlen(text) + 1), *to = valid;
    for (const unsigned char *p = (const unsigned char *) text; *p;) {
        size_t n = utf8_length(p);
        memcpy(to, n ? (const char *) p : "\xef\xbf\xbd", n ? n : 3); /* U+FFFD stands for what is no character */
        to += n ? n : 3, p += n ? n : 1;
    }
    cJSON_AddStringToObject(object, name, valid);
    free(valid);
}

void heed_json_number(cJSON *object, const char *name, double x)
{
    if (isfinite(x)) cJSON_AddNumberToObject(object, name, x);
    else cJSON_AddNullToObject(object, name);
}

cJSON *heed_json_shape(int ndim, const int64_t *shape)
{
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; i < ndim; i++)
        cJSON_AddItemToArray(array, shape[i] < 0 ? cJSON_CreateNull() : cJSON_CreateNumber((double) shape[i]));
    return array;
}

void heed_json_print(cJSON *object)
{
    char *text = cJSON_Print(object);
    if (text) puts(text);
    free(text);
    cJSON_Delete(object);
}

void heed_progress(int i, int n, const char *name)
{
    static struct timespec last;
    static int shown;
    struct timespec now;
    if (!isatty(STDERR_FILENO)) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (name && (double) (now.tv_sec - last.tv_sec) + (double) (now.tv_nsec - last.tv_nsec) * 1e-9 < 0.1) return;
    if (name) fprintf(stderr, "\r\033[K[%d/%d] %s", i, n, name);
    else if (shown) fputs("\r\033[K", stderr);
    shown = name != NULL, last = now;
    fflush(stderr);
}
