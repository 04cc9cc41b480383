/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The trace's file and the thread that writes it.  Requests only ever put a
 * record into a ring; whatever the file does, they go on.
 */
#include "ubd-trace.h"

#include "ubd-trace-json.h"

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define RING_RECORDS 65536 /* 7 MiB; 0.2 s at 300,000 requests a second. */
#define LOOK_NS 10000000   /* How long records wait to be looked for. */
#define TEXT_SIZE ((size_t)256 << 10)
#define PIPE_SIZE (1 << 20) /* What an ordinary user may ask for. */

/* How long the end waits for a pipe's reader: for a sign of life, and in all.
 */
#define STALL_NS UINT64_C(500000000)
#define LAST_WAIT_NS UINT64_C(5000000000)

static struct {
    struct ubd_trace_ring ring;
    atomic_uint_fast64_t nr_arrived; /* (a) */
    const char *path;                /* (c) */
    int fd;                          /* (c) -1: there is no trace. */
    bool is_created;                 /* (c) There was none before. */
    bool is_file;                    /* (c) A regular one. */
    bool is_running;                 /* (c) */
    pthread_t thread;                /* (c) */
    pthread_mutex_t lock;
    pthread_cond_t stopped; /* Signalled when must_stop is set. */
    bool must_stop;         /* (l) */

    char *text;                    /* (t) Lines to be written. */
    size_t len;                    /* (t) */
    bool is_within_line;           /* (t) The text's first line has begun. */
    bool has_warned;               /* (t) */
    uint64_t nr_told;              /* (t) Dropped, as the trace says. */
    atomic_uint_fast64_t nr_taken; /* (a) From the ring. */
    atomic_uint_fast64_t nr_lost;  /* (a) Of those, not written. */
} trace = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
/* Locking key: (l) lock, (c) constant once started, (a) atomic, (t) used by
 * the thread that writes, and by ubd_trace_stop when that has ended.
 */

bool ubd_trace_is_on;

static uint64_t
now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void
ubd_trace_arrived(struct ubd_trace_record *record, uint64_t conn,
                  enum ubd_kind kind, uint32_t len, uint64_t offset,
                  unsigned flags)
{
    *record = (struct ubd_trace_record){
        .id = atomic_fetch_add_explicit(&trace.nr_arrived, 1,
                                        memory_order_relaxed) +
              1,
        .conn = conn,
        .offset = offset,
        .arrival_ns = now_ns(),
        .len = len,
        .flags = flags,
        .kind = kind,
    };
    ubd_observe(&record->span);
}

void
ubd_trace_answered(struct ubd_trace_record *record, int result)
{
    ubd_observe(NULL);
    /* It never waited; or for a sync that had been submitted before it came. */
    if (record->span.start_ns < record->arrival_ns)
        record->span.start_ns = record->arrival_ns;
    record->result = result;
    record->end_ns = now_ns();
    (void)ubd_trace_ring_put(&trace.ring, record); /* It counts the dropped. */
}

void
ubd_trace_counts(uint64_t *ret_records, uint64_t *ret_dropped)
{
    const uint64_t lost = atomic_load(&trace.nr_lost);

    *ret_records = atomic_load(&trace.nr_taken) - lost;
    *ret_dropped = atomic_load(&trace.ring.nr_dropped) + lost;
}

static uint64_t
nr_dropped(void)
{
    return atomic_load(&trace.ring.nr_dropped) + atomic_load(&trace.nr_lost);
}

/* ---- Writing ---- */

/* What begins with @text: a line, and is it a record's? */
static bool
is_record(const char *text, size_t len)
{
    const size_t words = sizeof UBD_TRACE_RECORD_WORDS - 1;

    return len >= words && memcmp(text, UBD_TRACE_RECORD_WORDS, words) == 0;
}

static bool
is_first_line(const char *text, size_t len)
{
    const size_t words = sizeof UBD_TRACE_FIRST_WORDS - 1;

    return len >= words && memcmp(text, UBD_TRACE_FIRST_WORDS, words) == 0;
}

/* The text cannot be written.  A line that has begun must be ended some day,
 * so that the next one stands alone, and the first one must be the first; the
 * rest is lost.  (There is no last line yet.)
 */
static void
drop_text(void)
{
    size_t kept = 0;

    for (size_t at = 0; at < trace.len;) {
        const char *line = trace.text + at;
        const char *end = memchr(line, '\n', trace.len - at);
        const size_t len = end - line + 1; /* All lines are whole. */

        if ((at == 0 && trace.is_within_line) || is_first_line(line, len)) {
            memmove(trace.text + kept, line, len);
            kept += len;
        } else if (is_record(line, len)) {
            atomic_fetch_add(&trace.nr_lost, 1);
        } else { /* A line of drops: to be told again. */
            trace.nr_told -= ubd_trace_drops_of(line);
        }
        at += len;
    }
    trace.len = kept;
}

