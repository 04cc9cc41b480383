/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads the process's own command line with nbdkit's options.
 */
#include "ubd-cmdline.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* nbdkit(1).  Only what takes an argument must be known, and what is asked. */
static const char short_options[] = "+D:e:g:i:p:P:rt:u:U:46fnosvV";
static const struct option long_options[] = {
    {"debug",            required_argument, NULL, 'D'},
    {"export-name",      required_argument, NULL, 'e'},
    {"exportname",       required_argument, NULL, 'e'},
    {"filter",           required_argument, NULL, 1  },
    {"group",            required_argument, NULL, 'g'},
    {"ip-addr",          required_argument, NULL, 'i'},
    {"ipaddr",           required_argument, NULL, 'i'},
    {"log",              required_argument, NULL, 1  },
    {"mask-handshake",   required_argument, NULL, 1  },
    {"pid-file",         required_argument, NULL, 'P'},
    {"pidfile",          required_argument, NULL, 'P'},
    {"port",             required_argument, NULL, 'p'},
    {"read-only",        no_argument,       NULL, 'r'},
    {"readonly",         no_argument,       NULL, 'r'},
    {"run",              required_argument, NULL, 1  },
    {"selinux-label",    required_argument, NULL, 1  },
    {"threads",          required_argument, NULL, 't'},
    {"tls",              required_argument, NULL, 1  },
    {"tls-certificates", required_argument, NULL, 1  },
    {"tls-psk",          required_argument, NULL, 1  },
    {"unix",             required_argument, NULL, 'U'},
    {"user",             required_argument, NULL, 'u'},
    {NULL,               0,                 NULL, 0  },
};

/* The words of @text, each ended by NUL, as an argv. */
static char **
split(char *text, size_t len, int *ret_argc)
{
    char **argv = NULL;
    int argc = 0;

    for (char *word = text; word < text + len; word += strlen(word) + 1) {
        char **more = realloc(argv, (argc + 2) * sizeof argv[0]);

        if (!more) {
            free(argv);
            return NULL;
        }
        argv = more;
        argv[argc++] = word;
        argv[argc] = NULL;
    }
    *ret_argc = argc;
    return argv;
}

static bool
has_readonly(int argc, char **argv)
{
    /* getopt's state is the process's, and nbdkit uses it, too. */
    const int saved_ind = optind, saved_err = opterr;
    bool is_readonly = false;
    int c;

    opterr = 0;
    optind = 0;
    for (;;) {
        c = getopt_long(argc, argv, short_options, long_options, NULL);
        if (c == 'r')
            is_readonly = true;
        if (c != -1)
            continue;
        if (optind >= argc || strcmp(argv[optind - 1], "--") == 0)
            break;
        optind++; /* A word: nbdkit allows options after words. */
    }
    optind = saved_ind;
    opterr = saved_err;
    return is_readonly;
}

int
ubd_cmdline_is_readonly(void)
{
    FILE *file = fopen("/proc/self/cmdline", "re");
    char *text = NULL;
    char **argv = NULL;
    size_t size = 0;
    ssize_t len;
    int argc = 0;
    int r = -ENOMEM;

    if (!file)
        return -errno;
    len = getdelim(&text, &size, EOF, file);
    if (len > 0)
        argv = split(text, len, &argc);
    if (argv)
        r = has_readonly(argc, argv);
    free(argv);
    free(text);
    fclose(file);
    return r;
}
