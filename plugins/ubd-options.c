/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parses the plugin's parameters.  Says of what is wrong: the parameter, what
 * was given and what was expected.
 */
#include "ubd-options.h"

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct ubd_options ubd_options = {
    .config = {.lock = true,
               .trim = true,
               .io = UBD_IO_AUTO,
               .dirty_limit = UBD_DIRTY_LIMIT_AUTO,
               .evict = true},
};

static int
bad_value(const char *key, const char *value, const char *expected)
{
    nbdkit_error("%s=%s: expected %s", key, value, expected);
    return -1;
}

static int
set_path(const char *key, const char *value, char **ret_path)
{
    if (value[0] == '\0')
        return bad_value(key, value, "a path, which cannot be empty");
    *ret_path = nbdkit_absolute_path(value); /* Says why it fails. */
    return *ret_path ? 0 : -1;
}

static int
parse_file(const char *key, const char *value)
{
    const int r = set_path(key, value, &ubd_options.file);

    ubd_options.config.path = ubd_options.file;
    return r;
}

static int
parse_metrics(const char *key, const char *value)
{
    return set_path(key, value, &ubd_options.metrics);
}

static int
parse_trace(const char *key, const char *value)
{
    ubd_options.config.observe = true;
    return set_path(key, value, &ubd_options.trace);
}

static int
parse_cache(const char *key, const char *value)
{
    char names[256] = "one of";
    const char *name, *mode;
    bool direct;

    if (ubd_mode_known(value)) {
        ubd_options.cache = strdup(value);
        ubd_options.config.cache = ubd_options.cache;
        return ubd_options.cache ? 0 : -1;
    }
    for (unsigned i = 0; (name = ubd_mode_name(i)); i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), " %s",
                 name);
    strcat(names, " (or qemu's");
    for (unsigned i = 0; (name = ubd_mode_alias(i, &mode, &direct)); i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), " %s",
                 name);
    snprintf(names + strlen(names), sizeof names - strlen(names), ")");
    return bad_value(key, value, names);
}

static int
parse_bool(const char *key, const char *value, bool *ret_value)
{
    static const char *const yes[] = {"1", "true", "t", "yes", "y", "on"};
    static const char *const no[] = {"0", "false", "f", "no", "n", "off"};

    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcasecmp(value, yes[i]) == 0 || strcasecmp(value, no[i]) == 0) {
            *ret_value = strcasecmp(value, yes[i]) == 0;
            return 0;
        }
    }
    return bad_value(key, value, "a boolean: true or false");
}

static int
parse_direct(const char *key, const char *value)
{
    const int r = parse_bool(key, value, &ubd_options.config.direct);

    ubd_options.is_not_direct = !ubd_options.config.direct;
    return r;
}

static int
parse_evict(const char *key, const char *value)
{
    return parse_bool(key, value, &ubd_options.config.evict);
}

/* Like nbdkit's sizes.  Its own parser would print a line that does not name
 * the parameter.
 */
static int
parse_dirty_limit(const char *key, const char *value)
{
    static const char suffixes[] = "bkmgtpe";
    char *end;
    unsigned long long size;
    const char *suffix = suffixes;

    errno = 0;
    size = strtoull(value, &end, 10);
    if (*end)
        suffix = strchr(suffixes, tolower((unsigned char)*end));
    if (errno || !isdigit((unsigned char)value[0]) || !suffix ||
        (*end && end[1]) ||
        size > (unsigned long long)INT64_MAX >> (10 * (suffix - suffixes)))
        return bad_value(key, value, "a size, as in 64M, or 0 for no limit");
    size <<= 10 * (suffix - suffixes);
    if (size != 0 && size < UBD_DIRTY_LIMIT_MIN)
        return bad_value(key, value, "0 for no limit, or at least 1M");
    ubd_options.config.dirty_limit = size;
    return 0;
}

static int
parse_lock(const char *key, const char *value)
{
    return parse_bool(key, value, &ubd_options.config.lock);
}

