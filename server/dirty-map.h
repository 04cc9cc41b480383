/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which pages of a disk are dirty in the host's page cache: a sorted, merged
 * set of ranges, kept as a bitmap with summaries (a bit of level n+1 says that
 * a word of level n is not empty).  Marking costs one or two atomic operations
 * and no lock; finding the next range costs a few loads; memory is fixed.
 *
 * Pure: no I/O, no clock.  Threads: any, at any time.  What is marked while
 * somebody takes is taken by him or by the next one, never lost.
 */
#ifndef UBD_DIRTY_MAP_H
#define UBD_DIRTY_MAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UBD_MAP_LEVELS 6 /* 64^6 pages: more than a file can hold. */
#define UBD_MAP_WORD_SHIFT 6
#define UBD_MAP_WORD (1 << UBD_MAP_WORD_SHIFT) /* Pages per word. */
#define UBD_MAP_NONE SIZE_MAX                  /* No such word. */

struct ubd_dirty_map {
    unsigned page_shift; /* (c) A page is 1 << page_shift bytes. */
    unsigned nr_levels;  /* (c) */
    struct {
        atomic_uint_fast64_t *words; /* (a) */
        size_t nr;                   /* (c) */
    } level[UBD_MAP_LEVELS];
};
/* Locking key: (a) atomic, (c) constant after init. */

/* Pages are 4 KiB, or larger on a disk so large that the map would need more
 * than @memory_max bytes.  Errors: -ENOMEM.
 */
int ubd_dirty_map_init(struct ubd_dirty_map *map, uint64_t size,
                       size_t memory_max);

/* Accepts a zeroed object. */
void ubd_dirty_map_destroy(struct ubd_dirty_map *map);

/* Mark the pages of word @word that lie in [@offset, @offset + @len); returns
 * how many were not marked before.  *@ret_is_full: the word has just become
 * full.
 */
unsigned ubd_dirty_map_mark(struct ubd_dirty_map *map, size_t word,
                            uint64_t offset, uint64_t len, bool *ret_is_full);

/* The first word from @word on that has marks, or UBD_MAP_NONE. */
size_t ubd_dirty_map_next(struct ubd_dirty_map *map, size_t word);

bool ubd_dirty_map_is_full(struct ubd_dirty_map *map, size_t word);

/* Clear word @word; returns how many pages were marked. */
unsigned ubd_dirty_map_take(struct ubd_dirty_map *map, size_t word);

/* The word of a byte, and the first byte of a word. */
static inline size_t
ubd_dirty_map_word(const struct ubd_dirty_map *map, uint64_t offset)
{
    return offset >> map->page_shift >> 6;
}

static inline uint64_t
ubd_dirty_map_offset(const struct ubd_dirty_map *map, size_t word)
{
    return (uint64_t)word << 6 << map->page_shift;
}

#endif
