/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs in a guest: writes a file, syncs, syncs the device, and says after each
 * step how long it took by the guest's own clock; the host reads its own when
 * the line arrives.
 *
 *   guestload FILE DEVICE MIB GO
 *
 * In the end it waits for the file GO, so that the host can look at a guest
 * that is idle but not gone.
 */
#include <fcntl.h>

#include "load.h"

#define MIB (1 << 20)
#define PATIENCE_S 120

static double
now_s(void)
{
    return now_ns() / 1e9;
}

static void
say(const char *step, double seconds)
{
    printf("seeds %s %.6f\n", step, seconds);
    fflush(stdout);
}

/* On the standard output, which is all that the host hears. */
static void
fail(const char *what)
{
    printf("seeds failed %s: %s\n", what, strerror(errno));
    fflush(stdout);
    exit(1);
}

static void
fill_with_noise(char *bytes)
{
    uint64_t noise = FIRST_SEED;

    for (size_t i = 0; i < MIB; i++)
        bytes[i] = (char)next_random(&noise);
}

static void
write_file(const char *path, long mib)
{
    static char bytes[MIB];
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd == -1)
        fail("open");
    fill_with_noise(bytes);
    /* Not on ext2, where the C library would write zeroes instead. */
    if (fallocate(fd, 0, 0, (off_t)mib * MIB) == -1 && errno != EOPNOTSUPP)
        fail("fallocate");
    for (long i = 0; i < mib; i++)
        for (size_t done = 0; done < MIB;) {
            const ssize_t n = write(fd, bytes + done, MIB - done);

            if (n == -1)
                fail("write");
            done += n;
        }
    if (close(fd) == -1)
        fail("close");
}

int
main(int argc, char **argv)
{
    double start, give_up;
    int device;

    if (argc != 5)
        die("usage: guestload FILE DEVICE MIB GO");
    device = open(argv[2], O_RDONLY);
    if (device == -1)
        fail("device");
    say("ready", 0);
    start = now_s();
    write_file(argv[1], atol(argv[3]));
    say("written", now_s() - start);
    start = now_s();
    sync();
    say("synced", now_s() - start);
    start = now_s();
    if (fsync(device) == -1)
        fail("fsync of the device");
    say("device", now_s() - start);
    for (give_up = now_s() + PATIENCE_S; access(argv[4], F_OK) == -1;) {
        if (now_s() > give_up)
            fail("wait for the host");
        usleep(10000);
    }
    return 0;
}
