/* SPDX-License-Identifier: BSD-3-Clause */
/* The disk model as a file: `disk` in a mount point of its own.
 *
 * fsync is a FLUSH; a write with O_DSYNC or RWF_DSYNC is a write with FUA;
 * punching a hole and zeroing a range zero.  close() does nothing: a disk does
 * not learn of it, and a FLUSH here would hide the missing ones.
 *
 * With cache=none (direct_io) a request of a loop device or a program reaches
 * the model as it is, split only above 256 pages.  One thing the kernel adds
 * (read in Linux 6.18): fsync holds the inode's lock, so on the bare file no
 * write starts while a FLUSH runs.  A loop device's page cache takes them
 * meanwhile.
 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fuse_lowlevel.h>
#include <linux/fuse.h>

#include "control.h"
#include "model.h"
#include "settings.h"

#define DISK_INODE 2
#define DISK_NAME "disk"
#define REQUEST_MAX (1U << 20) /* The most that the kernel sends. */
#define NR_REQUESTS_MAX 256    /* As many as a loop device has, and more. */
#define FOREVER 1e6            /* Nobody else changes names or sizes. */

enum cache { CACHE_NONE, CACHE_WRITETHROUGH, CACHE_WRITEBACK };

static const char *const cache_names[] = {
    [CACHE_NONE] = "none",
    [CACHE_WRITETHROUGH] = "writethrough",
    [CACHE_WRITEBACK] = "writeback",
};

struct options {
    const char *mountpoint;
    const char *file;
    const char *control;
    uint64_t size;
    enum cache cache;
    bool exit_with_parent;
    struct diskmodel_settings settings;
};

struct front {
    struct diskmodel *model;
    enum cache cache;
};

static struct diskmodel *
model_of(fuse_req_t req)
{
    const struct front *front = fuse_req_userdata(req);

    return front->model;
}

static void
get_attr(fuse_req_t req, fuse_ino_t ino, struct stat *ret_st)
{
    const uint64_t size = diskmodel_size(model_of(req));

    *ret_st = (struct stat){.st_ino = ino, .st_nlink = 1, .st_blksize = 4096};
    if (ino == FUSE_ROOT_ID) {
        ret_st->st_mode = S_IFDIR | 0700;
        ret_st->st_nlink = 2;
    } else {
        ret_st->st_mode = S_IFREG | 0600;
        ret_st->st_size = (off_t)size;
        ret_st->st_blocks = (blkcnt_t)(size / 512);
    }
}

static void
reply_result(fuse_req_t req, int r)
{
    /* Outside: a file would grow, and this one cannot. */
    fuse_reply_err(req, r == -EINVAL ? ENOSPC : -r);
}

static void
front_init(void *userdata, struct fuse_conn_info *conn)
{
    const struct front *front = userdata;

    conn->max_write = REQUEST_MAX;
    conn->max_background = NR_REQUESTS_MAX;
    conn->congestion_threshold = NR_REQUESTS_MAX;
    if (front->cache == CACHE_WRITEBACK)
        conn->want |= FUSE_CAP_WRITEBACK_CACHE;
}

static void
front_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param e = {
        .ino = DISK_INODE, .attr_timeout = FOREVER, .entry_timeout = FOREVER};

    if (parent != FUSE_ROOT_ID || strcmp(name, DISK_NAME) != 0) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    get_attr(req, DISK_INODE, &e.attr);
    fuse_reply_entry(req, &e);
}

static void
front_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct stat st;

    (void)fi;
    get_attr(req, ino, &st);
    fuse_reply_attr(req, &st, FOREVER);
}

static void
front_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
              struct fuse_file_info *fi)
{
    struct stat st;

    (void)fi;
    get_attr(req, ino, &st);
    if ((to_set & FUSE_SET_ATTR_SIZE) && attr->st_size != st.st_size)
        fuse_reply_err(req, EPERM); /* A disk has the size that it has. */
    else
        fuse_reply_attr(req, &st, FOREVER);
}

