/* Options by table, through getopt_long. */
#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"

enum { FIRST_OPTION = 256, HELP = 1, HELP_COLUMN = 30 }; /* getopt's numbers for options: past every letter */

int heed_parse_int(const char *text, int64_t min, int64_t max, int64_t *out)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end == text || *end || errno == ERANGE || n < min || n > max) {
        if (max == INT64_MAX) return heed_fault("'%s' is not a whole number of %lld or more", text, (long long) min);
        return heed_fault("'%s' is not a whole number from %lld to %lld", text, (long long) min, (long long) max);
    }
    *out = n;
    return 0;
}

int heed_parse_real(const char *text, double min, double max, double *out)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !isfinite(x) || x < min || x > max) {
        if (isinf(min)) return heed_fault("'%s' is not a number", text);
        return heed_fault("'%s' is not a number of %g or more", text, min);
    }
    *out = x;
    return 0;
}

int heed_option_flag(void *field, const heed_option *option, const char *value)
{
    (void) option, (void) value;
    *(int *) field = 1;
    return 0;
}

int heed_option_text(void *field, const heed_option *option, const char *value)
{
    (void) option;
    *(const char **) field = value;
    return 0;
}

int heed_option_int(void *field, const heed_option *option, const char *value)
{
    int64_t max = option->max >= 0x1p63 ? INT64_MAX : (int64_t) option->max;
    return heed_parse_int(value, (int64_t) option->min, max, field);
}

int heed_option_real(void *field, const heed_option *option, const char *value)
{
    return heed_parse_real(value, option->min, option->max, field);
}

/* Text of several lines, the first where the cursor is, the others from the help column on. */
static void print_help_text(const char *text)
{
    for (;;) {
        size_t n = strcspn(text, "\n");
        printf("%.*s\n", (int) n, text);
        if (!text[n]) return;
        text += n + 1;
        printf("%*s", HELP_COLUMN, "");
    }
}

static void print_option(const char *name, const char *value, const char *help)
{
    int optional = value && value[0] == '[';
    int n = printf("      --%s%s%s", name, optional ? "[=" : value ? "=" : "", value ? value + optional : "");
    if (n >= HELP_COLUMN - 1) putchar('\n'), n = 0;
    printf("%*s", HELP_COLUMN - n, "");
    print_help_text(help);
}

void heed_command_help(const heed_command *c)
{
    printf("Usage: heed %s %s\n%s\n\n", c->name, c->operands, c->summary);
    for (int i = 0; i < c->n_options; i++) print_option(c->options[i].name, c->options[i].value, c->options[i].help);
    print_option("help", NULL, "show this help and exit");
    printf("\n%s", c->notes);
}

int heed_command_misused(const heed_command *c)
{
    fprintf(stderr, "heed %s: %s\nTry 'heed %s --help' for more information.\n", c->name, heed_fault_text(), c->name);
    return HEED_EXIT_USAGE;
}

static struct option *getopt_table(const heed_command *c)
{
    struct option *table = heed_must_alloc(((size_t) c->n_options + 2) * sizeof *table);
    for (int i = 0; i < c->n_options; i++) {
        const char *value = c->options[i].value;
        int has = !value ? no_argument : value[0] == '[' ? optional_argument : required_argument;
        table[i] = (struct option){ c->options[i].name, has, NULL, FIRST_OPTION + i };
    }
    table[c->n_options] = (struct option){ "help", no_argument, NULL, HELP };
    return table;
}

static int take_option(const heed_command *c, const heed_option *option, void *state)
{
    if (option->parse((char *) state + option->at, option, optarg) == 0) return 0;
    heed_fault_prefix("option '--%s': ", option->name);
    return -1 - heed_command_misused(c);
}

static int check_operands(const heed_command *c, int argc, char **argv)
{
    int n = argc - optind;
    if (n < c->min_operands) heed_fault("missing MODEL");
    else if (n > c->max_operands) heed_fault("extra operand '%s'", argv[optind + c->max_operands]);
    else return optind;
    return -1 - heed_command_misused(c);
}

int heed_command_parse(const heed_command *c, int argc, char **argv, void *state)
{
    struct option *table = getopt_table(c);
    char *name = heed_must_print("heed %s", c->name); /* getopt_long prints its errors behind argv[0] */
    argv[0] = name;
    int rc = 0, found;
    while (rc == 0 && (found = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (found == HELP) {
            heed_command_help(c);
            rc = -1 - HEED_EXIT_OK;
        } else if (found == '?') {
            fprintf(stderr, "Try 'heed %s --help' for more information.\n", c->name);
            rc = -1 - HEED_EXIT_USAGE;
        } else {
            rc = take_option(c, &c->options[found - FIRST_OPTION], state);
        }
    }
    free(table), free(name);
    return rc ? rc : check_operands(c, argc, argv);
}
