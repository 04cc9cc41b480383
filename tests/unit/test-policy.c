/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of cache modes and what qemu calls them.
 */
#include "unit.h"

#include <string.h>

static const struct ubd_policy *
find(const char *name)
{
    bool direct;
    const struct ubd_policy *policy = ubd_policy_find(name, &direct);

    ck_assert_ptr_nonnull(policy);
    ck_assert_str_eq(policy->name, name);
    ck_assert(!direct);
    return policy;
}

START_TEST(every_mode_promises_what_its_name_says)
{
    ck_assert_int_eq(find("barrier")->durable, UBD_DURABLE_ON_FUA);
    ck_assert(find("barrier")->flush_syncs);
    ck_assert_int_eq(find("osync")->durable, UBD_DURABLE_ALWAYS);
    ck_assert(!find("osync")->flush_syncs);
    ck_assert_int_eq(find("unsafe")->durable, UBD_DURABLE_NEVER);
    ck_assert(!find("unsafe")->flush_syncs);
}
END_TEST

/* With the others either nothing stays dirty or nothing is ever synced. */
START_TEST(only_barrier_bounds_what_is_dirty)
{
    ck_assert_int_eq(find("barrier")->dirty_limit, 256 * 1024 * KIB);
    ck_assert_int_eq(find("osync")->dirty_limit, 0);
    ck_assert_int_eq(find("unsafe")->dirty_limit, 0);
}
END_TEST

START_TEST(mode_that_is_not_named_is_barrier)
{
    bool direct;

    ck_assert_str_eq(ubd_policy_find(NULL, &direct)->name, "barrier");
    ck_assert(!direct);
    ck_assert_str_eq(ubd_mode_name(0), "barrier");
}
END_TEST

START_TEST(name_of_qemu_means_what_qemu_means)
{
    static const struct {
        const char *name, *mode;
        bool direct;
    } expected[] = {
        {"writeback",    "barrier", false},
        {"none",         "barrier", true },
        {"writethrough", "osync",   false},
        {"directsync",   "osync",   true },
    };
    const char *mode;
    bool direct;

    for (unsigned i = 0; i < 4; i++) {
        ck_assert_str_eq(ubd_policy_find(expected[i].name, &direct)->name,
                         expected[i].mode);
        ck_assert(direct == expected[i].direct);
        ck_assert_str_eq(ubd_mode_alias(i, &mode, &direct), expected[i].name);
        ck_assert_str_eq(mode, expected[i].mode);
        ck_assert(direct == expected[i].direct);
    }
    ck_assert_ptr_null(ubd_mode_alias(4, &mode, &direct));
}
END_TEST

START_TEST(unknown_mode_is_not_found)
{
    static const char *const names[] = {"",        "bar",     "barrierx",
                                        "BARRIER", "unsafe ", "off"};
    bool direct;

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        ck_assert_ptr_null(ubd_policy_find(names[i], &direct));
        ck_assert(!ubd_mode_known(names[i]));
    }
    ck_assert(!ubd_mode_known(NULL));
    ck_assert(ubd_mode_known("osync"));
    ck_assert(ubd_mode_known("directsync"));
}
END_TEST

START_TEST(every_mode_says_what_survives)
{
    unsigned nr = 0;

    for (const char *name; (name = ubd_mode_name(nr)); nr++)
        ck_assert_uint_gt(strlen(find(name)->survives), 0);
    ck_assert_uint_eq(nr, 3);
}
END_TEST

static void
check_says(const char *name, const char *words)
{
    ck_assert_ptr_nonnull(strstr(find(name)->survives, words));
}

START_TEST(what_survives_is_said_of_the_right_mode)
{
    check_says("barrier", "flushed or written with FUA survives a power cut");
    check_says("osync", "every acknowledged write survives");
    check_says("unsafe", "can lose or corrupt everything");
}
END_TEST

START_TEST(disk_says_which_mode_it_is_in)
{
    for (unsigned i = 0; ubd_mode_name(i); i++) {
        struct fake *fake = fake_new(4096);
        struct ubd_disk *disk = unit_disk(fake, ubd_mode_name(i));

        ck_assert_str_eq(ubd_info(disk)->mode, ubd_mode_name(i));
        ck_assert(ubd_info(disk)->warn ==
                  (strcmp(ubd_mode_name(i), "unsafe") == 0));
        unit_close(disk, fake);
    }
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        every_mode_promises_what_its_name_says,
        only_barrier_bounds_what_is_dirty,
        mode_that_is_not_named_is_barrier,
        name_of_qemu_means_what_qemu_means,
        unknown_mode_is_not_found,
        every_mode_says_what_survives,
        what_survives_is_said_of_the_right_mode,
        disk_says_which_mode_it_is_in,
        NULL,
    };

    return unit_run("policy", tests);
}
