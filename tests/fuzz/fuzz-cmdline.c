/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The reader of /proc/self/cmdline with any text as the command line: it says
 * yes or no, changes nothing of the caller's getopt state, and reads nothing
 * but the text.
 */
#include "fuzz.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

static const uint8_t *text;
static size_t text_size;

static FILE *
open_text(const char *path, const char *mode)
{
    (void)path;
    (void)mode;
    return text_size ? fmemopen((void *)text, text_size, "r")
                     : fopen("/dev/null", "r");
}

#define fopen(path, mode) open_text(path, mode)
#include "ubd-cmdline.c" /* With another file in the place of /proc's. */
#undef fopen

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int r;

    text = data;
    text_size = size;
    optind = 7;
    opterr = 1;
    r = ubd_cmdline_is_readonly();
    CHECK(r == 0 || r == 1 || r == -ENOMEM);
    CHECK(r != -ENOMEM || size == 0 || data[0] == 0 || r < 0);
    CHECK(optind == 7 && opterr == 1);
    /* Nothing that can mean it: then it is not. */
    if (r == 1)
        CHECK(memchr(data, 'r', size) != NULL);
    return 0;
}
