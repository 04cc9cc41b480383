/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that take their time, from their halves; see model.h. */
#include <stddef.h>

#include "model.h"

static int
run(struct diskmodel *m, enum diskmodel_kind kind, const void *data,
    uint64_t len, uint64_t offset, bool fua)
{
    struct diskmodel_op *op;
    int r = diskmodel_begin(m, kind, data, len, offset, fua, &op);

    if (r < 0)
        return r;
    diskmodel_wait(m, op);
    return diskmodel_finish(m, op);
}

int
diskmodel_write(struct diskmodel *m, const void *buf, uint64_t len,
                uint64_t offset, bool fua)
{
    return run(m, DISKMODEL_WRITE, buf, len, offset, fua);
}

int
diskmodel_zero(struct diskmodel *m, uint64_t len, uint64_t offset, bool fua)
{
    return run(m, DISKMODEL_ZERO, NULL, len, offset, fua);
}

int
diskmodel_flush(struct diskmodel *m)
{
    return run(m, DISKMODEL_FLUSH, NULL, 0, 0, false);
}
