/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The map of dirty pages, against an array that says the same.
 */
#include "dirty-map.h"
#include "unit.h"

#include <string.h>

#define PAGE UINT64_C(4096)
#define WORD (UBD_MAP_WORD * PAGE)
#define MEMORY ((size_t)1 << 20)

static struct ubd_dirty_map
new_map(uint64_t size)
{
    struct ubd_dirty_map map;

    ck_assert_int_eq(ubd_dirty_map_init(&map, size, MEMORY), 0);
    return map;
}

/* Mark [@offset, @offset + @len); *@nr_full words have become full. */
static unsigned
mark(struct ubd_dirty_map *map, uint64_t offset, uint64_t len,
     unsigned *nr_full)
{
    const size_t last = ubd_dirty_map_word(map, offset + len - 1);
    unsigned pages = 0;

    for (size_t w = ubd_dirty_map_word(map, offset); w <= last; w++) {
        bool is_full;

        pages += ubd_dirty_map_mark(map, w, offset, len, &is_full);
        *nr_full += is_full;
    }
    return pages;
}

static unsigned
take_all(struct ubd_dirty_map *map)
{
    unsigned pages = 0;

    for (size_t w = ubd_dirty_map_next(map, 0); w != UBD_MAP_NONE;
         w = ubd_dirty_map_next(map, w + 1))
        pages += ubd_dirty_map_take(map, w);
    return pages;
}

#define ORACLE_WORDS (3 * UBD_MAP_WORD) /* Three levels. */

static struct {
    bool page[ORACLE_WORDS][UBD_MAP_WORD];
} oracle;

static unsigned
oracle_count(size_t word)
{
    unsigned nr = 0;

    for (unsigned i = 0; i < UBD_MAP_WORD; i++)
        nr += oracle.page[word][i];
    return nr;
}

static void
check_mark(struct ubd_dirty_map *map, uint64_t offset, uint64_t len)
{
    unsigned expected = 0, full = 0, nr_full = 0;

    for (uint64_t p = offset / PAGE; p <= (offset + len - 1) / PAGE; p++) {
        bool *page = &oracle.page[p / UBD_MAP_WORD][p % UBD_MAP_WORD];

        if (*page)
            continue;
        *page = true;
        expected++;
        full += oracle_count(p / UBD_MAP_WORD) == UBD_MAP_WORD;
    }
    ck_assert_uint_eq(mark(map, offset, len, &nr_full), expected);
    ck_assert_uint_eq(nr_full, full);
}

static void
check_take(struct ubd_dirty_map *map, size_t word)
{
    ck_assert(ubd_dirty_map_is_full(map, word) ==
              (oracle_count(word) == UBD_MAP_WORD));
    ck_assert_uint_eq(ubd_dirty_map_take(map, word), oracle_count(word));
    memset(oracle.page[word], 0, sizeof oracle.page[word]);
}

static void
check_next(struct ubd_dirty_map *map, size_t from)
{
    size_t expected = from;

    while (expected < ORACLE_WORDS && oracle_count(expected) == 0)
        expected++;
    if (expected == ORACLE_WORDS)
        expected = UBD_MAP_NONE;
    ck_assert_uint_eq(ubd_dirty_map_next(map, from), expected);
}

START_TEST(map_says_what_a_plain_array_says)
{
    const uint64_t size = ORACLE_WORDS * WORD - 1000;
    struct ubd_dirty_map map = new_map(size);
    uint64_t seed = 7;

    for (unsigned i = 0; i < 6000; i++) {
        const uint64_t at = fake_random(&seed) % size;
        const bool is_long = fake_random(&seed) % 16 == 0;
        uint64_t len = 1 + fake_random(&seed) % (is_long ? 3 * WORD : 9 * PAGE);

        if (len > size - at)
            len = size - at;
        if (i % 3 == 0)
            check_mark(&map, at, len);
        else if (i % 3 == 1) /* More often than marks, so that it empties. */
            for (unsigned n = 0; n < 4; n++)
                check_take(&map, fake_random(&seed) % ORACLE_WORDS);
        else
            check_next(&map, fake_random(&seed) % (ORACLE_WORDS + 1));
    }
    ubd_dirty_map_destroy(&map);
}
END_TEST

START_TEST(neighbours_and_overlaps_are_merged)
{
    struct ubd_dirty_map map = new_map(4 * WORD);
    unsigned nr_full = 0;

    ck_assert_uint_eq(mark(&map, 10 * PAGE, 2 * PAGE, &nr_full), 2);
    ck_assert_uint_eq(mark(&map, 12 * PAGE, 2 * PAGE, &nr_full), 2);
    ck_assert_uint_eq(mark(&map, 9 * PAGE, 6 * PAGE, &nr_full), 2);
    ck_assert_uint_eq(mark(&map, 11 * PAGE + 5, 1, &nr_full), 0);
    ck_assert_uint_eq(mark(&map, 15 * PAGE - 1, 2, &nr_full), 1);
    ck_assert_uint_eq(nr_full, 0);
    ck_assert_uint_eq(ubd_dirty_map_take(&map, 0), 7);
    ck_assert_uint_eq(ubd_dirty_map_next(&map, 0), UBD_MAP_NONE);
    ubd_dirty_map_destroy(&map);
}
END_TEST

