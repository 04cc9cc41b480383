/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The metrics file and the thread that keeps it.  Never in the way of I/O: it
 * only sums counters.
 */
#include "ubd-metrics.h"

#include "ubd-trace.h"

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct {
    struct ubd_disk *disk; /* (c) */
    char *path;            /* (c) Owned; NULL: there are no metrics. */
    const char *file;      /* (c) */
    char *temporary;       /* (c) Beside path, renamed over it. */
    pthread_t thread;      /* (c) */
    bool is_running;       /* (c) */
    bool has_warned;       /* (t) the thread */
    struct ubd_stats last; /* (t) What the file says, */
    uint64_t nr_traced;    /* (t) and that of the trace. */
    pthread_mutex_t lock;
    pthread_cond_t stopped; /* Signalled when must_stop is set. */
    bool must_stop;         /* (l) */
} metrics = {.lock = PTHREAD_MUTEX_INITIALIZER};
/* Locking key: (l) lock, (c) constant once started, (t) used by one thread. */

static const char *const kinds[] = {
#define AS_NAME(id, name) name,
    UBD_KINDS(AS_NAME)};

static void
print_header(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void
print_value(FILE *out, const char *name, const char *type, const char *help,
            uint64_t value)
{
    print_header(out, name, type, help);
    fprintf(out, "%s %llu\n", name, (unsigned long long)value);
}

static void
print_by_kind(FILE *out, const char *name, const char *help,
              const uint64_t *values, unsigned which)
{
    print_header(out, name, "counter", help);
    for (unsigned i = 0; i < UBD_NR_KINDS; i++)
        if (which & (1u << i))
            fprintf(out, "%s{kind=\"%s\"} %llu\n", name, kinds[i],
                    (unsigned long long)values[i]);
}

static void
print_histogram(FILE *out, const char *name, const char *help,
                const uint64_t *buckets, uint64_t sum_ns)
{
    unsigned long long count = 0;

    print_header(out, name, "histogram", help);
    for (unsigned i = 0; i < UBD_NR_BUCKETS - 1; i++) {
        count += buckets[i];
        fprintf(out, "%s_bucket{le=\"%.6f\"} %llu\n", name,
                (double)(UINT64_C(1) << i) / 1e6, count);
    }
    count += buckets[UBD_NR_BUCKETS - 1];
    fprintf(out, "%s_bucket{le=\"+Inf\"} %llu\n", name, count);
    fprintf(out, "%s_sum %.9f\n%s_count %llu\n", name, (double)sum_ns / 1e9,
            name, count);
}

/* A label's value: backslash, quote and newline are escaped. */
static void
print_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static void
print_info(FILE *out)
{
    const struct ubd_info *info = ubd_info(metrics.disk);

    print_header(out, "ubd_info", "gauge", "what is served, and how; always 1");
    fprintf(out, "ubd_info{mode=\"%s\",engine=\"%s\",direct=\"%s\",file=\"",
            info->mode, info->engine, info->direct ? "true" : "false");
    print_escaped(out, metrics.file);
    fputs("\"} 1\n", out);
}

static void
print_trace(FILE *out)
{
    uint64_t records, dropped;

    ubd_trace_counts(&records, &dropped);
    print_value(out, "ubd_trace_records_total", "counter",
                "requests that the trace has a line of", records);
    print_value(out, "ubd_trace_dropped_total", "counter",
                "requests that the trace has no line of", dropped);
}

static void
print_metrics(FILE *out, const struct ubd_stats *s)
{
    const unsigned all = (1u << UBD_NR_KINDS) - 1;
    const unsigned changes =
        1u << UBD_KIND_WRITE | 1u << UBD_KIND_TRIM | 1u << UBD_KIND_ZERO;

    print_info(out);
    print_by_kind(out, "ubd_requests_total", "requests answered", s->requests,
                  all);
    print_by_kind(out, "ubd_request_bytes_total", "bytes of those requests",
                  s->bytes, all & ~(1u << UBD_KIND_FLUSH));
    print_by_kind(out, "ubd_request_errors_total",
                  "requests answered with an error", s->errors, all);
    print_by_kind(out, "ubd_fua_total", "requests with FUA", s->fua, changes);
#define AS_LINE(id, name, help)               \
    print_header(out, name, "counter", help); \
    fprintf(out, "%s %llu\n", name,           \
            (unsigned long long)s->counter[UBD_COUNT_##id]);
    UBD_COUNTERS(AS_LINE)
    print_value(out, "ubd_volatile_bytes", "gauge",
                "bytes of changes acknowledged but not yet durable",
                s->volatile_bytes);
    print_value(out, "ubd_dirty_bytes", "gauge",
                "bytes dirty in the host's page cache, if there is a limit",
                s->dirty_bytes);
    print_value(out, "ubd_dirty_bytes_peak", "gauge",
                "the most that ubd_dirty_bytes has been", s->dirty_bytes_max);
    print_value(out, "ubd_writeout_bytes_total", "counter",
                "bytes written out early, before any flush", s->writeout_bytes);
    print_header(out, "ubd_throttle_seconds_total", "counter",
                 "time that writes have waited for room below the limit");
    fprintf(out, "ubd_throttle_seconds_total %.9f\n", s->throttle_ns / 1e9);
    print_header(out, "ubd_lost_data", "gauge",
                 "1 if the host has lost acknowledged data, else 0");
    fprintf(out, "ubd_lost_data %d\n", ubd_loss(metrics.disk) != 0);
    print_trace(out);
#define AS_HISTOGRAM(id, name, help)                                     \
    print_histogram(out, name, help, s->histogram[UBD_HIST_##id].bucket, \
                    s->histogram[UBD_HIST_##id].sum_ns);
    UBD_HISTOGRAMS(AS_HISTOGRAM)
}

/* Readers see the old file or the new one, never a part. */
static int
write_file(const struct ubd_stats *stats)
{
    const int fd =
        open(metrics.temporary,
             O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    FILE *out;
    int r = 0;

    if (fd < 0)
        return -errno;
    out = fdopen(fd, "w");
    if (!out) {
        r = -errno;
        close(fd);
    } else {
        print_metrics(out, stats);
        if (ferror(out))
            r = -EIO;
        if (fclose(out) != 0 && r == 0)
            r = -errno;
    }
    if (r == 0 && rename(metrics.temporary, metrics.path) < 0)
        r = -errno;
    if (r < 0)
        (void)unlink(metrics.temporary); /* Perhaps it was never made. */
    return r;
}

/* Write the file if it would say something new. */
static void
update_file(void)
{
    uint64_t records, dropped;
    struct ubd_stats stats;
    int r;

    ubd_stats(metrics.disk, &stats);
    ubd_trace_counts(&records, &dropped);
    if (memcmp(&stats, &metrics.last, sizeof stats) == 0 &&
        records + dropped == metrics.nr_traced)
        return;
    r = write_file(&stats);
    if (r == 0) {
        metrics.last = stats;
        metrics.nr_traced = records + dropped;
    } else if (!metrics.has_warned) {
        nbdkit_error("metrics=%s: cannot be written: %s", metrics.path,
                     strerror(-r));
        metrics.has_warned = true;
    }
}

static void *
keep_file(void *unused)
{
    struct timespec until;

    (void)unused;
    clock_gettime(CLOCK_MONOTONIC, &until);
    pthread_mutex_lock(&metrics.lock);
    while (!metrics.must_stop) {
        until.tv_sec += 1;
        while (!metrics.must_stop &&
               pthread_cond_timedwait(&metrics.stopped, &metrics.lock,
                                      &until) != ETIMEDOUT)
            continue;
        pthread_mutex_unlock(&metrics.lock);
        update_file();
        pthread_mutex_lock(&metrics.lock);
    }
    pthread_mutex_unlock(&metrics.lock);
    return NULL;
}

/* What every metrics file begins with. */
#define FIRST_WORDS "# HELP ubd_"

/* May the file be replaced?  It may be a disk that somebody is using. */
static const char *
find_objection(const char *path, const char *image)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    char words[sizeof FIRST_WORDS - 1];
    struct stat st, image_st;
    ssize_t len;

    if (fd < 0)
        return "exists and cannot be read; expected a metrics file or none";
    len = fstat(fd, &st) == 0 && S_ISREG(st.st_mode)
              ? read(fd, words, sizeof words)
              : -1;
    close(fd);
    if (stat(image, &image_st) == 0 && image_st.st_dev == st.st_dev &&
        image_st.st_ino == st.st_ino)
        return "is the image; expected a metrics file or none";
    if (len < 0)
        return "is not a regular file; expected a metrics file or none";
    if (len > 0 && (len < (ssize_t)sizeof words ||
                    memcmp(words, FIRST_WORDS, sizeof words) != 0))
        return "exists and is not a metrics file; expected one or none";
    return NULL;
}

int
ubd_metrics_open(struct ubd_disk *disk, const char *path, const char *file,
                 const char **ret_why)
{
    char *target = realpath(path, NULL); /* Not the link: it stays. */
    struct stat st;

    *ret_why = NULL;
    if (target) {
        *ret_why = find_objection(target, file);
    } else if (errno != ENOENT) {
        return -errno;
    } else if (lstat(path, &st) == 0) {
        *ret_why = "is a dangling symbolic link; expected a metrics file or "
                   "none";
    } else {
        target = strdup(path);
    }
    metrics.path = target;
    if (*ret_why)
        return -EINVAL;
    metrics.disk = disk;
    metrics.file = file;
    if (!target ||
        asprintf(&metrics.temporary, "%s.%ld.tmp", target, (long)getpid()) < 0)
        return -ENOMEM;
    ubd_stats(disk, &metrics.last);
    return write_file(&metrics.last);
}

int
ubd_metrics_start(void)
{
    pthread_condattr_t attr;
    sigset_t all, old;
    int error;

    if (!metrics.path)
        return 0;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&metrics.stopped, &attr);
    pthread_condattr_destroy(&attr);

    sigfillset(&all); /* Signals are for nbdkit's threads. */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&metrics.thread, NULL, keep_file, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    metrics.is_running = error == 0;
    return -error;
}

void
ubd_metrics_stop(void)
{
    if (metrics.is_running) {
        pthread_mutex_lock(&metrics.lock);
        metrics.must_stop = true;
        pthread_cond_signal(&metrics.stopped);
        pthread_mutex_unlock(&metrics.lock);
        pthread_join(metrics.thread, NULL);
        metrics.is_running = false;
        update_file();
    }
    free(metrics.temporary);
    free(metrics.path);
    metrics.temporary = metrics.path = NULL;
}
