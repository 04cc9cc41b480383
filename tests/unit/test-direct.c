/* SPDX-License-Identifier: BSD-3-Clause
 *
 * O_DIRECT against an oracle.  The fake host refuses what is not aligned, and
 * unit_close checks that nothing was.
 */
#include "unit.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    uint32_t align, mem_align;
} hosts[] = {
    {512,  512 },
    {512,  4   },
    {4096, 512 },
    {4096, 4096},
};
#define NR_HOSTS (sizeof hosts / sizeof hosts[0])

static void
fill(unsigned char *buf, uint32_t len, uint64_t *seed)
{
    uint64_t value = fake_random(seed);

    for (uint32_t i = 0; i < len; i++)
        buf[i] = value >> i % 57;
}

/* Sizes around the alignments, and now and then more than a bounce buffer. */
static uint32_t
pick_len(uint64_t left, uint64_t *seed)
{
    static const uint32_t around[] = {1, 512, 4096, 8192, 65536};
    uint64_t len = around[fake_random(seed) % 5];

    if (fake_random(seed) % 50 == 0)
        len = UBD_BOUNCE_SIZE + fake_random(seed) % 10000;
    else if (fake_random(seed) % 2)
        len += fake_random(seed) % 1025;
    return len < left ? len : left;
}

static uint64_t
pick_offset(uint64_t size, uint64_t *seed)
{
    uint64_t offset = fake_random(seed) % size;

    if (fake_random(seed) % 2)
        offset -= offset % 512;
    if (fake_random(seed) % 8 == 0)
        offset = size - 1 - fake_random(seed) % (size < 6000 ? size : 6000);
    return offset;
}

/* One random request on the disk and on the oracle. */
static void
step(struct ubd_disk *disk, unsigned char *oracle, unsigned char *memory,
     uint64_t *seed)
{
    const uint64_t size = disk->host.size;
    const uint64_t offset = pick_offset(size, seed);
    const uint32_t len = pick_len(size - offset, seed);
    const unsigned flags = fake_random(seed) % 4 ? 0 : UBD_FUA;
    unsigned char *buf = memory;

    if (fake_random(seed) % 2)
        buf += fake_random(seed) % 4096;
    switch (fake_random(seed) % 5) {
    case 0:
    case 1:
        fill(buf, len, seed);
        memcpy(oracle + offset, buf, len);
        ck_assert_int_eq(ubd_write(disk, buf, len, offset, flags), 0);
        break;
    case 2:
        memset(oracle + offset, 0, len);
        ck_assert_int_eq(ubd_zero(disk, len, offset, flags), 0);
        break;
    default:
        ck_assert_int_eq(ubd_read(disk, buf, len, offset), 0);
        ck_assert_mem_eq(buf, oracle + offset, len);
    }
}

static void
compare_with_oracle(uint64_t size, uint32_t align, uint32_t mem_align,
                    bool must_write_zeroes, uint64_t seed)
{
    struct fake *fake = fake_new(size);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", align, mem_align);
    unsigned char *oracle = calloc(1, size);
    unsigned char *memory = aligned_alloc(4096, 2 * UBD_BOUNCE_SIZE);

    fake->chaos = seed;
    if (must_write_zeroes)
        fake_fault(fake, FAKE_ALLOCATE, FAKE_FAIL, -EOPNOTSUPP);
    for (unsigned i = 0; i < 150; i++)
        step(disk, oracle, memory, &seed);
    ck_assert_mem_eq(fake->cache, oracle, size);
    free(memory);
    free(oracle);
    unit_close(disk, fake);
}

START_TEST(every_size_and_alignment_is_exact_to_the_byte)
{
    for (unsigned i = 0; i < NR_HOSTS; i++)
        for (int zeroes = 0; zeroes < 2; zeroes++)
            compare_with_oracle(1200 * KIB, hosts[i].align, hosts[i].mem_align,
                                zeroes, 1 + i);
}
END_TEST

START_TEST(piece_behind_the_last_whole_block_is_exact_and_keeps_the_length)
{
    static const uint64_t rest[] = {1, 511, 513, 4095};

    for (unsigned i = 0; i < NR_HOSTS; i++)
        compare_with_oracle(64 * KIB + rest[i], hosts[i].align,
                            hosts[i].mem_align, i % 2, 100 + i);
    compare_with_oracle(100, 4096, 512, false, 200); /* No whole block. */
}
END_TEST

