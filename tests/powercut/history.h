/* SPDX-License-Identifier: BSD-3-Clause */
/* What was asked of a disk, what it acknowledged, and what it may therefore
 * hold after its power was cut.
 *
 * Each request and each reply has an event number, in the order in which the
 * client sent the one and took in the other.  No two changes of one sector are
 * ever under way at the same time, so that a sector's changes have an order.
 *
 *   (C1) A change is promised if it was acknowledged, and it had FUA, or a
 *        FLUSH that was sent later was acknowledged, or every acknowledged
 *        change is promised (PROMISE_ALWAYS).
 *   (C2) A sector holds its newest promised change or a newer one, whether or
 *        not that was acknowledged.
 *   (C3) A trimmed sector holds zeroes or anything that it ever held.
 *   (C4) A sector is not torn: it holds one change, or, word by word, changes
 *        that (C2) allows.  The second is the host kernel's doing, not the
 *        disk's or the server's: a page may change while it is being written
 *        out.  Such sectors are counted.
 *
 * Threads: one.
 */
#ifndef POWERCUT_HISTORY_H
#define POWERCUT_HISTORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum promise { PROMISE_NEVER, PROMISE_FLUSH, PROMISE_ALWAYS };

enum change_kind { CHANGE_WRITE, CHANGE_ZERO, CHANGE_TRIM };

/* Change @seq is history->changes[seq - 1]. */
struct change {
    enum change_kind kind;
    bool fua;
    uint32_t first, nr;     /* Sectors. */
    uint64_t issued, acked; /* Events; acked 0: not, or with an error. */
};

struct history {
    uint64_t run;         /* Not RUN_BASE. */
    enum promise promise; /* What the server's cache mode promises. */
    bool is_base_zero;    /* Else every sector begins as change 0. */
    uint32_t nr_sectors;  /* Of the part of the disk that is used. */
    uint64_t nr_events;   /* The last one's number. */
    uint64_t covered;     /* Newest event at which an acked FLUSH was sent. */
    struct change *changes;
    uint32_t nr_changes, nr_changes_max;
};

struct verdict {
    uint64_t acked;    /* Changes acknowledged ... */
    uint64_t promised; /* ... and of those, promised by (C1). */
    uint64_t sectors;  /* Looked at. */
    uint64_t lost;     /* Sectors that hold something older than promised. */
    uint64_t foreign;  /* Sectors that hold something never written there. */
    uint64_t mixed;    /* (C4) */
};

int history_init(struct history *h, uint32_t nr_changes_max);
void history_destroy(struct history *h);

/* A new change; NULL if there is no room. */
struct change *history_issue(struct history *h, enum change_kind kind,
                             uint32_t first, uint32_t nr, bool fua);
uint64_t history_seq(const struct history *h, const struct change *c);
void history_ack(struct history *h, struct change *c);

/* A FLUSH is sent: its event, which history_ack_flush wants. */
uint64_t history_issue_flush(struct history *h);
void history_ack_flush(struct history *h, uint64_t issued);

/* Compare the image with the history; each sector that breaks a rule is told
 * to @out with its history, the first few of them.  With PROMISE_NEVER what
 * would have been promised with PROMISE_FLUSH is counted, and told of nothing.
 */
int history_check(const struct history *h, int fd, FILE *out,
                  struct verdict *ret_verdict);

#endif
