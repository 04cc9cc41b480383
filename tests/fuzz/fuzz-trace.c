/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The lines of a trace with any record and any file name: each is one line of
 * JSON, in UTF-8, in the room that the header says is enough (ASan looks).
 */
#include "fuzz.h"

#include "ubd-trace-json.h"

#include <ctype.h>
#include <string.h>

static const char *read_value(const char *p);

static const char *
read_string(const char *p)
{
    CHECK(*p++ == '"');
    while (*p != '"') {
        CHECK((unsigned char)*p >= 0x20);
        if (*p++ != '\\')
            continue;
        CHECK(strchr("\"\\/bfnrtu", *p) && *p);
        if (*p++ == 'u')
            for (unsigned i = 0; i < 4; i++)
                CHECK(isxdigit((unsigned char)*p++));
    }
    return p + 1;
}

/* What is between @p's bracket and @end, which is the other one. */
static const char *
read_list(const char *p, char end, bool has_keys)
{
    if (*++p == end)
        return p + 1;
    for (;; p++) {
        if (has_keys) {
            p = read_string(p);
            CHECK(*p++ == ':');
        }
        p = read_value(p);
        if (*p == end)
            return p + 1;
        CHECK(*p == ',');
    }
}

static const char *
read_value(const char *p)
{
    static const char *const words[] = {"null", "true", "false"};

    if (*p == '{')
        return read_list(p, '}', true);
    if (*p == '[')
        return read_list(p, ']', false);
    if (*p == '"')
        return read_string(p);
    for (unsigned i = 0; i < 3; i++)
        if (strncmp(p, words[i], strlen(words[i])) == 0)
            return p + strlen(words[i]);
    p += *p == '-';
    CHECK(isdigit((unsigned char)*p));
    while (isdigit((unsigned char)*p) || *p == '.')
        p++;
    return p;
}

static void
check_utf8(const char *text)
{
    while (*text) {
        const unsigned char c = *text++;
        unsigned more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;

        CHECK(c < 0x80 || (c >= 0xc2 && c <= 0xf4));
        for (; more > 0; more--)
            CHECK((*text++ & 0xc0) == 0x80);
    }
}

/* @line is @len bytes, the last of which ends the line; frees it. */
static void
check_line(char *line, size_t len, const char *first)
{
    CHECK(len > 0 && line[len - 1] == '\n');
    CHECK(memchr(line, '\n', len) == line + len - 1);
    CHECK(!memchr(line, '\0', len));
    line[len - 1] = '\0';
    CHECK(strncmp(line, first, strlen(first)) == 0);
    check_utf8(line);
    CHECK(*read_value(line) == '\0');
    free(line);
}

static void
check_record(struct input *in)
{
    struct ubd_trace_record record = {
        .id = input_take(in, 8),
        .conn = input_take(in, 8),
        .kind = input_take(in, 1) % UBD_NR_KINDS,
        .flags = input_take(in, 4),
        .offset = input_take(in, 8),
        .len = input_take(in, 4),
        .arrival_ns = input_take(in, 8),
        .end_ns = input_take(in, 8),
        .result = input_take(in, 4),
    };
    char *line = malloc(UBD_TRACE_LINE_MAX);

    CHECK(line);
    record.span.start_ns = input_take(in, 8);
    record.span.sync = (struct ubd_sync_span){.id = input_take(in, 8),
                                              .how = input_take(in, 1) % 6,
                                              .submitted_ns = input_take(in, 8),
                                              .completed_ns = input_take(in, 8),
                                              .tid = input_take(in, 4),
                                              .result = input_take(in, 4)};
    check_line(line, ubd_trace_record_line(line, &record),
               UBD_TRACE_RECORD_WORDS);
}

static void
check_counts(struct input *in)
{
    const uint64_t dropped = input_take(in, 8), total = input_take(in, 8);
    char *line = malloc(UBD_TRACE_LINE_MAX);
    size_t len;

    CHECK(line);
    len = ubd_trace_drop_line(line, dropped, total);
    line[len - 1] = '\0'; /* It reads a text. */
    CHECK(ubd_trace_drops_of(line) == dropped);
    line[len - 1] = '\n';
    check_line(line, len, "{");
    line = malloc(UBD_TRACE_LINE_MAX);
    CHECK(line);
    check_line(line, ubd_trace_end_line(line, dropped, total, dropped), "{");
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct ubd_info info = {
        .size = size, .mode = "barrier", .engine = "io_uring"};
    struct input in = {data, size};
    char *file = strndup((const char *)data, size);
    char *line;

    CHECK(file);
    line = malloc(UBD_TRACE_LINE_MAX + 6 * strlen(file));
    CHECK(line);
    check_line(line, ubd_trace_first_line(line, file, &info, 1, UINT64_MAX),
               UBD_TRACE_FIRST_WORDS);
    check_record(&in);
    check_counts(&in);
    free(file);
    return 0;
}