START_TEST(durable_write_over_the_last_whole_block_is_durable_to_its_end)
{
    char data[4196];

    memset(data, 'x', sizeof data);
    for (uint64_t seed = 0; seed < 16; seed++) { /* One may keep all. */
        struct fake *fake = fake_new(8292);
        struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);

        ck_assert_int_eq(ubd_write(disk, data, sizeof data, 4096, UBD_FUA), 0);
        fake_cut(fake, seed);
        ck_assert_mem_eq(fake->stable + 4096, data, sizeof data);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(aligned_request_is_one_transfer)
{
    struct fake *fake = fake_new(64 * KIB);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
    char *memory = aligned_alloc(4096, 32 * KIB);

    memset(memory, 'x', 32 * KIB);
    ck_assert_int_eq(ubd_write(disk, memory, 32 * KIB, 4096, 0), 0);
    ck_assert_int_eq(ubd_write(disk, memory, 32 * KIB, 4096, UBD_FUA), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_READ), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 1);
    ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 1);
    ck_assert_int_eq(ubd_read(disk, memory, 32 * KIB, 4096), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_READ), 1);
    free(memory);
    unit_close(disk, fake);
}
END_TEST

START_TEST(whole_blocks_are_not_read_before_they_are_written)
{
    struct fake *fake = fake_new(64 * KIB);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
    char *memory = aligned_alloc(4096, 16 * KIB);

    memset(memory, 'x', 16 * KIB);
    ck_assert_int_eq(ubd_write(disk, memory + 1, 8192, 4096, 0), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_READ), 0);
    ck_assert_int_eq(ubd_write(disk, memory, 8192, 4097, 0), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_READ), 2); /* Both its ends. */
    ck_assert_int_eq(ubd_write(disk, memory, 10, 4097, 0), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_READ), 3);
    free(memory);
    unit_close(disk, fake);
}
END_TEST

START_TEST(failed_read_of_the_rest_of_a_block_fails_the_write)
{
    struct fake *fake = fake_new(64 * KIB);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
    static const char data[8192];

    fake_fault_once(fake, FAKE_READ, FAKE_FAIL, -EIO);
    ck_assert_int_eq(ubd_write(disk, "x", 1, 100, 0), -EIO);
    ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 0);
    ck_assert_int_eq(ubd_write(disk, "x", 1, 100, 0), 0); /* Not locked. */
    /* The first block fails, the last one does not. */
    fake_fault_once(fake, FAKE_READ, FAKE_FAIL, -EIO);
    ck_assert_int_eq(ubd_write(disk, data, sizeof data, 100, 0), -EIO);
    ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 1);
    unit_close(disk, fake);
}
END_TEST

#define NR_NEIGHBOURS 4
#define NR_ROUNDS 60
#define PIECE 1000 /* Four share nearly every block, at odd borders. */
#define NR_PIECES 8

struct neighbour {
    pthread_t thread;
    struct ubd_disk *disk;
    unsigned index;
    int result;
    unsigned char last[NR_PIECES]; /* What its pieces hold at the end. */
};

static uint64_t
piece_offset(unsigned index, unsigned piece)
{
    return (uint64_t)(piece * NR_NEIGHBOURS + index) * PIECE;
}

static void *
write_pieces(void *opaque)
{
    struct neighbour *n = opaque;
    uint64_t seed = 1000 + n->index;
    unsigned char buf[PIECE];

    for (unsigned i = 0; i < NR_ROUNDS && n->result == 0; i++) {
        const unsigned piece = fake_random(&seed) % NR_PIECES;
        const uint64_t offset = piece_offset(n->index, piece);
        const unsigned flags = fake_random(&seed) % 4 ? 0 : UBD_FUA;
        const bool is_zero = fake_random(&seed) % 4 == 0;

        n->last[piece] = is_zero ? 0 : 1 + fake_random(&seed) % 255;
        memset(buf, n->last[piece], PIECE);
        n->result = is_zero ? ubd_zero(n->disk, PIECE, offset, flags)
                            : ubd_write(n->disk, buf, PIECE, offset, flags);
    }
    return NULL;
}

static void
check_pieces(struct fake *fake, const struct neighbour *n)
{
    for (unsigned piece = 0; piece < NR_PIECES; piece++)
        for (unsigned i = 0; i < PIECE; i++)
            ck_assert_uint_eq(fake->cache[piece_offset(n->index, piece) + i],
                              n->last[piece]);
}

