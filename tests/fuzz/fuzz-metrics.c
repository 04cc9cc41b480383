/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The text of the metrics with any file name and any counters: each line is a
 * comment or "NAME{LABELS} NUMBER", the label gives the name back, buckets only
 * grow, and no name can forge a line.
 */
#include "ubd-metrics.c" /* For print_metrics. */

#include "fuzz.h"

#include <ctype.h>
#include <stdarg.h>

static struct ubd_info info;
static int loss;

/* In the engine's and nbdkit's place. */
const struct ubd_info *
ubd_info(const struct ubd_disk *disk)
{
    (void)disk;
    return &info;
}

void
ubd_stats(struct ubd_disk *disk, struct ubd_stats *ret_stats)
{
    (void)disk;
    *ret_stats = (struct ubd_stats){0};
}

int
ubd_loss(struct ubd_disk *disk)
{
    (void)disk;
    return loss;
}

void
ubd_trace_counts(uint64_t *ret_records, uint64_t *ret_dropped)
{
    *ret_records = *ret_dropped = 0;
}

void
nbdkit_error(const char *format, ...)
{
    (void)format;
}

/* The end of a quoted value that begins at @text; what it means in @meaning. */
static const char *
read_quoted(const char *text, char *meaning)
{
    CHECK(*text == '"');
    for (text++; *text != '"'; text++) {
        CHECK(*text && *text != '\n');
        if (*text == '\\') {
            text++;
            CHECK(*text == 'n' || *text == '"' || *text == '\\');
            *meaning++ = *text == 'n' ? '\n' : *text;
        } else {
            *meaning++ = *text;
        }
    }
    *meaning = '\0';
    return text + 1;
}

static const char *
read_labels(const char *text, char *meaning, const char *file)
{
    for (;; text++) {
        const char *name = text;

        while (islower((unsigned char)*text))
            text++;
        CHECK(text > name && *text == '=');
        text = read_quoted(text + 1, meaning);
        if (strncmp(name, "file=", 5) == 0)
            CHECK(strcmp(meaning, file) == 0);
        if (*text == '}')
            return text + 1;
        CHECK(*text == ',');
    }
}

static void
check_line(const char *line, char *meaning, const char *file)
{
    static double last;
    const bool is_bucket = strstr(line, "_bucket{") != NULL;
    char *end;
    double value;

    if (strncmp(line, "# HELP ubd_", 11) == 0 ||
        strncmp(line, "# TYPE ubd_", 11) == 0) {
        last = 0;
        return;
    }
    CHECK(strncmp(line, "ubd_", 4) == 0);
    while (islower((unsigned char)*line) || *line == '_')
        line++;
    if (*line == '{')
        line = read_labels(line + 1, meaning, file);
    CHECK(*line == ' ');
    value = strtod(line + 1, &end);
    CHECK(end > line + 1 && *end == '\0' && value >= 0);
    CHECK(!is_bucket || value >= last);
    last = is_bucket ? value : 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t name_max = size > 200 ? 200 : size;
    struct input in = {data, size};
    struct ubd_stats stats = {0};
    char *text = NULL, *rest, *line;
    char *file = strndup((const char *)data, name_max);
    char *meaning = malloc(name_max + 64);
    size_t len;
    FILE *out = open_memstream(&text, &len);

    CHECK(out && file && meaning);
    info = (struct ubd_info){.mode = "barrier", .engine = "syscalls"};
    loss = size % 2;
    /* Counters below 2^48, so that sums of buckets stay in range. */
    for (size_t i = 0; i < sizeof stats / 8; i++)
        ((uint64_t *)&stats)[i] = input_take(&in, 6);
    metrics.file = file;
    print_metrics(out, &stats);
    fclose(out);
    CHECK(len > 0 && text[len - 1] == '\n' && strlen(text) == len);
    CHECK(strncmp(text, FIRST_WORDS, strlen(FIRST_WORDS)) == 0);
    text[len - 1] = '\0';
    for (rest = text; (line = strsep(&rest, "\n"));)
        check_line(line, meaning, file);
    free(meaning);
    free(file);
    free(text);
    return 0;
}
