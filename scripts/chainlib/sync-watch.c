/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Runs a command and says when each sync of it began and ended.  Meant to run
 * inside a guest, where the host cannot look; linked statically, so that it
 * needs nothing from there, and it sees static programs as well.
 *
 *   sync-watch --log FILE [--disk DEV] [--probe FOLDER] -- COMMAND...
 *   sync-watch --calibrate
 *
 * A seccomp filter stops the command at the system calls that sync and at no
 * others, so that the rest runs at full speed.  Times are the processor's time
 * stamp counter: a UML guest is a process of the host and reads the host's own
 * one; qemu's is the host's minus a constant, which --probe helps to find.
 * --calibrate, on the host, says what the counter means in nanoseconds of
 * CLOCK_MONOTONIC.
 *
 * The times enclose the call: the counter is read before the stopped program
 * is let go and again when it has stopped after the call.  What that adds is
 * measured at the start, with calls that fail at once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef __x86_64__
#error "sync-watch reads the time stamp counter of x86-64"
#endif

#define MAX_RECORDS 200000 /* 16 MB; the guests here have 256. */
#define MAX_THREADS 4096
#define NR_NULL_CALLS 64 /* For the error of the times. */
#define NR_PROBES 64

enum kind { FSYNC, FDATASYNC, SYNC, SYNCFS, MSYNC, NR_KINDS };

static const struct {
    const char *name;
    unsigned number;
} kinds[NR_KINDS] = {
    [FSYNC] = {"fsync",     SYS_fsync    },
      [FDATASYNC] = {"fdatasync", SYS_fdatasync},
    [SYNC] = {"sync",      SYS_sync     },
      [SYNCFS] = {"syncfs",    SYS_syncfs   },
    [MSYNC] = {"msync",     SYS_msync    },
};

struct record {
    uint64_t begin, end; /* Of the time stamp counter. */
    int64_t result;
    pid_t tid;
    uint8_t kind;
    bool is_ours; /* It concerns the watched disk. */
    char comm[16];
};

struct thread {
    pid_t tid;
    bool is_in_call;
    struct record call;
};

static struct record *records;
static size_t nr_records, nr_lost;
static struct thread *threads[MAX_THREADS];
static size_t nr_threads;
static const char *disk_path;
static dev_t disk; /* 0: every sync is ours. */

static void
die(const char *what)
{
    fprintf(stderr, "sync-watch: %s: %s\n", what, strerror(errno));
    exit(125);
}

static uint64_t
counter(void)
{
    uint32_t low, high;

    /* The fences keep the reading between what is around it. */
    __asm__ volatile("mfence; lfence; rdtsc; lfence"
                     : "=a"(low), "=d"(high)
                     :
                     : "memory");
    return (uint64_t)high << 32 | low;
}

/* ---- Which disk a call concerns ---- */

/* Btrfs files have device numbers of their own: ask the table of mounts. */
static bool
is_mounted_from_disk(pid_t tid, dev_t dev)
{
    char name[64], line[4096], number[32], *source;
    bool found = false;
    FILE *f;

    snprintf(name, sizeof name, "/proc/%d/mountinfo", (int)tid);
    snprintf(number, sizeof number, " %u:%u ", major(dev), minor(dev));
    f = fopen(name, "re");
    if (!f)
        return false;
    while (!found && fgets(line, sizeof line, f)) {
        source = strstr(line, " - ");
        if (!source || !strstr(line, number))
            continue;
        source = strchr(source + 3, ' ');
        found = source && !strncmp(source + 1, disk_path, strlen(disk_path)) &&
                source[1 + strlen(disk_path)] == ' ';
    }
    fclose(f);
    return found;
}

static bool
is_on_disk(pid_t tid, const struct stat *st)
{
    if (S_ISBLK(st->st_mode))
        return st->st_rdev == disk;
    return st->st_dev == disk || is_mounted_from_disk(tid, st->st_dev);
}

static bool
is_mapping_on_disk(pid_t tid, uint64_t address)
{
    char name[64], line[4096], path[4096];
    unsigned long from, to;
    struct stat st;
    bool result = false;
    FILE *f;

    snprintf(name, sizeof name, "/proc/%d/maps", (int)tid);
    f = fopen(name, "re");
    if (!f)
        return true; /* Rather one too many than a sync unseen. */
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %4095[^\n]", &from, &to,
                   path) != 3 ||
            address < from || address >= to)
            continue;
        result = stat(path, &st) == 0 && is_on_disk(tid, &st);
        break;
    }
    fclose(f);
    return result;
}

static bool
concerns_disk(pid_t tid, enum kind kind, const struct user_regs_struct *regs)
{
    char name[64];
    struct stat st;

    if (disk == 0 || kind == SYNC)
        return true;
    if (kind == MSYNC)
        return (regs->rdx & MS_SYNC) && is_mapping_on_disk(tid, regs->rdi);
    snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)tid, (int)regs->rdi);
    return stat(name, &st) == 0 && is_on_disk(tid, &st);
}