static void
front_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
              struct fuse_file_info *fi)
{
    static const char *const names[] = {".", "..", DISK_NAME};
    char buf[512]; /* Three short names. */
    size_t used = 0;
    off_t i;

    (void)fi;
    if (size > sizeof buf)
        size = sizeof buf;
    for (i = offset; ino == FUSE_ROOT_ID && i < 3; i++) {
        struct stat st;
        size_t len;

        get_attr(req, i == 2 ? DISK_INODE : FUSE_ROOT_ID, &st);
        len = fuse_add_direntry(req, buf + used, size - used, names[i], &st,
                                i + 1);
        if (len > size - used)
            break;
        used += len;
    }
    fuse_reply_buf(req, buf, used);
}

/* The kernel's own struct: libfuse 3.14 knows no name for parallel writes,
 * without which the kernel would send the writes of a file one by one.
 */
static void
front_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    const struct front *front = fuse_req_userdata(req);
    struct fuse_open_out out = {0};

    (void)fi;
    if (ino != DISK_INODE) {
        fuse_reply_err(req, EISDIR);
        return;
    }
    if (front->cache == CACHE_NONE)
        out.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
    else
        out.open_flags = FOPEN_KEEP_CACHE;
    fuse_reply_buf(req, (const char *)&out, sizeof out);
}

static void
front_read(fuse_req_t req, fuse_ino_t ino, size_t len, off_t offset,
           struct fuse_file_info *fi)
{
    struct diskmodel *m = model_of(req);
    const uint64_t size = diskmodel_size(m);
    char *buf;
    int r;

    (void)ino;
    (void)fi;
    if ((uint64_t)offset >= size)
        len = 0; /* The end of the file. */
    else if (len > size - (uint64_t)offset)
        len = size - (uint64_t)offset;
    buf = malloc(len + 1); /* Never 0. */
    r = buf ? diskmodel_read(m, buf, len, (uint64_t)offset) : -ENOMEM;
    if (len == 0)
        fuse_reply_buf(req, NULL, 0);
    else if (r < 0)
        reply_result(req, r);
    else
        fuse_reply_buf(req, buf, len);
    free(buf);
}

static void
front_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t len,
            off_t offset, struct fuse_file_info *fi)
{
    const bool fua = !fi->writepage && (fi->flags & O_DSYNC);
    const int r =
        diskmodel_write(model_of(req), buf, len, (uint64_t)offset, fua);

    (void)ino;
    if (r < 0)
        reply_result(req, r);
    else
        fuse_reply_write(req, len);
}

static void
front_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
            struct fuse_file_info *fi)
{
    (void)ino;
    (void)datasync;
    (void)fi;
    reply_result(req, diskmodel_flush(model_of(req)));
}

static void
front_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset,
                off_t len, struct fuse_file_info *fi)
{
    int r = -EOPNOTSUPP;

    (void)ino;
    (void)fi;
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
        r = diskmodel_zero(model_of(req), (uint64_t)len, (uint64_t)offset,
                           false);
    else if ((mode & ~FALLOC_FL_KEEP_SIZE) == 0)
        r = 0; /* A disk has all its blocks. */
    reply_result(req, r);
}

static const struct fuse_lowlevel_ops front_ops = {
    .init = front_init,
    .lookup = front_lookup,
    .getattr = front_getattr,
    .setattr = front_setattr,
    .readdir = front_readdir,
    .open = front_open,
    .read = front_read,
    .write = front_write,
    .fsync = front_fsync,
    .fallocate = front_fallocate,
};

static void
usage(FILE *out)
{
    fprintf(out, "usage: diskmodel MOUNTPOINT file=PATH [size=SIZE] "
                 "[control=SOCKET]\n"
                 "                 [cache=none|writethrough|writeback] "
                 "[exit-with-parent=1]\n"
                 "                 [SETTING=VALUE...]\n"
                 "Prints \"ready\" when MOUNTPOINT/" DISK_NAME
                 " is there, and serves it until\n"
                 "SIGTERM or an unmount.  What is not durable then is lost.\n"
                 "Settings, also for the socket, with their defaults:\n");
    settings_print_help(out);
}

