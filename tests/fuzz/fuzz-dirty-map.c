/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The map of dirty pages against an array of booleans.
 */
#include "fuzz.h"

#include "dirty-map.h"

#include <string.h>

#define PAGES_MAX                                              \
    9000 /* More than 64 * 64, so that there are three levels. \
          */
#define PAGE 4096

static unsigned char is_dirty[PAGES_MAX + UBD_MAP_WORD];

static unsigned
count_word(size_t word)
{
    unsigned nr = 0;

    for (unsigned i = 0; i < UBD_MAP_WORD; i++)
        nr += is_dirty[word * UBD_MAP_WORD + i];
    return nr;
}

static void
mark(struct ubd_dirty_map *map, uint64_t size, uint64_t offset, uint64_t len)
{
    if (offset >= size || len == 0)
        return;
    if (len > size - offset)
        len = size - offset;
    for (size_t w = ubd_dirty_map_word(map, offset);
         w <= ubd_dirty_map_word(map, offset + len - 1); w++) {
        unsigned nr = 0;
        const bool was_full = count_word(w) == UBD_MAP_WORD;
        bool is_full;

        for (uint64_t p = w * UBD_MAP_WORD; p < (w + 1) * UBD_MAP_WORD; p++) {
            if (p < offset / PAGE || p > (offset + len - 1) / PAGE)
                continue;
            nr += !is_dirty[p];
            is_dirty[p] = 1;
        }
        CHECK(ubd_dirty_map_mark(map, w, offset, len, &is_full) == nr);
        CHECK(is_full == (!was_full && count_word(w) == UBD_MAP_WORD));
    }
}

static void
check_next(struct ubd_dirty_map *map, uint64_t size, size_t word)
{
    const size_t nr = size / PAGE / UBD_MAP_WORD + 1;
    size_t expected = word;

    while (expected < nr && count_word(expected) == 0)
        expected++;
    CHECK(ubd_dirty_map_next(map, word) ==
          (expected < nr ? expected : UBD_MAP_NONE));
}

static void
take(struct ubd_dirty_map *map, uint64_t size, size_t word)
{
    if (word > size / PAGE / UBD_MAP_WORD)
        return;
    CHECK(ubd_dirty_map_is_full(map, word) ==
          (count_word(word) == UBD_MAP_WORD));
    CHECK(ubd_dirty_map_take(map, word) == count_word(word));
    memset(is_dirty + word * UBD_MAP_WORD, 0, UBD_MAP_WORD);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_size)
{
    struct input in = {data, data_size};
    const uint64_t size =
        input_take(&in, 4) % ((uint64_t)(PAGES_MAX - 1) * PAGE) + 1;
    const size_t nr_words = size / PAGE / UBD_MAP_WORD + 1;
    struct ubd_dirty_map map;

    memset(is_dirty, 0, sizeof is_dirty);
    CHECK(ubd_dirty_map_init(&map, size, SIZE_MAX) == 0);
    while (in.size > 0) {
        const unsigned how = input_take(&in, 1);

        if (how % 4 == 0)
            take(&map, size, input_take(&in, 2) % nr_words);
        else if (how % 4 == 1)
            check_next(&map, size, input_take(&in, 2) % (nr_words + 2));
        else
            mark(&map, size, input_take(&in, 4) % size,
                 input_take(&in, how % 4 == 2 ? 2 : 3));
    }
    for (size_t w = 0;; w++) {
        check_next(&map, size, w);
        w = ubd_dirty_map_next(&map, w);
        if (w == UBD_MAP_NONE)
            break;
        take(&map, size, w);
    }
    for (size_t i = 0; i < PAGES_MAX; i++)
        CHECK(!is_dirty[i]);
    ubd_dirty_map_destroy(&map);
    return 0;
}