/* ---- The command, under watch ---- */

static void
install_filter(void)
{
    struct sock_filter code[3 + NR_KINDS + NR_KINDS + 1];
    struct sock_fprog program = {0, code};
    unsigned i, n = 0;

    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                             offsetof(struct seccomp_data, nr));
    for (i = 0; i < NR_KINDS; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                 kinds[i].number, 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
                                                 SECCOMP_RET_TRACE | i);
    }
    code[n++] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    program.len = n;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        die("this kernel has no seccomp filters");
}

static pid_t
start(char **command)
{
    const pid_t pid = fork();
    int i;

    if (pid < 0)
        die("fork");
    if (pid > 0)
        return pid;
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
        die("ptrace");
    raise(SIGSTOP);
    install_filter();
    for (i = 0; i < NR_NULL_CALLS; i++)
        (void)!fsync(-1); /* Fails; the watcher wants its time only. */
    execvp(command[0], command);
    fprintf(stderr, "sync-watch: %s: %s\n", command[0], strerror(errno));
    _exit(127);
}

static struct thread *
find_thread(pid_t tid)
{
    size_t i;

    for (i = 0; i < nr_threads; i++) {
        if (threads[i]->tid == tid)
            return threads[i];
    }
    return NULL;
}

static struct thread *
add_thread(pid_t tid)
{
    struct thread *t = calloc(1, sizeof *t);

    if (!t || nr_threads == MAX_THREADS) {
        errno = ENOMEM;
        die("too many threads");
    }
    t->tid = tid;
    threads[nr_threads++] = t;
    return t;
}

static void
remove_thread(pid_t tid)
{
    size_t i;

    for (i = 0; i < nr_threads; i++) {
        if (threads[i]->tid == tid) {
            free(threads[i]);
            threads[i] = threads[--nr_threads];
            return;
        }
    }
}

static void
read_comm(pid_t tid, char comm[16])
{
    char name[64];
    ssize_t n = -1;
    int fd;

    snprintf(name, sizeof name, "/proc/%d/comm", (int)tid);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, comm, 15);
        close(fd);
    }
    comm[n > 0 ? n : 0] = '\0';
    for (n = 0; comm[n]; n++) { /* It goes into a line of JSON. */
        if (comm[n] < ' ' || comm[n] > '~' || strchr("\"\\", comm[n]))
            comm[n] = comm[n] == '\n' ? '\0' : '?';
    }
}

/* Stopped before the call. */
static void
enter(struct thread *t)
{
    struct user_regs_struct regs;
    unsigned long kind;

    if (ptrace(PTRACE_GETEVENTMSG, t->tid, 0, &kind) < 0 ||
        ptrace(PTRACE_GETREGS, t->tid, 0, &regs) < 0 || kind >= NR_KINDS)
        return; /* It was killed meanwhile. */
    t->is_in_call = true;
    t->call = (struct record){.tid = t->tid, .kind = (uint8_t)kind};
    t->call.is_ours = concerns_disk(t->tid, kind, &regs);
    read_comm(t->tid, t->call.comm);
    t->call.begin = counter();
}

/* Stopped after it; @now is when we heard of that. */
static void
leave(struct thread *t, uint64_t now)
{
    t->is_in_call = false;
    t->call.end = now;
    errno = 0;
    t->call.result =
        ptrace(PTRACE_PEEKUSER, t->tid, offsetof(struct user, regs.rax), 0);
    if (nr_records == MAX_RECORDS)
        nr_lost++;
    else
        records[nr_records++] = t->call;
}

/* Returns the command's status as a shell would. */
static int
watch(pid_t pid)
{
    static const long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK |
                                PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                                PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD |
                                PTRACE_O_EXITKILL;
    int status;

    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
        die("the command did not start");
    if (ptrace(PTRACE_SETOPTIONS, pid, 0, options) < 0)
        die("ptrace");
    add_thread(pid);
    ptrace(PTRACE_CONT, pid, 0, 0);

    for (;;) {
        const pid_t tid = waitpid(-1, &status, __WALL);
        const uint64_t now = counter();
        struct thread *t;
        int signal = 0;

        if (tid < 0 && errno == EINTR)
            continue;
        if (tid < 0)
            die("the command is gone");
        if (!WIFSTOPPED(status)) {
            remove_thread(tid);
            /* Whatever else still runs ends with us (EXITKILL). */
            if (tid == pid)
                return WIFEXITED(status) ? WEXITSTATUS(status)
                                         : 128 + WTERMSIG(status);
            continue;
        }
        t = find_thread(tid);
        if (!t)
            t = add_thread(tid); /* Its first stop, which is not its own. */
        else if (status >> 16 == PTRACE_EVENT_SECCOMP)
            enter(t);
        else if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            if (t->is_in_call)
                leave(t, now);
        } else if (status >> 16 == 0)
            signal = WSTOPSIG(status);
        ptrace(t->is_in_call ? PTRACE_SYSCALL : PTRACE_CONT, tid, 0, signal);
    }
}