START_TEST(word_is_reported_full_once)
{
    struct ubd_dirty_map map = new_map(4 * WORD);
    unsigned nr_full = 0;

    for (unsigned i = 0; i < UBD_MAP_WORD - 1; i++)
        mark(&map, WORD + i * PAGE, PAGE, &nr_full);
    ck_assert_uint_eq(nr_full, 0);
    ck_assert(!ubd_dirty_map_is_full(&map, 1));
    mark(&map, 2 * WORD - PAGE, PAGE, &nr_full);
    ck_assert_uint_eq(nr_full, 1);
    ck_assert(ubd_dirty_map_is_full(&map, 1));
    mark(&map, WORD, WORD, &nr_full);
    mark(&map, WORD + PAGE, PAGE, &nr_full);
    ck_assert_uint_eq(nr_full, 1);

    ck_assert_uint_eq(ubd_dirty_map_take(&map, 1), UBD_MAP_WORD);
    ck_assert(!ubd_dirty_map_is_full(&map, 1));
    mark(&map, WORD, WORD, &nr_full);
    ck_assert_uint_eq(nr_full, 2);
    ubd_dirty_map_destroy(&map);
}
END_TEST

START_TEST(last_bytes_of_any_size_have_a_place)
{
    const uint64_t sizes[] = {
        1,         PAGE - 1,  PAGE,          PAGE + 1,       WORD - 1,
        WORD,      WORD + 1,  64 * WORD - 1, 64 * WORD,      64 * WORD + 1,
        65 * WORD, 70 * WORD, 4096 * WORD,   4096 * WORD + 1};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct ubd_dirty_map map = new_map(sizes[i]);
        const size_t last = ubd_dirty_map_word(&map, sizes[i] - 1);
        unsigned nr_full = 0;

        ck_assert_uint_eq(ubd_dirty_map_next(&map, 0), UBD_MAP_NONE);
        ck_assert_uint_eq(mark(&map, sizes[i] - 1, 1, &nr_full), 1);
        ck_assert_uint_eq(ubd_dirty_map_next(&map, 0), last);
        ck_assert_uint_eq(ubd_dirty_map_next(&map, last + 1), UBD_MAP_NONE);
        ck_assert(!ubd_dirty_map_is_full(&map, last + 1));
        ck_assert_uint_eq(take_all(&map), 1);
        ck_assert_uint_eq(take_all(&map), 0);
        ubd_dirty_map_destroy(&map);
    }
}
END_TEST

START_TEST(map_of_an_empty_disk_is_empty)
{
    struct ubd_dirty_map map = new_map(0);

    ck_assert_uint_eq(ubd_dirty_map_next(&map, 0), UBD_MAP_NONE);
    ck_assert_uint_eq(take_all(&map), 0);
    ubd_dirty_map_destroy(&map);
    ubd_dirty_map_destroy(&map); /* Accepts a zeroed object. */
}
END_TEST

START_TEST(huge_disk_has_larger_pages_rather_than_more_memory)
{
    const uint64_t size = UINT64_C(1) << 50;
    struct ubd_dirty_map map = new_map(size);
    unsigned nr_full = 0;
    size_t memory = 0;

    for (unsigned i = 0; i < map.nr_levels; i++)
        memory += map.level[i].nr * sizeof map.level[i].words[0];
    /* The summaries are a 63rd more, and each level ends with a word. */
    ck_assert_uint_le(memory, MEMORY + MEMORY / 63 + UBD_MAP_LEVELS * 8);
    ck_assert_uint_ge(memory, MEMORY); /* A power of two fits exactly. */

    ck_assert_uint_eq(mark(&map, 0, 1, &nr_full), 1);
    ck_assert_uint_eq(mark(&map, PAGE, PAGE, &nr_full), 0);
    ck_assert_uint_eq(mark(&map, size - 1, 1, &nr_full), 1);
    ck_assert_uint_eq(ubd_dirty_map_next(&map, 1),
                      ubd_dirty_map_word(&map, size - 1));
    ck_assert_uint_eq(take_all(&map), 2);
    ubd_dirty_map_destroy(&map);

    map = new_map(UINT64_C(1) << 30);
    ck_assert_uint_eq(map.page_shift, 12);
    ubd_dirty_map_destroy(&map);
}
END_TEST

