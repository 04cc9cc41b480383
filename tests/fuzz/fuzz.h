/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the libFuzzer harnesses share.  A finding is an abort.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(truth)                                                    \
    do {                                                                \
        if (!(truth)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #truth); \
            abort();                                                    \
        }                                                               \
    } while (0)

/* Takes the input from the front, and zeroes once it is used up. */
struct input {
    const uint8_t *data;
    size_t size;
};

static inline uint64_t
input_take(struct input *in, unsigned bytes)
{
    uint64_t value = 0;

    for (; bytes > 0; bytes--) {
        value = value << 8 | (in->size ? *in->data : 0);
        if (in->size) {
            in->data++;
            in->size--;
        }
    }
    return value;
}

#endif