START_TEST(concurrent_neighbours_in_one_block_all_survive)
{
    for (int zeroes = 0; zeroes < 2; zeroes++) {
        struct fake *fake = fake_new(64 * KIB);
        struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
        struct neighbour n[NR_NEIGHBOURS] = {0};

        fake->chaos = 1 + zeroes;
        if (zeroes)
            fake_fault(fake, FAKE_ALLOCATE, FAKE_FAIL, -EOPNOTSUPP);
        for (unsigned i = 0; i < NR_NEIGHBOURS; i++) {
            n[i].disk = disk;
            n[i].index = i;
            ck_assert_int_eq(
                pthread_create(&n[i].thread, NULL, write_pieces, &n[i]), 0);
        }
        for (unsigned i = 0; i < NR_NEIGHBOURS; i++)
            ck_assert_int_eq(pthread_join(n[i].thread, NULL), 0);
        for (unsigned i = 0; i < NR_NEIGHBOURS; i++) {
            ck_assert_int_eq(n[i].result, 0);
            check_pieces(fake, &n[i]);
        }
        unit_close(disk, fake);
    }
}
END_TEST

/* Deterministic: one has read the block, the other one wants to write there. */
START_TEST(block_is_not_changed_between_its_read_and_its_write)
{
    struct fake *fake = fake_new(64 * KIB);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
    static const char ones[4096] = "1";
    struct unit_job part, whole;

    fake_hold(fake, FAKE_READ, FAKE_ENDED);
    unit_start(&part, disk, UBD_KIND_WRITE, "x", 1, 4000, 0);
    fake_wait_held(fake, FAKE_READ, 1);
    unit_start(&whole, disk, UBD_KIND_WRITE, ones, 4096, 0, 0);
    unit_give_way(&whole);
    fake_unhold(fake, FAKE_READ);
    ck_assert_int_eq(unit_join(&part), 0);
    ck_assert_int_eq(unit_join(&whole), 0);
    ck_assert_mem_eq(fake->cache, ones, 4000);
    unit_close(disk, fake);
}
END_TEST

/* As soon as it is written, so that no direct write meets it dirty. */
START_TEST(piece_behind_the_last_whole_block_is_written_at_once)
{
    static const struct {
        const char *cache;
        unsigned nr_durable;
    } modes[] = {
        {"barrier", 1},
        {"osync",   1},
        {"unsafe",  0},
    };

    for (unsigned i = 0; i < 3; i++) {
        struct fake *fake = fake_new(4196);
        struct ubd_disk *disk =
            unit_direct_disk(fake, modes[i].cache, 4096, 512);

        ck_assert_int_eq(ubd_write(disk, "x", 1, 4100, 0), 0);
        ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), modes[i].nr_durable);
        ck_assert_uint_eq(fake_count(fake, FAKE_WRITE),
                          1 - modes[i].nr_durable);
        unit_close(disk, fake);
    }
}
END_TEST

START_TEST(failed_write_of_that_piece_is_asked_again_once)
{
    struct fake *fake = fake_new(4196);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);

    fake_fault_once(fake, FAKE_DURABLE, FAKE_FAIL, -EIO);
    ck_assert_int_eq(ubd_write(disk, "x", 1, 4100, 0), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 2);
    fake_fault(fake, FAKE_DURABLE, FAKE_FAIL, -EIO);
    ck_assert_int_eq(ubd_write(disk, "x", 1, 4100, 0), -EIO);
    ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 4);
    unit_close(disk, fake);
}
END_TEST

START_TEST(piece_is_not_touched_if_the_blocks_before_it_failed)
{
    struct fake *fake = fake_new(8292);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
    char buf[4196] = "";

    fake_fault_once(fake, FAKE_READ, FAKE_FAIL, -EIO);
    ck_assert_int_eq(ubd_read(disk, buf, sizeof buf, 4096), -EIO);
    fake_fault_once(fake, FAKE_WRITE, FAKE_FAIL, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, buf, sizeof buf, 4096, 0), -ENOSPC);
    ck_assert_uint_eq(fake_count(fake, FAKE_READ), 1);
    ck_assert_uint_eq(fake_count(fake, FAKE_DURABLE), 0);
    unit_close(disk, fake);
}
END_TEST