/* ---- What the host needs to know to understand our times ---- */

static int
by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The first records are those of start(); the median says what watching adds
 * to a call that takes no time, and they are no syncs.
 */
static uint64_t
take_null_calls(void)
{
    uint64_t took[NR_NULL_CALLS];
    size_t i;

    if (nr_records < NR_NULL_CALLS) {
        nr_records = 0;
        return 0;
    }
    for (i = 0; i < NR_NULL_CALLS; i++)
        took[i] = records[i].end - records[i].begin;
    qsort(took, NR_NULL_CALLS, sizeof took[0], by_value);
    nr_records -= NR_NULL_CALLS;
    memmove(records, records + NR_NULL_CALLS, nr_records * sizeof records[0]);
    return took[NR_NULL_CALLS / 2];
}

/* Make some folders in one that the host shares with us through 9p: the host's
 * kernel sees each call of qemu for it, which ties its clock to ours.
 */
static void
probe(const char *folder, FILE *log)
{
    char name[4096];
    int i;

    for (i = 0; i < NR_PROBES; i++) {
        uint64_t begin, end;
        int r;

        snprintf(name, sizeof name, "%s/probe%d", folder, i);
        begin = counter();
        r = mkdir(name, 0700);
        end = counter();
        if (r < 0)
            die(name);
        fprintf(log,
                "{\"probe\":%d,\"begin\":%" PRIu64 ",\"end\":%" PRIu64 "}\n", i,
                begin, end);
    }
}

static void
write_records(FILE *log, uint64_t error)
{
    size_t i;

    fprintf(log, "{\"error_tsc\":%" PRIu64 "}\n", error);
    for (i = 0; i < nr_records; i++) {
        const struct record *r = &records[i];

        fprintf(log,
                "{\"kind\":\"%s\",\"begin\":%" PRIu64 ",\"end\":%" PRIu64
                ",\"tid\":%d,\"result\":%" PRId64 ",\"ours\":%s,"
                "\"comm\":\"%s\"}\n",
                kinds[r->kind].name, r->begin, r->end, (int)r->tid, r->result,
                r->is_ours ? "true" : "false", r->comm);
    }
    fprintf(log, "{\"end\":1,\"records\":%zu,\"lost\":%zu}\n", nr_records,
            nr_lost);
}

/* The pair that was read in the shortest time is the best of many. */
static int
calibrate(void)
{
    uint64_t best = UINT64_MAX, best_counter = 0, best_ns = 0;
    int i;

    for (i = 0; i < 10000; i++) {
        struct timespec now;
        const uint64_t before = counter();
        uint64_t after;

        clock_gettime(CLOCK_MONOTONIC, &now);
        after = counter();
        if (after - before >= best)
            continue;
        best = after - before;
        best_counter = before + best / 2;
        best_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    }
    printf("{\"tsc\":%" PRIu64 ",\"ns\":%" PRIu64 ",\"width_tsc\":%" PRIu64
           "}\n",
           best_counter, best_ns, best);
    return 0;
}

static void
find_disk(void)
{
    struct stat st;

    if (stat(disk_path, &st) < 0)
        die(disk_path);
    if (!S_ISBLK(st.st_mode)) {
        errno = ENOTBLK;
        die(disk_path);
    }
    disk = st.st_rdev;
}

static int
usage(void)
{
    fputs("Usage: sync-watch --log FILE [--disk DEV] [--probe FOLDER] -- "
          "COMMAND...\n"
          "       sync-watch --calibrate\n",
          stderr);
    return 125;
}

int
main(int argc, char **argv)
{
    const char *path = NULL, *shared = NULL;
    FILE *log;
    int i, status;

    for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (!strcmp(argv[i], "--calibrate"))
            return calibrate();
        if (!strcmp(argv[i], "--log") && i + 1 < argc)
            path = argv[++i];
        else if (!strcmp(argv[i], "--disk") && i + 1 < argc)
            disk_path = argv[++i];
        else if (!strcmp(argv[i], "--probe") && i + 1 < argc)
            shared = argv[++i];
        else
            return usage();
    }
    if (!path || i + 1 >= argc)
        return usage();

    records = malloc(MAX_RECORDS * sizeof records[0]);
    if (!records)
        die("memory");
    log = fopen(path, "we");
    if (!log)
        die(path);
    if (disk_path)
        find_disk();
    fprintf(log, "{\"ubd_watch\":1,\"clock\":\"tsc\",\"disk\":\"%s\"}\n",
            disk_path ? disk_path : "");
    if (shared)
        probe(shared, log);
    status = watch(start(argv + i + 1));
    write_records(log, take_null_calls());
    if (fclose(log) != 0)
        die(path);
    return status;
}
