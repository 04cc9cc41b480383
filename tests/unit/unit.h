/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the unit tests share: a disk on the fake host, and requests that run in
 * a thread while the test looks at them.
 */
#ifndef UNIT_H
#define UNIT_H

#include "disk.h"
#include "io-fake.h"

#include <check.h>
#include <errno.h>

#define KIB UINT64_C(1024)

/* Run @tests, a list that ends with NULL; main's result. */
int unit_run(const char *name, const TTest *const *tests);

/* A file of @size zeroes without a name; its descriptor, and a path to it. */
int unit_file(uint64_t size, char path[64]);

/* A disk of @fake's size in the mode @cache whose requests go to @fake. */
struct ubd_disk *unit_disk(struct fake *fake, const char *cache);

/* As unit_disk, as if it had been opened with O_DIRECT. */
struct ubd_disk *unit_direct_disk(struct fake *fake, const char *cache,
                                  uint32_t align, uint32_t mem_align);

/* A disk in the mode barrier that is idle, with nothing volatile. */
struct ubd_disk *unit_settled_disk(struct fake *fake);

/* A disk that has at most @limit bytes dirty. */
struct ubd_disk *unit_limited_disk(struct fake *fake, const char *cache,
                                   int64_t limit, bool evict);

/* Until the write-out sleeps, if there is one.  Awake, it could take the first
 * pages of a write, and leave the rest as too few to bother.
 */
void unit_wait_asleep(struct ubd_disk *disk);

/* At most @max syncs at a time from now on, 1 to 3; more in a crowd if not 1.
 */
void unit_limit_syncs(struct ubd_disk *disk, unsigned max);

/* Close both. */
void unit_close(struct ubd_disk *disk, struct fake *fake);

/* One request in a thread of its own. */
struct unit_job {
    pthread_t thread;
    struct ubd_disk *disk;
    enum ubd_kind kind;
    const void *buf;
    uint32_t len;
    uint64_t offset;
    unsigned flags;
    int result;
    atomic_bool has_ended;
};
void unit_start(struct unit_job *job, struct ubd_disk *disk, enum ubd_kind kind,
                const void *buf, uint32_t len, uint64_t offset, unsigned flags);
void unit_start_flush(struct unit_job *job, struct ubd_disk *disk);
int unit_join(struct unit_job *job);
/* Let it run a while, as it may end or wait for what the test does next. */
void unit_give_way(struct unit_job *job);

/* Wait until @nr flushes wait for another one's sync, running or to come. */
void unit_wait_flushers(struct ubd_disk *disk, unsigned nr);

uint64_t unit_counter(struct ubd_disk *disk, enum ubd_counter counter);

#endif
