/* SPDX-License-Identifier: BSD-3-Clause */
/* What the Check programs share: a small disk that is open in every test, and
 * requests that are begun and finished by hand, so that every order can be had
 * and no test waits for the clock.
 */
#ifndef DISKMODEL_TEST_DISK_H
#define DISKMODEL_TEST_DISK_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include "model.h"

#define SECTOR DISKMODEL_SECTOR
#define DISK_SIZE (1ULL << 20)

/* Open, empty and fast when a test starts. */
extern struct diskmodel *disk;

/* As after the end of the program and a new start. */
void reopen_disk(void);

/* Begin a write of @nr sectors, all @byte, at sector @at. */
struct diskmodel_op *begin(int byte, uint64_t at, uint64_t nr, bool fua);
struct diskmodel_op *begin_flush(void);
void finish(struct diskmodel_op *op);

/* Begin and finish a write. */
void put(int byte, uint64_t at, uint64_t nr);

/* The byte that fills sector @at; -1 if it holds several. */
int get(uint64_t at);

/* Cut the power and bring it back. */
void cut(uint64_t seed, enum diskmodel_cut_mode mode);

struct diskmodel_stats stats(void);

/* Run @tests; the exit status of the program. */
int run_tests(const char *name, const TTest *const *tests, size_t nr);

#endif