START_TEST(failed_piece_of_a_long_request_ends_it)
{
    struct fake *fake = fake_new(4 * UBD_BOUNCE_SIZE);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
    char *memory = aligned_alloc(4096, 3 * UBD_BOUNCE_SIZE);

    memset(memory, 'x', 3 * UBD_BOUNCE_SIZE);
    fake_fault_once(fake, FAKE_READ, FAKE_FAIL, -EIO);
    ck_assert_int_eq(ubd_read(disk, memory + 1, 2 * UBD_BOUNCE_SIZE, 0), -EIO);
    ck_assert_uint_eq(fake_count(fake, FAKE_READ), 1);
    fake_fault_once(fake, FAKE_WRITE, FAKE_FAIL, -ENOSPC);
    ck_assert_int_eq(ubd_write(disk, memory + 1, 2 * UBD_BOUNCE_SIZE, 0, 0),
                     -ENOSPC);
    ck_assert_uint_eq(fake_count(fake, FAKE_WRITE), 1);
    free(memory);
    unit_close(disk, fake);
}
END_TEST

static void
check_range(const struct ubd_disk *disk, uint64_t len, uint64_t offset,
            uint64_t start, uint64_t end, bool is_exclusive)
{
    const struct ubd_range range = ubd_direct_range(disk, len, offset);

    ck_assert_uint_eq(range.start, start);
    ck_assert_uint_ge(range.end, offset + len);
    ck_assert_uint_le(range.end, end);
    ck_assert(range.is_exclusive == is_exclusive);
}

START_TEST(change_has_to_itself_what_another_one_must_not_touch)
{
    const uint64_t folio = 2048 * KIB;
    struct fake *fake = fake_new(3 * folio + 100);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
    const uint64_t size = disk->host.size;
    const uint64_t end = ubd_direct_range(disk, 1, size - 1).end;

    ck_assert_uint_ge(end, size);
    check_range(disk, 8192, 4096, 4096, 12288, false);
    check_range(disk, 1, 5000, 4096, 8192, true);
    check_range(disk, 4096, 4097, 4096, 12288, true);
    /* The last whole blocks, which a direct write may take. */
    check_range(disk, 4096, 3 * folio - 4096, 3 * folio - 4096, 3 * folio,
                false);
    check_range(disk, 4096 + 100, 3 * folio - 4096, 3 * folio - 4096, end,
                true);
    unit_close(disk, fake);

    fake = fake_new(3 * folio - 4096 + 100); /* In the folio of blocks. */
    disk = unit_direct_disk(fake, "barrier", 4096, 512);
    check_range(disk, 1, 3 * folio - 4096, 2 * folio, 3 * folio, true);
    unit_close(disk, fake);
}
END_TEST

/* An io that passes on what it is given, and notes if that is direct. */
struct noting_io {
    struct ubd_io io;
    struct ubd_io *next;
    unsigned nr_direct, nr_cached;
    uint64_t largest;
};

static int64_t
note_attempt(struct ubd_io *io, const struct ubd_req *req)
{
    struct noting_io *n = (struct noting_io *)io;

    ++*(req->is_direct ? &n->nr_direct : &n->nr_cached);
    if (req->len > n->largest)
        n->largest = req->len;
    return n->next->ops->attempt(n->next, req);
}

START_TEST(only_what_lies_behind_the_last_whole_block_is_not_direct)
{
    static const struct ubd_io_ops ops = {.attempt = note_attempt};
    struct fake *fake = fake_new(8292);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
    struct noting_io n = {.io.ops = &ops, .next = disk->io};
    char *buf = aligned_alloc(4096, 8192);

    memset(buf, 'x', 8192);
    disk->io = &n.io;
    ck_assert_int_eq(ubd_read(disk, buf, 4096, 0), 0);
    ck_assert_int_eq(ubd_read(disk, buf, 10, 10), 0);
    ck_assert_int_eq(ubd_write(disk, buf, 4096, 0, 0), 0);
    ck_assert_int_eq(ubd_write(disk, buf, 4096, 0, UBD_FUA), 0);
    ck_assert_uint_eq(n.nr_direct, 4);
    ck_assert_uint_eq(n.nr_cached, 0);
    ck_assert_int_eq(ubd_read(disk, buf, 100, 8192), 0);
    ck_assert_int_eq(ubd_write(disk, buf, 100, 8192, 0), 0);
    ck_assert_uint_eq(n.nr_direct, 4);
    ck_assert_uint_eq(n.nr_cached, 2);
    disk->io = n.next;
    free(buf);
    unit_close(disk, fake);
}
END_TEST