static int
parse_cache(const char *name, enum cache *ret_cache)
{
    unsigned i;

    for (i = 0; i < sizeof cache_names / sizeof cache_names[0]; i++) {
        if (strcmp(name, cache_names[i]) == 0) {
            *ret_cache = (enum cache)i;
            return 0;
        }
    }
    return -EINVAL;
}

static int
parse_option(struct options *o, char *arg)
{
    char *value = strchr(arg, '=');

    if (!value) {
        o->mountpoint = arg;
        return 0;
    }
    *value++ = '\0';
    if (strcmp(arg, "file") == 0)
        o->file = value;
    else if (strcmp(arg, "control") == 0)
        o->control = value;
    else if (strcmp(arg, "size") == 0)
        return settings_parse_size(value, &o->size);
    else if (strcmp(arg, "cache") == 0)
        return parse_cache(value, &o->cache);
    else if (strcmp(arg, "exit-with-parent") == 0)
        o->exit_with_parent = strcmp(value, "1") == 0;
    else
        return settings_set(&o->settings, arg, value);
    return 0;
}

static int
parse_options(struct options *o, int argc, char **argv)
{
    int i;

    *o = (struct options){.settings = settings_default};
    for (i = 1; i < argc; i++) {
        if (parse_option(o, argv[i]) < 0) {
            fprintf(stderr,
                    "diskmodel: %s: no such setting, or not a value "
                    "for it\n",
                    argv[i]);
            return -EINVAL;
        }
    }
    if (!o->mountpoint || !o->file) {
        usage(stderr);
        return -EINVAL;
    }
    return 0;
}

static int
serve(struct front *front, const struct options *o)
{
    char name[] = "diskmodel";
    char *argv[] = {name, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, argv);
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    struct fuse_session *session =
        fuse_session_new(&args, &front_ops, sizeof front_ops, front);
    int r = -EIO;

    if (!config || !session || fuse_set_signal_handlers(session) != 0)
        goto out;
    if (fuse_session_mount(session, o->mountpoint) != 0)
        goto out_signals;
    fuse_loop_cfg_set_max_threads(config, NR_REQUESTS_MAX);
    fuse_loop_cfg_set_idle_threads(config, NR_REQUESTS_MAX);
    printf("ready\n");
    fflush(stdout);
    /* A signal ends it with a positive number, which is no failure. */
    r = fuse_session_loop_mt(session, config) < 0 ? -EIO : 0;
    fuse_session_unmount(session);
out_signals:
    fuse_remove_signal_handlers(session);
out:
    if (session)
        fuse_session_destroy(session);
    fuse_loop_cfg_destroy(config);
    fuse_opt_free_args(&args);
    return r;
}

int
main(int argc, char **argv)
{
    struct options o;
    struct front front;
    int r;

    if (parse_options(&o, argc, argv) < 0)
        return 2;
    if (o.exit_with_parent)
        prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_IGN); /* A client of the socket that has gone. */
    front.cache = o.cache;
    r = diskmodel_open(o.file, o.size, &o.settings, &front.model);
    if (r < 0) {
        fprintf(stderr, "diskmodel: %s: %s\n", o.file, strerror(-r));
        return 1;
    }
    if (o.control)
        r = control_start(front.model, o.control);
    if (r < 0) {
        fprintf(stderr, "diskmodel: %s: %s\n", o.control, strerror(-r));
        diskmodel_close(front.model);
        return 1;
    }
    r = serve(&front, &o);
    if (o.control)
        (void)unlink(o.control); /* Gone is as good. */
    /* The model stays: threads of the control socket may be using it. */
    return r < 0;
}
