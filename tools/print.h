/* print.h - what the commands print: tables, colour where a terminal shows it, JSON, progress. */
#ifndef HEED_TOOLS_PRINT_H
#define HEED_TOOLS_PRINT_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "fault.h"

typedef enum heed_style { HEED_STYLE_PLAIN, HEED_STYLE_BOLD, HEED_STYLE_GOOD, HEED_STYLE_BAD } heed_style;

/* The escape sequences around styled text on standard output: "" unless that is a terminal and NO_COLOR is unset. */
const char *heed_style_on(heed_style style);
const char *heed_style_off(heed_style style);

/* Rows of cells, printed when all widths are known. Control characters in cells become spaces. */
typedef struct heed_table heed_table;

/* `columns` is one letter each, l or r for the side a cell stands on. */
heed_table *heed_table_create(const char *columns);
/* The next cell, row by row. */
void heed_table_add(heed_table *table, heed_style style, const char *fmt, ...) HEED_FORMAT(3, 4);
/* Print to standard output and free. The first row is the heading. */
void heed_table_print(heed_table *table);
/* Free without printing. */
void heed_table_destroy(heed_table *table);

/* Print text, each of its lines behind `indent`. */
void heed_print_indented(const char *indent, const char *text);

/* cJSON, with the care that its callers here want: text becomes valid UTF-8, a number that JSON cannot hold becomes null,
 * and running out of memory ends the program. */
void heed_json_init(void);
void heed_json_text(cJSON *object, const char *name, const char *text);
void heed_json_number(cJSON *object, const char *name, double x);
cJSON *heed_json_shape(int ndim, const int64_t *shape); /* an array; dimensions below 0 are null */
/* Print to standard output and delete. */
void heed_json_print(cJSON *object);

/* "[3/120] name" on the error stream if that is a terminal, at most ten times a second; a call with name NULL clears it. */
void heed_progress(int i, int n, const char *name);

#endif
