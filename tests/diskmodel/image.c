/* SPDX-License-Identifier: BSD-3-Clause */
/* Two mappings and the file under one of them; see image.h.  It keeps both
 * sparse: a disk that mkfs discards costs no memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image.h"
#include "model.h"

#define PAGE 4096ULL /* Smaller zeroes are not worth a system call. */

int
image_open(struct image *image, const char *path, uint64_t size)
{
    struct stat st;
    void *map;

    *image =
        (struct image){.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    if (image->fd < 0 || fstat(image->fd, &st) < 0)
        return -errno;
    image->size = size ? size : (uint64_t)st.st_size;
    if (image->size == 0 || image->size % DISKMODEL_SECTOR)
        return -EINVAL;
    if ((uint64_t)st.st_size < image->size &&
        ftruncate(image->fd, (off_t)image->size) < 0)
        return -errno;

    map = mmap(NULL, image->size, PROT_READ | PROT_WRITE, MAP_SHARED, image->fd,
               0);
    if (map == MAP_FAILED)
        return -errno;
    image->durable = map;
    map = mmap(NULL, image->size, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return -errno;
    image->visible = map;
    return image_load(image);
}

void
image_close(struct image *image)
{
    if (image->visible)
        munmap(image->visible, image->size);
    if (image->durable)
        munmap(image->durable, image->size);
    if (image->fd >= 0)
        close(image->fd);
    *image = (struct image){.fd = -1};
}

int
image_load(struct image *image)
{
    off_t start = 0, end;

    if (madvise(image->visible, image->size, MADV_DONTNEED) < 0)
        return -errno;
    for (;;) {
        start = lseek(image->fd, start, SEEK_DATA);
        if (start < 0)
            return errno == ENXIO ? 0 : -errno; /* ENXIO: no more data. */
        if ((uint64_t)start >= image->size)
            return 0;
        end = lseek(image->fd, start, SEEK_HOLE);
        if (end < 0)
            return -errno;
        if ((uint64_t)end > image->size)
            end = (off_t)image->size;
        memcpy(image->visible + start, image->durable + start,
               (size_t)(end - start));
        start = end;
    }
}

static bool
drop_pages(struct image *image, unsigned char *state, uint64_t offset,
           uint64_t len)
{
    if (state == image->durable)
        return fallocate(image->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         (off_t)offset, (off_t)len) == 0;
    return madvise(state + offset, len, MADV_DONTNEED) == 0;
}

static void
put_zeroes(struct image *image, unsigned char *state, uint64_t len,
           uint64_t offset)
{
    const uint64_t end = offset + len;
    const uint64_t first = (offset + PAGE - 1) / PAGE * PAGE;
    const uint64_t last = end / PAGE * PAGE;

    if (first >= last || !drop_pages(image, state, first, last - first)) {
        memset(state + offset, 0, len);
        return;
    }
    memset(state + offset, 0, first - offset);
    memset(state + last, 0, end - last);
}

void
image_put(struct image *image, unsigned char *state, const unsigned char *data,
          uint64_t len, uint64_t offset)
{
    if (data)
        memcpy(state + offset, data, len);
    else
        put_zeroes(image, state, len, offset);
}