/* Write what can be written now.  False if some is left, as a pipe is full. */
static bool
write_text(void)
{
    size_t done = 0;
    int error = 0;

    while (done < trace.len && !error) {
        const ssize_t r = write(trace.fd, trace.text + done, trace.len - done);

        if (r > 0)
            done += r;
        else if (r == 0 || errno != EINTR)
            error = r == 0 ? EIO : errno;
    }
    if (done > 0)
        trace.is_within_line = trace.text[done - 1] != '\n';
    memmove(trace.text, trace.text + done, trace.len - done);
    trace.len -= done;
    if (error && error != EAGAIN) {
        drop_text();
        if (!trace.has_warned)
            nbdkit_error("trace=%s: cannot be written: %s; the trace is not "
                         "complete (said once)",
                         trace.path, strerror(error));
        trace.has_warned = true;
    }
    return error != EAGAIN;
}

/* Take lines from the ring, as many as there is room for.  False if there may
 * be more.
 */
static bool
take_records(void)
{
    struct ubd_trace_record record;

    while (TEXT_SIZE - trace.len >= 2 * UBD_TRACE_LINE_MAX) {
        const uint64_t dropped = nr_dropped();

        if (dropped != trace.nr_told) {
            trace.len += ubd_trace_drop_line(trace.text + trace.len,
                                             dropped - trace.nr_told, dropped);
            trace.nr_told = dropped;
        }
        if (!ubd_trace_ring_get(&trace.ring, &record))
            return true;
        trace.len += ubd_trace_record_line(trace.text + trace.len, &record);
        atomic_fetch_add(&trace.nr_taken, 1);
    }
    return false;
}

/* Wait for the pipe's reader, or until it is time to look again. */
static void
wait_for_reader(uint64_t ns)
{
    struct pollfd pollfd = {.fd = trace.fd, .events = POLLOUT};
    const struct timespec timeout = {.tv_nsec = ns};

    (void)ppoll(&pollfd, 1, &timeout, NULL); /* An error shows in write. */
}

/* Wait for records; true if it is time to end. */
static bool
wait_for_stop(bool may_sleep)
{
    struct timespec until;
    bool must_stop;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&trace.lock);
    while (may_sleep && !trace.must_stop &&
           pthread_cond_timedwait(&trace.stopped, &trace.lock, &until) !=
               ETIMEDOUT)
        continue;
    must_stop = trace.must_stop;
    pthread_mutex_unlock(&trace.lock);
    return must_stop;
}

/* Requests would only gain microseconds by waking us, and pay for it: so we
 * look from time to time.
 */
static void *
write_trace(void *unused)
{
    bool is_empty = false;

    (void)unused;
    while (!wait_for_stop(is_empty)) {
        is_empty = take_records();
        if (!write_text()) {
            wait_for_reader(LOOK_NS);
            is_empty = false; /* That was sleep enough. */
        }
    }
    return NULL;
}

/* All that the ring and the text hold, and the last line.  Whoever reads a
 * pipe and is alive gets it all.
 */
static void
write_end(void)
{
    const uint64_t end_ns = now_ns() + LAST_WAIT_NS;
    uint64_t stall_ns = now_ns() + STALL_NS;
    struct ubd_trace_record record;
    uint64_t records, dropped;
    bool is_empty;

    do {
        size_t len;

        is_empty = take_records();
        len = trace.len;
        if (write_text())
            continue;
        if (trace.len < len)
            stall_ns = now_ns() + STALL_NS;
        if (now_ns() > stall_ns || now_ns() > end_ns)
            break;
        wait_for_reader(LOOK_NS);
        is_empty = false;
    } while (!is_empty);

    drop_text(); /* Nothing, if all went well. */
    while (ubd_trace_ring_get(&trace.ring, &record)) {
        atomic_fetch_add(&trace.nr_taken, 1);
        atomic_fetch_add(&trace.nr_lost, 1);
    }
    ubd_trace_counts(&records, &dropped);
    trace.len +=
        ubd_trace_end_line(trace.text + trace.len, now_ns(), records, dropped);
    (void)write_text(); /* There is nobody left to tell. */
}

/* ---- Beginning and end ---- */

/* Is that something that keeps nothing: a pipe, a terminal, null or full? */
static bool
is_transient(int fd, const struct stat *st)
{
    return S_ISFIFO(st->st_mode) ||
           (S_ISCHR(st->st_mode) &&
            (isatty(fd) || st->st_rdev == makedev(1, 3) ||
             st->st_rdev == makedev(1, 7)));
}

