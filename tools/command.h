/* command.h - a subcommand is a table row: what it is called, its options, and the function that runs it. Help texts, usage
 * errors and parsing come from here, the same for all, by the GNU conventions. */
#ifndef HEED_TOOLS_COMMAND_H
#define HEED_TOOLS_COMMAND_H

#include <stddef.h>
#include <stdint.h>

typedef struct heed_option heed_option;

/* Take an option's value into `field`; -1 after heed_fault(), without the option's name, if it is no good. */
typedef int heed_option_fn(void *field, const heed_option *option, const char *value);

struct heed_option {
    const char *name;  /* the long form, without dashes */
    const char *value; /* what its value is called in the help, NULL for a flag; "[X]" if it may be left out */
    const char *help;
    heed_option_fn *parse;
    size_t at;       /* offset of the field in the command's own struct */
    double min, max; /* of a number */
};

heed_option_fn heed_option_flag; /* int field = 1 */
heed_option_fn heed_option_text; /* const char * field */
heed_option_fn heed_option_int;  /* int64_t field, min to max */
heed_option_fn heed_option_real; /* double field, min to max */

typedef struct heed_command {
    const char *name;
    const char *operands; /* "MODEL --io F.npz" */
    const char *summary;  /* one line */
    const char *notes;    /* printed after the options: words and examples */
    const heed_option *options;
    int n_options;
    int min_operands, max_operands;
    int (*run)(int argc, char **argv);
} heed_command;

extern const heed_command heed_cmd_run, heed_cmd_explain, heed_cmd_check, heed_cmd_kernels;

/* Read the options into `state`. Returns the index of the first operand in argv (operands are moved to the end), or
 * -1 - EXIT when the command is over: help was printed, or a usage error. */
int heed_command_parse(const heed_command *command, int argc, char **argv, void *state);
/* Print the fault as a usage error and return HEED_EXIT_USAGE. */
int heed_command_misused(const heed_command *command);
void heed_command_help(const heed_command *command);

/* The whole of `text` as a number. */
int heed_parse_int(const char *text, int64_t min, int64_t max, int64_t *out);
int heed_parse_real(const char *text, double min, double max, double *out);

#endif
