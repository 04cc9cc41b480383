/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The lines of a trace (plugins/).
 */
#include "unit.h"

#include "ubd-trace-json.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
check_line(const char *line, size_t len, const char *expected)
{
    ck_assert_uint_eq(len, strlen(expected));
    ck_assert_mem_eq(line, expected, len);
}

START_TEST(record_is_a_line_with_every_field)
{
    const struct ubd_trace_record flush = {
        .id = 7,
        .conn = 2,
        .arrival_ns = 100,
        .end_ns = 400,
        .result = -5,
        .kind = UBD_KIND_FLUSH,
        .span = {.start_ns = 200,
                 .sync = {.how = UBD_SYNC_JOINED,
                          .id = 3,
                          .tid = 99,
                          .result = -28,
                          .submitted_ns = 150,
                          .completed_ns = 390}},
    };
    const struct ubd_trace_record read = {
        .id = 8, .conn = 1, .offset = 512, .len = 4096};
    char line[UBD_TRACE_LINE_MAX];

    check_line(line, ubd_trace_record_line(line, &flush),
               "{\"id\":7,\"conn\":2,\"kind\":\"flush\",\"offset\":0,"
               "\"length\":0,\"flags\":[],\"arrival\":100,\"start\":200,"
               "\"end\":400,\"result\":-5,\"sync\":{\"id\":3,\"how\":\"joined\""
               ",\"submitted\":150,\"completed\":390,\"tid\":99,"
               "\"result\":-28}}\n");
    check_line(line, ubd_trace_record_line(line, &read),
               "{\"id\":8,\"conn\":1,\"kind\":\"read\",\"offset\":512,"
               "\"length\":4096,\"flags\":[],\"arrival\":0,\"start\":0,"
               "\"end\":0,\"result\":0,\"sync\":null}\n");
}
END_TEST

START_TEST(every_kind_flag_and_way_to_be_durable_has_its_name)
{
    static const char *const kinds[] = {
#define AS_NAME(id, name) "\"kind\":\"" name "\"",
        UBD_KINDS(AS_NAME)};
    static const char *const hows[] = {
        "\"sync\":null",      "\"how\":\"none\"",  "\"how\":\"led\"",
        "\"how\":\"joined\"", "\"how\":\"clean\"", "\"how\":\"write\"",
    };
    static const char *const flags[] = {"[\"fua\"]", "[\"may_trim\"]",
                                        "[\"fast_zero\"]", "[\"req_one\"]"};
    struct ubd_trace_record record = {0};
    char line[UBD_TRACE_LINE_MAX + 1];

    for (unsigned i = 0; i < UBD_NR_KINDS; i++) {
        record.kind = i;
        line[ubd_trace_record_line(line, &record)] = '\0';
        ck_assert_ptr_nonnull(strstr(line, kinds[i]));
    }
    for (unsigned i = UBD_SYNC_UNASKED; i <= UBD_SYNC_WRITE; i++) {
        record.span.sync.how = i;
        line[ubd_trace_record_line(line, &record)] = '\0';
        ck_assert_ptr_nonnull(strstr(line, hows[i]));
    }
    for (unsigned i = 0; i < 4; i++) {
        record.flags = 1u << i;
        line[ubd_trace_record_line(line, &record)] = '\0';
        ck_assert_ptr_nonnull(strstr(line, flags[i]));
    }
    record.flags = UBD_FUA | UBD_MAY_TRIM | UBD_FAST_ONLY | UBD_TRACE_REQ_ONE;
    line[ubd_trace_record_line(line, &record)] = '\0';
    ck_assert_ptr_nonnull(
        strstr(line, "[\"fua\",\"may_trim\",\"fast_zero\",\"req_one\"]"));
}
END_TEST

