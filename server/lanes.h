/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lanes: a fixed number of open files of one image, each borrowed by one call
 * at a time (durability.h, rule D4).
 *
 * Linux keeps a cursor in every open file (errseq_t) and reports a writeback
 * failure once through each.  Calls that run at the same time on one open file
 * would share the cursor: the one that ends first takes the report, and the
 * other one is told "success" for lost data.  So each has a cursor to itself.
 *
 * The price: a failure that lost nothing acknowledged (rule D7) was reported
 * to the request that failed, through its lane, and waits in all other lanes
 * to be reported again.  Those are stale until they are next used; what a
 * stale lane reports may be that old news, so another lane must be asked: the
 * witness, a pool of one that serves for nothing else and is renewed whenever
 * a failure is found harmless.
 */
#ifndef UBD_LANES_H
#define UBD_LANES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct ubd_lane {
    int fd;                /* (c) */
    uint64_t seen;         /* (l) Harmless failures that its cursor is past. */
    uint64_t since;        /* (t) Harmless failures when it was borrowed. */
    struct ubd_lane *next; /* (l) */
};

struct ubd_lanes {
    pthread_mutex_t lock;
    pthread_cond_t given;   /* Signalled when a lane is given back. */
    struct ubd_lane *idle;  /* (l) Last used first: its cursor is freshest. */
    uint64_t nr_harmless;   /* (l) Failures that lost nothing. */
    struct ubd_lane *lanes; /* (c) */
    unsigned nr;            /* (c) */
    int flags;              /* (c) For open. */
};
/* Locking key: (l) lock, (c) constant after open, (t) the borrower. */

/* Open the file behind @fd once more, not by name: the name may mean another
 * file by now.  Returns the descriptor or a negative errno.
 */
int ubd_reopen(int fd, int flags);

/* Open the file behind @fd @nr more times, with @flags as for open(2). */
int ubd_lanes_open(struct ubd_lanes *lanes, int fd, int flags, unsigned nr);

/* Accepts a zeroed object.  Every lane must have been given back. */
void ubd_lanes_close(struct ubd_lanes *lanes);

/* Borrow a lane, one that is not stale if there is one; waits until any is
 * idle.
 */
struct ubd_lane *ubd_lanes_take(struct ubd_lanes *lanes);

/* A call on @lane has just failed: may that be old news? */
bool ubd_lanes_is_stale(struct ubd_lanes *lanes, struct ubd_lane *lane);

/* What failed is about to be asked again on the same @lane. */
void ubd_lanes_again(struct ubd_lanes *lanes, struct ubd_lane *lane);

/* A failure that some lane has reported was harmless: all lanes are stale.
 * Returns what ubd_lanes_renew wants to know.
 */
uint64_t ubd_lanes_harmless(struct ubd_lanes *lanes);

/* A stale lane becomes fresh with a new cursor: open the file once more, make
 * sure that everything acknowledged is durable, so that no report can matter
 * that the new cursor is past, and only then renew the lane with it.
 * @nr_harmless: from before the file was opened.  Takes over @fd.
 */
int ubd_lanes_reopen(const struct ubd_lanes *lanes,
                     const struct ubd_lane *lane);
void ubd_lanes_renew(struct ubd_lanes *lanes, struct ubd_lane *lane, int fd,
                     uint64_t nr_harmless);

/* Give back; @has_reported: a call that takes reports has ended on it. */
void ubd_lanes_give(struct ubd_lanes *lanes, struct ubd_lane *lane,
                    bool has_reported);

#endif