static int
parse_trim(const char *key, const char *value)
{
    return parse_bool(key, value, &ubd_options.config.trim);
}

static int
parse_io(const char *key, const char *value)
{
    static const struct {
        const char *name;
        enum ubd_io_choice choice;
    } choices[] = {
        {"auto",     UBD_IO_AUTO    },
        {"io_uring", UBD_IO_URING   },
        {"syscalls", UBD_IO_SYSCALLS},
    };

    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        if (strcmp(choices[i].name, value) == 0) {
            ubd_options.config.io = choices[i].choice;
            return 0;
        }
    }
    return bad_value(key, value, "one of auto io_uring syscalls");
}

/* Columns: key, value, default, parser, help.  In alphabetical order. */
#define OPTIONS(X)                                                            \
    X("cache", "MODE", UBD_MODE_DEFAULT, parse_cache,                         \
      "when what is written is durable: barrier, osync, unsafe")              \
    X("direct", "BOOL", "false", parse_direct,                                \
      "bypass the host's page cache (O_DIRECT)")                              \
    X("dirty-limit", "SIZE", "256M", parse_dirty_limit,                       \
      "most bytes that may be dirty in the host's page cache; 0 is no limit") \
    X("evict", "BOOL", "true", parse_evict,                                   \
      "with a dirty-limit: drop streams from the cache once written out")     \
    X("file", "PATH", "required", parse_file,                                 \
      "the image: a regular file or block device; file= may be left out")     \
    X("io", "ENGINE", "auto", parse_io,                                       \
      "how requests reach the host: auto, io_uring, syscalls")                \
    X("lock", "BOOL", "true", parse_lock,                                     \
      "refuse an image that somebody else has open")                          \
    X("metrics", "PATH", "none", parse_metrics,                               \
      "keep counters and histograms in this file (Prometheus text)")          \
    X("trace", "PATH", "none", parse_trace,                                   \
      "write a line of JSON for each request to this file or pipe")           \
    X("trim", "BOOL", "true", parse_trim,                                     \
      "give trimmed and zeroed space back to the host")

#define AS_HELP(key, value, fallback, parser, help) \
    key "=" value "  " help " (default: " fallback ")\n"
const char ubd_options_help[] = OPTIONS(AS_HELP);

static const struct {
    const char *key;
    int (*parse)(const char *key, const char *value);
} options[] = {
#define AS_ROW(key, value, fallback, parser, help) {key, parser},
    OPTIONS(AS_ROW)};

static int
unknown_key(const char *key)
{
    char names[256] = "";

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), " %s",
                 options[i].key);
    nbdkit_error("%s: unknown parameter; expected one of%s", key, names);
    return -1;
}

int
ubd_options_set(const char *key, const char *value)
{
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (strcmp(options[i].key, key) != 0)
            continue;
        if (ubd_options.given & (1u << i)) {
            nbdkit_error("%s=%s: given twice; expected it once", key, value);
            return -1;
        }
        ubd_options.given |= 1u << i;
        return options[i].parse(key, value);
    }
    return unknown_key(key);
}

/* An alias that means direct=true, and direct=false beside it? */
static bool
is_contradiction(void)
{
    const char *name, *mode;
    bool direct;

    if (!ubd_options.cache || !ubd_options.is_not_direct)
        return false;
    for (unsigned i = 0; (name = ubd_mode_alias(i, &mode, &direct)); i++)
        if (direct && strcmp(name, ubd_options.cache) == 0)
            return true;
    return false;
}

int
ubd_options_complete(void)
{
    if (!ubd_options.file) {
        nbdkit_error("file: not given; expected the path of an image, as in "
                     "file=disk.img");
        return -1;
    }
    if (is_contradiction()) {
        nbdkit_error("direct=false: cache=%s means direct=true; expected one "
                     "of them only",
                     ubd_options.cache);
        return -1;
    }
    return 0;
}

void
ubd_options_free(void)
{
    free(ubd_options.file);
    free(ubd_options.cache);
    free(ubd_options.metrics);
    free(ubd_options.trace);
}
