/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules C1 to C4, on images made by hand. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "history.h"
#include "sector.h"

#define RUN 7

static struct history h;
static int fd;

static void
begin_test(void)
{
    h = (struct history){.run = RUN, .promise = PROMISE_FLUSH, .nr_sectors = 1};
    ck_assert_int_eq(history_init(&h, 16), 0);
    fd = memfd_create("image", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
}

static void
end_test(void)
{
    history_destroy(&h);
    close(fd);
}

/* One change of the sector, acknowledged. */
static struct change *
change(enum change_kind kind, bool fua)
{
    struct change *c = history_issue(&h, kind, 0, 1, fua);

    history_ack(&h, c);
    return c;
}

static void
flush(void)
{
    history_ack_flush(&h, history_issue_flush(&h));
}

static struct verdict
check_words(const uint64_t *words)
{
    struct verdict v;
    FILE *out = fopen("/dev/null", "w");

    ck_assert_int_eq(pwrite(fd, words, SECTOR, 0), SECTOR);
    ck_assert_int_eq(history_check(&h, fd, out, &v), 0);
    fclose(out);
    return v;
}

/* With what change @seq wrote there; 0: the base. */
static struct verdict
check_seq(uint64_t seq)
{
    uint64_t words[SECTOR_WORDS];

    sector_make(words, seq ? RUN : RUN_BASE, 0, seq);
    return check_words(words);
}

static struct verdict
check_zero(void)
{
    const uint64_t words[SECTOR_WORDS] = {0};

    return check_words(words);
}

START_TEST(what_was_flushed_may_not_be_older)
{
    change(CHANGE_WRITE, false);
    change(CHANGE_WRITE, false);
    flush();
    change(CHANGE_WRITE, false);
    ck_assert_uint_eq(check_seq(0).lost, 1);
    ck_assert_uint_eq(check_seq(1).lost, 1);
    ck_assert_uint_eq(check_seq(2).lost, 0);
    ck_assert_uint_eq(check_seq(3).lost, 0);
    ck_assert_uint_eq(check_seq(3).promised, 2);
}
END_TEST

START_TEST(a_flush_that_was_sent_before_the_reply_promises_nothing)
{
    const uint64_t issued = history_issue_flush(&h);

    change(CHANGE_WRITE, false);
    history_ack_flush(&h, issued);
    ck_assert_uint_eq(check_seq(0).lost, 0);
    ck_assert_uint_eq(check_seq(0).promised, 0);
}
END_TEST

START_TEST(a_flush_that_was_not_acknowledged_promises_nothing)
{
    change(CHANGE_WRITE, false);
    history_issue_flush(&h);
    ck_assert_uint_eq(check_seq(0).lost, 0);
}
END_TEST

START_TEST(fua_promises_itself_and_always_promises_everything)
{
    change(CHANGE_WRITE, true);
    change(CHANGE_WRITE, false);
    ck_assert_uint_eq(check_seq(0).lost, 1);
    ck_assert_uint_eq(check_seq(1).lost, 0);
    h.promise = PROMISE_ALWAYS;
    ck_assert_uint_eq(check_seq(1).lost, 1);
    ck_assert_uint_eq(check_seq(2).lost, 0);
}
END_TEST

START_TEST(what_was_not_acknowledged_may_be_there)
{
    change(CHANGE_WRITE, true);
    history_issue(&h, CHANGE_WRITE, 0, 1, true);
    ck_assert_uint_eq(check_seq(1).lost, 0);
    ck_assert_uint_eq(check_seq(2).lost, 0);
}
END_TEST

START_TEST(what_was_never_written_is_foreign)
{
    uint64_t words[SECTOR_WORDS];

    change(CHANGE_WRITE, false);
    ck_assert_uint_eq(check_zero().foreign, 1);
    ck_assert_uint_eq(check_seq(2).foreign, 1);
    sector_make(words, RUN, 1, 1); /* Of the next sector. */
    ck_assert_uint_eq(check_words(words).foreign, 1);
    sector_make(words, RUN, 0, 1);
    words[9] ^= 1;
    ck_assert_uint_eq(check_words(words).foreign, 1);
    ck_assert_uint_eq(check_seq(0).foreign, 0);
}
END_TEST

START_TEST(zeroes_are_promised_like_data)
{
    change(CHANGE_WRITE, false);
    change(CHANGE_ZERO, true);
    ck_assert_uint_eq(check_seq(1).lost, 1);
    ck_assert_uint_eq(check_zero().lost, 0);
}
END_TEST

START_TEST(what_was_trimmed_may_hold_what_it_ever_held)
{
    change(CHANGE_WRITE, true);
    change(CHANGE_TRIM, true);
    ck_assert_uint_eq(check_seq(0).lost, 0);
    ck_assert_uint_eq(check_seq(1).lost, 0);
    ck_assert_uint_eq(check_zero().lost, 0);
    change(CHANGE_WRITE, true); /* And then no more. */
    ck_assert_uint_eq(check_seq(1).lost, 1);
    ck_assert_uint_eq(check_zero().lost, 1);
}
END_TEST

START_TEST(a_mixture_is_of_what_is_allowed)
{
    uint64_t words[SECTOR_WORDS], other[SECTOR_WORDS];
    struct verdict v;

    change(CHANGE_WRITE, false);
    change(CHANGE_WRITE, true);
    change(CHANGE_WRITE, false);
    sector_make(words, RUN, 0, 2);
    sector_make(other, RUN, 0, 3);
    memcpy(words, other, SECTOR / 2);
    v = check_words(words);
    ck_assert_uint_eq(v.mixed, 1);
    ck_assert_uint_eq(v.lost + v.foreign, 0);
    sector_make(words, RUN, 0, 1); /* Too old. */
    memcpy(words, other, SECTOR / 2);
    v = check_words(words);
    ck_assert_uint_eq(v.foreign, 1);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        what_was_flushed_may_not_be_older,
        a_flush_that_was_sent_before_the_reply_promises_nothing,
        a_flush_that_was_not_acknowledged_promises_nothing,
        fua_promises_itself_and_always_promises_everything,
        what_was_not_acknowledged_may_be_there,
        what_was_never_written_is_foreign,
        zeroes_are_promised_like_data,
        what_was_trimmed_may_hold_what_it_ever_held,
        a_mixture_is_of_what_is_allowed,
    };
    Suite *suite = suite_create("powercut: history");
    TCase *tcase = tcase_create("rules");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, begin_test, end_test);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
