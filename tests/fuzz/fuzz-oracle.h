/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a disk must hold, kept in memory.  After a trim a byte may be what it
 * was, or zero, until it is next read or changed.  Shared by the fuzzers.
 */
#ifndef FUZZ_ORACLE_H
#define FUZZ_ORACLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct oracle {
    uint64_t size;
    unsigned char *data;
    unsigned char *is_trimmed; /* By byte. */
};

/* splitmix64 (public domain, Sebastiano Vigna). */
static inline uint64_t
oracle_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline void
oracle_init(struct oracle *o, uint64_t size)
{
    o->size = size;
    o->data = calloc(1, size);
    o->is_trimmed = calloc(1, size);
    if (!o->data || !o->is_trimmed)
        abort();
}

static inline void
oracle_destroy(struct oracle *o)
{
    free(o->data);
    free(o->is_trimmed);
}

/* Random bytes that are hardly ever zero, so that a zero is a finding. */
static inline void
oracle_fill(unsigned char *buf, uint64_t len, uint64_t *state)
{
    uint64_t word = oracle_random(state);

    for (uint64_t i = 0; i < len; i++) {
        buf[i] = (word >> (8 * (i % 8))) | 1;
        if (i % 8 == 7)
            word = word * UINT64_C(6364136223846793005) + 1442695040888963407;
    }
}

static inline void
oracle_write(struct oracle *o, const unsigned char *buf, uint64_t len,
             uint64_t offset)
{
    memcpy(o->data + offset, buf, len);
    memset(o->is_trimmed + offset, 0, len);
}

static inline void
oracle_zero(struct oracle *o, uint64_t len, uint64_t offset)
{
    memset(o->data + offset, 0, len);
    memset(o->is_trimmed + offset, 0, len);
}

static inline void
oracle_trim(struct oracle *o, uint64_t len, uint64_t offset)
{
    memset(o->is_trimmed + offset, 1, len);
}

/* May a read have returned @buf?  If so, that is what the disk holds. */
static inline bool
oracle_read(struct oracle *o, const unsigned char *buf, uint64_t len,
            uint64_t offset)
{
    for (uint64_t i = 0; i < len; i++)
        if (buf[i] != o->data[offset + i] &&
            (buf[i] != 0 || !o->is_trimmed[offset + i]))
            return false;
    oracle_write(o, buf, len, offset);
    return true;
}

static inline bool
oracle_may_be_zero(const struct oracle *o, uint64_t offset, uint64_t len)
{
    for (uint64_t i = offset; i < offset + len; i++)
        if (o->data[i] != 0 && !o->is_trimmed[i])
            return false;
    return true;
}

#endif