START_TEST(longest_line_fits)
{
    const struct ubd_trace_record record = {
        .id = UINT64_MAX,
        .conn = UINT64_MAX,
        .offset = UINT64_MAX,
        .arrival_ns = UINT64_MAX,
        .end_ns = UINT64_MAX,
        .len = UINT32_MAX,
        .flags = UINT32_MAX,
        .result = INT_MIN,
        .kind = UBD_KIND_EXTENTS,
        .span = {.start_ns = UINT64_MAX,
                 .sync = {.how = UBD_SYNC_JOINED,
                          .id = UINT64_MAX,
                          .tid = INT_MAX,
                          .result = INT_MIN,
                          .submitted_ns = UINT64_MAX,
                          .completed_ns = UINT64_MAX}},
    };
    char line[2 * UBD_TRACE_LINE_MAX + 1];
    size_t len = ubd_trace_record_line(line, &record);

    ck_assert_uint_le(len, UBD_TRACE_LINE_MAX);
    line[len] = '\0';
    ck_assert_ptr_nonnull(strstr(line, "\"offset\":18446744073709551615,"));
    ck_assert_ptr_nonnull(strstr(line, "\"result\":-2147483648,"));
    len = ubd_trace_drop_line(line, UINT64_MAX, 12);
    check_line(line, len, "{\"dropped\":18446744073709551615,\"total\":12}\n");
    ck_assert_uint_eq(ubd_trace_drops_of(line), UINT64_MAX);
    len = ubd_trace_end_line(line, 5, 6, 7);
    check_line(line, len, "{\"end\":5,\"records\":6,\"dropped\":7}\n");
}
END_TEST

/* How @path is written; every byte of it must fit in six. */
static void
check_path(const char *path, const char *expected)
{
    static const struct ubd_info info = {
        .mode = "m", .engine = "e", .direct = true};
    const size_t room = UBD_TRACE_LINE_MAX + 6 * strlen(path);
    char *line = malloc(room + 1), *whole = malloc(room + 1);
    const size_t len = ubd_trace_first_line(line, path, &info, 12, 34);

    ck_assert_uint_le(len, room);
    snprintf(whole, room + 1,
             "{\"ubd_trace\":1,\"clock\":\"monotonic\",\"file\":\"%s\","
             "\"mode\":\"m\",\"engine\":\"e\",\"direct\":true,\"pid\":12,"
             "\"start\":34}\n",
             expected);
    check_line(line, len, whole);
    free(line);
    free(whole);
}

static void
check_number(uint64_t n)
{
    char line[128], expected[128];
    const size_t len = ubd_trace_drop_line(line, n, n / 7);

    line[len] = '\0';
    snprintf(expected, sizeof expected,
             "{\"dropped\":%" PRIu64 ",\"total\":%" PRIu64 "}\n", n, n / 7);
    ck_assert_str_eq(line, expected);
}

START_TEST(numbers_of_every_length_are_exact)
{
    uint64_t power = 1;

    for (unsigned i = 0; i < 20; i++) {
        check_number(power - 1);
        check_number(power);
        check_number(power * 9 + power / 3);
        power *= 10;
    }
    for (uint64_t n = 0; n < 10000; n++)
        check_number(n);
}
END_TEST

START_TEST(any_path_is_a_string_of_json)
{
    static const struct {
        const char *path, *expected;
    } paths[] = {
        {"/a b/c.img",                           "/a b/c.img"                         },
        {"\"\\\n\x01\x7f",                       "\\u0022\\u005c\\u000a\\u0001\\u007f"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
         "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"                                       },
        {"\xff x",                               "\\udcff x"                          },
        {"\xc3",                                 "\\udcc3"                            },
        {"\xe2\x82",                             "\\udce2\\udc82"                     },
        {"\xf0\x9f\x98z",                        "\\udcf0\\udc9f\\udc98z"             },
        {"\xc0\x80",                             "\\udcc0\\udc80"                     },
        {"\xe0\x9f\xbf",                         "\\udce0\\udc9f\\udcbf"              },
        {"\xed\xa0\x80",                         "\\udced\\udca0\\udc80"              },
        {"\xf0\x8f\xbf\xbf",                     "\\udcf0\\udc8f\\udcbf\\udcbf"       },
        {"\xf4\x90\x80\x80",                     "\\udcf4\\udc90\\udc80\\udc80"       },
        {"\xf5\x80\x80\x80",                     "\\udcf5\\udc80\\udc80\\udc80"       },
    };

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        check_path(paths[i].path, paths[i].expected);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        record_is_a_line_with_every_field,
        every_kind_flag_and_way_to_be_durable_has_its_name,
        longest_line_fits,
        numbers_of_every_length_are_exact,
        any_path_is_a_string_of_json,
        NULL,
    };

    return unit_run("trace-json", tests);
}
