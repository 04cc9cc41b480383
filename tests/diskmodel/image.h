/* SPDX-License-Identifier: BSD-3-Clause */
/* The two states of the disk's bytes: what reads see (memory) and what a power
 * cut leaves (a shared mapping of a file, best on tmpfs).
 *
 * Units, errors: as in model.h.
 * Threads: the caller locks.
 */
#ifndef DISKMODEL_IMAGE_H
#define DISKMODEL_IMAGE_H

#include <stdint.h>

struct image {
    int fd;
    uint64_t size;
    unsigned char *visible;
    unsigned char *durable;
};

/* @size 0: that of the file.  On failure too, image_close is needed. */
int image_open(struct image *image, const char *path, uint64_t size);
void image_close(struct image *image);

/* Make visible what is durable, and nothing else. */
int image_load(struct image *image);

/* @state is image->visible or image->durable; @data NULL means zeroes. */
void image_put(struct image *image, unsigned char *state,
               const unsigned char *data, uint64_t len, uint64_t offset);

#endif