#define EXPECTED "; expected a trace, an empty file, a pipe or none"

/* May what is open as @fd be written over?  It may be a disk that somebody is
 * using.
 */
static const char *
find_objection(int fd, const char *image, const char *metrics)
{
    char words[sizeof UBD_TRACE_FIRST_WORDS - 1];
    struct stat st, other;
    ssize_t len;

    if (fstat(fd, &st) < 0)
        return "cannot be looked at" EXPECTED;
    if (stat(image, &other) == 0 && other.st_dev == st.st_dev &&
        other.st_ino == st.st_ino)
        return "is the image" EXPECTED;
    if (metrics && stat(metrics, &other) == 0 && other.st_dev == st.st_dev &&
        other.st_ino == st.st_ino)
        return "is the file of metrics=" EXPECTED;
    if (is_transient(fd, &st))
        return NULL;
    if (!S_ISREG(st.st_mode))
        return "is not a regular file" EXPECTED;
    len = read(fd, words, sizeof words);
    if (len != 0 && (len < (ssize_t)sizeof words ||
                     memcmp(words, UBD_TRACE_FIRST_WORDS, sizeof words) != 0))
        return "exists and is not a trace" EXPECTED;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return "is being written by another server" EXPECTED;
    return NULL;
}

/* To read and write: a regular file is looked at, and a pipe must not end when
 * its reader does.
 */
static int
open_trace(const char *path, bool *ret_is_created, const char **ret_why)
{
    const int flags = O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    struct stat st;
    int fd;

    *ret_is_created = false;
    if (stat(path, &st) == 0) {
        if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode) &&
            !S_ISCHR(st.st_mode)) {
            *ret_why = "is not a regular file" EXPECTED;
            return -EINVAL;
        }
        fd = open(path, flags);
        return fd < 0 ? -errno : fd;
    }
    if (errno != ENOENT)
        return -errno;
    fd = open(path, flags | O_CREAT | O_EXCL, 0644);
    if (fd < 0 && errno == EEXIST) {
        *ret_why = "is a dangling symbolic link" EXPECTED;
        return -EINVAL;
    }
    *ret_is_created = fd >= 0;
    return fd < 0 ? -errno : fd;
}

int
ubd_trace_open(const char *path, const char *image, const char *metrics,
               const char **ret_why)
{
    struct stat st;
    const int fd = open_trace(path, &trace.is_created, ret_why);

    if (fd < 0)
        return fd;
    trace.path = path;
    trace.fd = fd;
    *ret_why = find_objection(fd, image, metrics);
    if (*ret_why) {
        ubd_trace_abandon();
        return -EINVAL;
    }
    trace.is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    return 0;
}

void
ubd_trace_abandon(void)
{
    if (trace.fd < 0)
        return;
    if (trace.is_created)
        (void)unlink(trace.path); /* Empty, and in nobody's way. */
    close(trace.fd);
    trace.fd = -1;
}

static int
start_thread(void)
{
    pthread_condattr_t attr;
    sigset_t all, old;
    int error;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&trace.stopped, &attr);
    pthread_condattr_destroy(&attr);

    sigfillset(&all); /* Signals are for nbdkit's threads. */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&trace.thread, NULL, write_trace, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -error;
}

int
ubd_trace_start(struct ubd_disk *disk, const char *file)
{
    int r;

    if (trace.fd < 0)
        return 0;
    r = ubd_trace_ring_init(&trace.ring, RING_RECORDS);
    if (r < 0)
        return r;
    trace.text = malloc(TEXT_SIZE);
    if (!trace.text)
        return -ENOMEM;
    if (trace.is_file && ftruncate(trace.fd, 0) < 0)
        return -errno;
    if (!trace.is_file) /* More than the 64 KiB that it has; or not. */
        (void)fcntl(trace.fd, F_SETPIPE_SZ, PIPE_SIZE);
    trace.len = ubd_trace_first_line(trace.text, file, ubd_info(disk), getpid(),
                                     now_ns());
    r = start_thread();
    trace.is_running = ubd_trace_is_on = r == 0;
    return r;
}

void
ubd_trace_stop(void)
{
    if (trace.is_running) {
        pthread_mutex_lock(&trace.lock);
        trace.must_stop = true;
        pthread_cond_signal(&trace.stopped);
        pthread_mutex_unlock(&trace.lock);
        pthread_join(trace.thread, NULL);
        trace.is_running = ubd_trace_is_on = false;
        write_end();
    }
    ubd_trace_ring_destroy(&trace.ring);
    free(trace.text);
    trace.text = NULL;
    if (trace.fd >= 0)
        close(trace.fd);
    trace.fd = -1;
}