/* One marks, is overtaken by one who takes, and only then says so above. */
START_TEST(summary_of_what_has_just_been_taken_hides_nothing_behind_it)
{
    struct ubd_dirty_map map = new_map(ORACLE_WORDS * WORD);
    unsigned nr_full = 0;

    ck_assert_uint_eq(map.nr_levels, 3);
    mark(&map, 130 * WORD, 1, &nr_full);
    atomic_fetch_or(&map.level[2].words[0], 1 << 1); /* Words 64 to 127. */
    ck_assert_uint_eq(ubd_dirty_map_next(&map, 0), 130);
    atomic_fetch_or(&map.level[1].words[1], 1); /* Word 64. */
    ck_assert_uint_eq(ubd_dirty_map_next(&map, 0), 130);
    ck_assert_uint_eq(take_all(&map), 1);
    ck_assert_uint_eq(ubd_dirty_map_next(&map, 0), UBD_MAP_NONE);
    ubd_dirty_map_destroy(&map);
}
END_TEST

/* Else every search would look at what is long clean. */
START_TEST(summaries_of_an_empty_map_are_empty)
{
    struct ubd_dirty_map map = new_map(ORACLE_WORDS * WORD);
    unsigned nr_full = 0;

    mark(&map, 0, 2 * WORD, &nr_full);
    mark(&map, 130 * WORD, 1, &nr_full);
    ck_assert_uint_eq(take_all(&map), 2 * UBD_MAP_WORD + 1);
    for (unsigned level = 0; level < map.nr_levels; level++)
        for (size_t word = 0; word < map.level[level].nr; word++)
            ck_assert_uint_eq(map.level[level].words[word], 0);
    ubd_dirty_map_destroy(&map);
}
END_TEST

#define NR_MARKERS 3
#define NR_TAKERS 2
#define NR_MARKS 20000
#define SHARED_SIZE (4096 * WORD)

struct worker {
    pthread_t thread;
    struct ubd_dirty_map *map;
    atomic_bool *must_stop;
    uint64_t seed;
    uint64_t pages;
};

/* Few places, far apart, so that words and summaries empty all the time. */
static void *
run_marker(void *opaque)
{
    struct worker *w = opaque;

    for (unsigned i = 0; i < NR_MARKS; i++) {
        const uint64_t random = fake_random(&w->seed);
        const uint64_t word = random % 3 * 2000 + random / 3 % 2;
        unsigned nr_full = 0;

        w->pages += mark(w->map, word * WORD + random / 6 % 64 * PAGE,
                         (1 + random / 384 % 70) * PAGE, &nr_full);
    }
    return NULL;
}

static void *
run_taker(void *opaque)
{
    struct worker *w = opaque;

    while (!*w->must_stop)
        w->pages += take_all(w->map);
    return NULL;
}

START_TEST(no_page_is_lost_or_counted_twice_when_threads_mark_and_take)
{
    struct ubd_dirty_map map = new_map(SHARED_SIZE);
    struct worker worker[NR_MARKERS + NR_TAKERS];
    atomic_bool must_stop = false;
    uint64_t marked = 0, taken = 0;

    for (unsigned i = 0; i < NR_MARKERS + NR_TAKERS; i++) {
        worker[i] = (struct worker){
            .map = &map, .must_stop = &must_stop, .seed = i + 1};
        ck_assert_int_eq(pthread_create(&worker[i].thread, NULL,
                                        i < NR_MARKERS ? run_marker : run_taker,
                                        &worker[i]),
                         0);
    }
    for (unsigned i = 0; i < NR_MARKERS + NR_TAKERS; i++) {
        if (i == NR_MARKERS)
            must_stop = true;
        ck_assert_int_eq(pthread_join(worker[i].thread, NULL), 0);
        *(i < NR_MARKERS ? &marked : &taken) += worker[i].pages;
    }
    taken += take_all(&map);
    ck_assert_uint_eq(taken, marked);
    for (size_t w = 0; w < SHARED_SIZE / WORD; w++) /* What next missed. */
        ck_assert_uint_eq(ubd_dirty_map_take(&map, w), 0);
    ubd_dirty_map_destroy(&map);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        map_says_what_a_plain_array_says,
        neighbours_and_overlaps_are_merged,
        word_is_reported_full_once,
        last_bytes_of_any_size_have_a_place,
        map_of_an_empty_disk_is_empty,
        huge_disk_has_larger_pages_rather_than_more_memory,
        summary_of_what_has_just_been_taken_hides_nothing_behind_it,
        summaries_of_an_empty_map_are_empty,
        no_page_is_lost_or_counted_twice_when_threads_mark_and_take,
        NULL,
    };

    return unit_run("dirty-map", tests);
}
