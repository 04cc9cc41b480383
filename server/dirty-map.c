/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The bitmap of dirty pages and its summaries.
 */
#include "dirty-map.h"

#include <errno.h>
#include <stdlib.h>

#define PAGE_SHIFT_MIN 12

static size_t
words_for(uint64_t bits)
{
    return (bits + UBD_MAP_WORD - 1) / UBD_MAP_WORD;
}

int
ubd_dirty_map_init(struct ubd_dirty_map *map, uint64_t size, size_t memory_max)
{
    uint64_t bits;

    *map = (struct ubd_dirty_map){.page_shift = PAGE_SHIFT_MIN};
    while ((size >> map->page_shift) / 8 > memory_max)
        map->page_shift++;
    bits = (size >> map->page_shift) + 1;
    do {
        const size_t nr = words_for(bits);

        map->level[map->nr_levels].words =
            calloc(nr, sizeof map->level[0].words[0]);
        if (!map->level[map->nr_levels].words) {
            ubd_dirty_map_destroy(map);
            return -ENOMEM;
        }
        map->level[map->nr_levels++].nr = nr;
        bits = nr;
    } while (bits > 1 && map->nr_levels < UBD_MAP_LEVELS);
    return 0;
}

void
ubd_dirty_map_destroy(struct ubd_dirty_map *map)
{
    for (unsigned i = 0; i < map->nr_levels; i++)
        free(map->level[i].words);
    *map = (struct ubd_dirty_map){0};
}

static atomic_uint_fast64_t *
word_at(struct ubd_dirty_map *map, unsigned level, size_t word)
{
    return &map->level[level].words[word];
}

/* The bits of word @word that stand for pages @first to @last. */
static uint64_t
mask_of(size_t word, uint64_t first, uint64_t last)
{
    const uint64_t start = (uint64_t)word * UBD_MAP_WORD;
    const unsigned low = first > start ? first - start : 0;
    const unsigned high =
        last < start + UBD_MAP_WORD - 1 ? last - start : UBD_MAP_WORD - 1;

    return (UINT64_MAX >> (UBD_MAP_WORD - 1 - high)) & (UINT64_MAX << low);
}

/* Word @word of level @level - 1 is not empty: say so above. */
static void
mark_summaries(struct ubd_dirty_map *map, unsigned level, size_t word)
{
    for (; level < map->nr_levels; level++) {
        const uint64_t bit = UINT64_C(1) << (word % UBD_MAP_WORD);

        word /= UBD_MAP_WORD;
        if (atomic_fetch_or(word_at(map, level, word), bit) != 0)
            break; /* Then the levels above know. */
    }
}

/* Most often one, and no x86-64 of the baseline counts them by itself. */
static unsigned
count_bits(uint64_t bits)
{
    return (bits & (bits - 1)) == 0 ? bits != 0 : __builtin_popcountll(bits);
}

unsigned
ubd_dirty_map_mark(struct ubd_dirty_map *map, size_t word, uint64_t offset,
                   uint64_t len, bool *ret_is_full)
{
    const uint64_t mask = mask_of(word, offset >> map->page_shift,
                                  (offset + len - 1) >> map->page_shift);
    atomic_uint_fast64_t *bits = word_at(map, 0, word);
    uint64_t old = atomic_load(bits);

    *ret_is_full = false;
    if ((old & mask) == mask)
        return 0; /* Spares the cache line's owner. */
    old = atomic_fetch_or(bits, mask);
    if (old == 0)
        mark_summaries(map, 1, word);
    *ret_is_full = old != UINT64_MAX && (old | mask) == UINT64_MAX;
    return count_bits(mask & ~old);
}

size_t
ubd_dirty_map_next(struct ubd_dirty_map *map, size_t word)
{
    unsigned level = 0;

    /* Up, until a word has something at or behind the place... */
    while (level < map->nr_levels) {
        uint64_t bits = 0;

        if (level == 0) {
            if (word >= map->level[0].nr)
                return UBD_MAP_NONE;
            if (atomic_load(word_at(map, 0, word)) != 0)
                return word;
            word++;
            level = 1;
            continue;
        }
        if (word / UBD_MAP_WORD < map->level[level].nr)
            bits = atomic_load(word_at(map, level, word / UBD_MAP_WORD)) &
                   (UINT64_MAX << (word % UBD_MAP_WORD));
        if (bits == 0) {
            word = word / UBD_MAP_WORD + 1;
            level++;
            continue;
        }
        /* ... then down along the first bits. */
        word = word / UBD_MAP_WORD * UBD_MAP_WORD + __builtin_ctzll(bits);
        level--;
        while (level > 0) {
            bits = atomic_load(word_at(map, level, word));
            if (bits == 0)
                break; /* Just taken: go on behind it. */
            word = word * UBD_MAP_WORD + __builtin_ctzll(bits);
            level--;
        }
        if (level > 0) {
            word++;
            level++;
        }
    }
    return UBD_MAP_NONE;
}

bool
ubd_dirty_map_is_full(struct ubd_dirty_map *map, size_t word)
{
    return word < map->level[0].nr &&
           atomic_load(word_at(map, 0, word)) == UINT64_MAX;
}

/* Word @word of level @level - 1 has become empty.  Whoever fills it again
 * sets its bit after filling it, so a look after the bit is cleared tells.
 */
static void
clear_summaries(struct ubd_dirty_map *map, unsigned level, size_t word)
{
    for (; level < map->nr_levels; level++) {
        const uint64_t bit = UINT64_C(1) << (word % UBD_MAP_WORD);
        atomic_uint_fast64_t *below = word_at(map, level - 1, word);
        atomic_uint_fast64_t *bits = word_at(map, level, word / UBD_MAP_WORD);
        const uint64_t old = atomic_fetch_and(bits, ~bit);

        if (atomic_load(below) != 0) {
            mark_summaries(map, level, word);
            break;
        }
        if ((old & ~bit) != 0)
            break;
        word /= UBD_MAP_WORD;
    }
}

unsigned
ubd_dirty_map_take(struct ubd_dirty_map *map, size_t word)
{
    const uint64_t old = atomic_exchange(word_at(map, 0, word), 0);

    if (old != 0)
        clear_summaries(map, 1, word);
    return __builtin_popcountll(old);
}
