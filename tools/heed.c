/* heed - the command line. One row a subcommand; this file finds the row, and sees that what was printed arrived. */
#include <errno.h>
#include <heed/heed.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "fault.h"
#include "print.h"

static const heed_command *const commands[] = { &heed_cmd_run, &heed_cmd_explain, &heed_cmd_check, &heed_cmd_kernels };

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

/* Output that did not reach its place (a full disk, a closed pipe) is a failure, found only when the stream closes. */
static void close_stdout(void)
{
    errno = 0;
    int failed = ferror(stdout);
    if (fclose(stdout) != 0) failed = 1;
    if (!failed) return;
    fprintf(stderr, "heed: write error: %s\n", errno ? strerror(errno) : "standard output failed");
    _Exit(HEED_EXIT_FAILED);
}

static const heed_command *find(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

static int print_help(void)
{
    puts("Usage: heed COMMAND [OPTION]...\n"
         "Run models from ONNX files with their attention fused, and say what was fused and why.\n");
    for (int i = 0; i < N_COMMANDS; i++) printf("  %-10s%s\n", commands[i]->name, commands[i]->summary);
    puts("  help      show the help of a command\n"
         "\n"
         "      --help     show this help and exit\n"
         "      --version  show the version and exit\n"
         "\n"
         "Exit status: 0 all is well, 1 something failed or does not hold, 2 wrong usage.\n"
         "\n"
         "Examples:\n"
         "  heed explain model.onnx                    what fuses, what does not, and why\n"
         "  heed run model.onnx --random --repeat 20   try a model out and time it\n"
         "  heed check model.onnx --io io.npz          fused against unfused against expected");
    return HEED_EXIT_OK;
}

static int print_version(void)
{
    printf("heed %s\n", heed_version_string());
    return HEED_EXIT_OK;
}

static int misused(void)
{
    fprintf(stderr, "heed: %s\nTry 'heed --help' for more information.\n", heed_fault_text());
    return HEED_EXIT_USAGE;
}

static int unknown(const char *word)
{
    if (word[0] == '-') heed_fault("unrecognized option '%s'", word);
    else heed_fault("unknown command '%s'", word);
    return misused();
}

static int help_on(const char *name)
{
    const heed_command *command = find(name);
    if (!command) return unknown(name);
    heed_command_help(command);
    return HEED_EXIT_OK;
}

int main(int argc, char **argv)
{
    atexit(close_stdout);
    heed_json_init();
    if (argc < 2) {
        heed_fault("missing command");
        return misused();
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || (strcmp(word, "help") == 0 && argc == 2)) return print_help();
    if (strcmp(word, "--version") == 0) return print_version();
    if (strcmp(word, "help") == 0) return help_on(argv[2]);
    const heed_command *command = find(word);
    return command ? command->run(argc - 1, argv + 1) : unknown(word);
}
