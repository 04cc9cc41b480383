/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of parameters with any key and value: it takes or refuses, refuses
 * with one line that names the parameter, and what it takes is in bounds.  The
 * input is lines of KEY=VALUE.
 */
#include "fuzz.h"

#include "ubd-options.h"

#include <nbdkit-plugin.h>

#include <stdarg.h>
#include <string.h>

static char message[4096];
static unsigned nr_messages;

/* In nbdkit's place. */
void
nbdkit_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    nr_messages++;
}

char *
nbdkit_absolute_path(const char *path)
{
    return strdup(path);
}

static void
check_refusal(const char *key)
{
    CHECK(nr_messages == 1);
    CHECK(strncmp(message, key, strlen(key)) == 0 ||
          strlen(key) >= sizeof message - 1);
    CHECK(strstr(message, "expected") || strlen(key) + 200 > sizeof message ||
          strlen(message) >= sizeof message - 1);
}

static void
check_taken(void)
{
    const int64_t limit = ubd_options.config.dirty_limit;

    CHECK(nr_messages == 0);
    CHECK(limit == UBD_DIRTY_LIMIT_AUTO || limit == 0 ||
          limit >= UBD_DIRTY_LIMIT_MIN);
    CHECK(ubd_options.config.io <= UBD_IO_SYSCALLS);
    CHECK(!ubd_options.cache || ubd_mode_known(ubd_options.cache));
    CHECK(!ubd_options.file || ubd_options.file[0]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct ubd_options fresh = {
        .config = {.lock = true,
                   .trim = true,
                   .dirty_limit = UBD_DIRTY_LIMIT_AUTO,
                   .evict = true},
    };
    char *text = calloc(1, size + 1);
    char *rest = text, *line;

    if (!text)
        abort();
    memcpy(text, data, size);
    ubd_options = fresh;
    while ((line = strsep(&rest, "\n"))) {
        char *value = strchr(line, '=');

        if (!value)
            continue;
        *value++ = '\0';
        nr_messages = 0;
        if (ubd_options_set(line, value) < 0)
            check_refusal(line);
        else
            check_taken();
    }
    nr_messages = 0;
    if (ubd_options_complete() < 0)
        CHECK(nr_messages == 1);
    else
        CHECK(ubd_options.config.path && nr_messages == 0);
    ubd_options_free();
    free(text);
    return 0;
}
