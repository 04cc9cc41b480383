/* SPDX-License-Identifier: BSD-3-Clause */
/* The commands of the control socket, without the socket. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "settings.h"
#include "test-disk.h"

/* What the control socket answers to @command. */
static char *
ask(const char *command)
{
    char *line = strdup(command), *answer = NULL;
    size_t size;
    FILE *out = open_memstream(&answer, &size);

    control_run(disk, line, out);
    fclose(out);
    free(line);
    ck_assert_ptr_nonnull(answer);
    return answer;
}

static void
ck_assert_answer(const char *command, const char *part)
{
    char *answer = ask(command);

    ck_assert_msg(strstr(answer, part), "%s: %s", command, answer);
    free(answer);
}

START_TEST(the_control_protocol_does_what_it_says)
{
    put(1, 0, 1);
    ck_assert_answer("stats\n", "\"writes\": 1");
    ck_assert_answer("set flush_ms=8 cache_mb=1.5\n", "\"flush_ms\": 8,");
    ck_assert_answer("stats", "\"cache_mb\": 1.5");
    ck_assert_answer("arm ops=5 seed=0xfedcba9876543210 mode=torn",
                     "\"cut_in_ops\": 5");
    ck_assert_answer("disarm", "\"cut_in_ops\": 0");
    ck_assert_answer("cut seed=1 mode=all", "\"power\": \"off\"");
    ck_assert_answer("cut", "\"error\"");
    ck_assert_answer("power-on", "\"power\": \"on\"");
    ck_assert_int_eq(get(0), 1);
}
END_TEST

START_TEST(a_wrong_command_changes_nothing_and_says_what_was_expected)
{
    static const char *const wrong[] = {
        "",
        "flush",
        "arm",
        "arm ops=0",
        "arm ops=-1",
        "arm ops=1 mode=some",
        "arm ops=1x",
        "cut now",
        "cut seed=1.5",
        "set flush_ms=5 nonsense=1",
        "set flush_ms=-1",
        "set flush_ms=nan",
        "set flush_ms=5 rate_mb=0",
        "set flush_ms",
        "power-on",
    };
    size_t i;

    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_answer(wrong[i], "{\"error\": \"");
    ck_assert_answer("stats", "\"flush_ms\": 0,");
    ck_assert_answer("stats", "\"cut_in_ops\": 0,");
    ck_assert_answer("stats", "\"power\": \"on\"");
}
END_TEST

START_TEST(sizes_have_units)
{
    uint64_t size = 0;

    ck_assert_int_eq(settings_parse_size("4096", &size), 0);
    ck_assert_uint_eq(size, 4096);
    ck_assert_int_eq(settings_parse_size("3G", &size), 0);
    ck_assert_uint_eq(size, 3ULL << 30);
    ck_assert_int_eq(settings_parse_size("1GB", &size), -EINVAL);
    ck_assert_int_eq(settings_parse_size("", &size), -EINVAL);
    ck_assert_int_eq(settings_parse_size("-1", &size), -EINVAL);
    ck_assert_int_eq(settings_parse_size("99999999999T", &size), -EINVAL);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        the_control_protocol_does_what_it_says,
        a_wrong_command_changes_nothing_and_says_what_was_expected,
        sizes_have_units,
    };

    return run_tests("disk model: control", tests,
                     sizeof tests / sizeof tests[0]);
}
