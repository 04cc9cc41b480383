/* SPDX-License-Identifier: BSD-3-Clause */
/* A server that says yes to every flush and does nothing, for the test that
 * such a one is told.  It takes file=IMAGE and whatever else it is given.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_SERIALIZE_ALL_REQUESTS

static int fd = -1;

static int
set_word(const char *key, const char *value)
{
    if (strcmp(key, "file") == 0)
        fd = open(value, O_RDWR | O_CLOEXEC);
    return strcmp(key, "file") == 0 && fd == -1 ? -1 : 0;
}

static void *
open_it(int readonly)
{
    (void)readonly;
    return &fd;
}

static int64_t
get_size(void *handle)
{
    struct stat st;

    (void)handle;
    return fstat(fd, &st) == -1 ? -1 : st.st_size;
}

static int
say_yes(void *handle)
{
    (void)handle;
    return 1;
}

static int
read_all(void *handle, void *buf, uint32_t len, uint64_t offset, uint32_t flags)
{
    (void)handle;
    (void)flags;
    return pread(fd, buf, len, (off_t)offset) == (ssize_t)len ? 0 : -1;
}

static int
write_all(void *handle, const void *buf, uint32_t len, uint64_t offset,
          uint32_t flags)
{
    (void)handle;
    (void)flags;
    return pwrite(fd, buf, len, (off_t)offset) == (ssize_t)len ? 0 : -1;
}

static int
lie(void *handle, uint32_t flags)
{
    (void)handle;
    (void)flags;
    return 0;
}

static struct nbdkit_plugin plugin = {
    .name = "liar",
    .version = "1",
    .config = set_word,
    .open = open_it,
    .get_size = get_size,
    .can_flush = say_yes,
    .can_multi_conn = say_yes,
    .pread = read_all,
    .pwrite = write_all,
    .flush = lie,
};

NBDKIT_REGISTER_PLUGIN(plugin)