START_TEST(no_transfer_is_larger_than_the_buffer_that_it_is_copied_through)
{
    static const struct ubd_io_ops ops = {.attempt = note_attempt};
    struct fake *fake = fake_new(3 * UBD_BOUNCE_SIZE);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
    struct noting_io n = {.io.ops = &ops, .next = disk->io};
    char *buf = calloc(2, UBD_BOUNCE_SIZE);

    disk->io = &n.io;
    ck_assert_int_eq(ubd_read(disk, buf, 2 * UBD_BOUNCE_SIZE, 100), 0);
    ck_assert_uint_eq(n.largest, UBD_BOUNCE_SIZE);
    n.largest = 0;
    ck_assert_int_eq(ubd_write(disk, buf, 2 * UBD_BOUNCE_SIZE, 100, 0), 0);
    ck_assert_uint_eq(n.largest, UBD_BOUNCE_SIZE);
    disk->io = n.next;
    free(buf);
    unit_close(disk, fake);
}
END_TEST

struct reader {
    struct ubd_disk *disk;
    atomic_bool has_ended;
};

static void *
read_piece(void *opaque)
{
    struct reader *reader = opaque;
    char buf[10];

    ck_assert_int_eq(ubd_read(reader->disk, buf, sizeof buf, 8200), 0);
    reader->has_ended = true;
    return NULL;
}

START_TEST(read_of_that_piece_waits_for_who_changes_the_folio)
{
    struct fake *fake = fake_new(8292);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
    struct ubd_range range = ubd_direct_range(disk, 4096, 0);
    struct reader reader = {.disk = disk};
    pthread_t thread;

    ubd_range_lock(&disk->ranges, &range);
    ck_assert_int_eq(pthread_create(&thread, NULL, read_piece, &reader), 0);
    for (unsigned i = 0; i < 2000 && !reader.has_ended; i++)
        sched_yield();
    ck_assert_uint_eq(fake_count(fake, FAKE_READ), 0);
    ubd_range_unlock(&disk->ranges, &range);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_eq(fake_count(fake, FAKE_READ), 1);
    unit_close(disk, fake);
}
END_TEST

START_TEST(more_buffers_in_use_than_are_kept_are_given_back)
{
    enum { NR = UBD_BOUNCE_KEPT + 2 };
    struct fake *fake = fake_new(NR * 4096);
    struct ubd_disk *disk = unit_direct_disk(fake, "barrier", 4096, 512);
    struct unit_job job[NR];

    fake_hold(fake, FAKE_READ, FAKE_RUNNING);
    for (unsigned i = 0; i < NR; i++)
        unit_start(&job[i], disk, UBD_KIND_WRITE, "x", 1, i * 4096, 0);
    fake_wait_held(fake, FAKE_READ, NR);
    fake_unhold(fake, FAKE_READ);
    for (unsigned i = 0; i < NR; i++)
        ck_assert_int_eq(unit_join(&job[i]), 0);
    ck_assert_uint_eq(disk->bounce.nr_kept, UBD_BOUNCE_KEPT);
    for (unsigned i = 0; i < UBD_BOUNCE_KEPT; i++)
        for (unsigned k = 0; k < i; k++)
            ck_assert_ptr_ne(disk->bounce.kept[i], disk->bounce.kept[k]);
    unit_close(disk, fake);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        every_size_and_alignment_is_exact_to_the_byte,
        piece_behind_the_last_whole_block_is_exact_and_keeps_the_length,
        durable_write_over_the_last_whole_block_is_durable_to_its_end,
        aligned_request_is_one_transfer,
        whole_blocks_are_not_read_before_they_are_written,
        failed_read_of_the_rest_of_a_block_fails_the_write,
        concurrent_neighbours_in_one_block_all_survive,
        block_is_not_changed_between_its_read_and_its_write,
        piece_behind_the_last_whole_block_is_written_at_once,
        failed_write_of_that_piece_is_asked_again_once,
        piece_is_not_touched_if_the_blocks_before_it_failed,
        failed_piece_of_a_long_request_ends_it,
        change_has_to_itself_what_another_one_must_not_touch,
        only_what_lies_behind_the_last_whole_block_is_not_direct,
        no_transfer_is_larger_than_the_buffer_that_it_is_copied_through,
        read_of_that_piece_waits_for_who_changes_the_folio,
        more_buffers_in_use_than_are_kept_are_given_back,
        NULL,
    };

    return unit_run("direct", tests);
}
