/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands in, JSON out; see control.h for the protocol. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "control.h"
#include "settings.h"

/* One line per counter: the report needs no other list. */
#define COUNTERS(X)       \
    X(reads)              \
    X(writes)             \
    X(zeroes)             \
    X(flushes)            \
    X(flushes_done)       \
    X(flushes_clean)      \
    X(fua_writes)         \
    X(read_bytes)         \
    X(write_bytes)        \
    X(errors)             \
    X(busy_ns)            \
    X(volatile_bytes)     \
    X(volatile_bytes_max) \
    X(ops)                \
    X(cut_in_ops)         \
    X(fail_in_writes)     \
    X(fail_in_flushes)    \
    X(cuts)               \
    X(cut_sectors_kept)   \
    X(cut_sectors_lost)   \
    X(cut_writes_torn)

struct args {
    uint64_t ops, seed, writes, flushes;
    enum diskmodel_cut_mode mode;
};

/* Takes "NAME=VALUE" apart; the value, or NULL. */
static char *
split(char *word)
{
    char *equals = strchr(word, '=');

    if (!equals)
        return NULL;
    *equals = '\0';
    return equals + 1;
}

/* The rest of the line; returns what is wrong with it, or NULL. */
static const char *
parse_args(char **words, struct args *ret_args)
{
    char *word, *value;

    *ret_args = (struct args){.mode = DISKMODEL_CUT_TORN};
    while ((word = strtok_r(NULL, " \t\r\n", words))) {
        int r = -EINVAL;

        value = split(word);
        if (!value)
            return "expected NAME=VALUE";
        if (strcmp(word, "ops") == 0)
            r = settings_parse_number(value, &ret_args->ops);
        else if (strcmp(word, "writes") == 0)
            r = settings_parse_number(value, &ret_args->writes);
        else if (strcmp(word, "flushes") == 0)
            r = settings_parse_number(value, &ret_args->flushes);
        else if (strcmp(word, "seed") == 0)
            r = settings_parse_number(value, &ret_args->seed);
        else if (strcmp(word, "mode") == 0)
            r = settings_parse_cut_mode(value, &ret_args->mode);
        if (r < 0)
            return "expected ops=N, writes=N, flushes=N, seed=N or "
                   "mode=none|all|prefix|write|sector|torn";
    }
    return NULL;
}

static const char *
do_arm(struct diskmodel *m, char **words)
{
    struct args args;
    const char *error = parse_args(words, &args);

    if (error)
        return error;
    if (args.ops == 0)
        return "expected ops=N, at least 1";
    diskmodel_arm(m, args.ops, args.seed, args.mode);
    return NULL;
}

static const char *
do_disarm(struct diskmodel *m, char **words)
{
    (void)words;
    diskmodel_arm(m, 0, 0, DISKMODEL_CUT_NONE);
    return NULL;
}

static const char *
do_fail(struct diskmodel *m, char **words)
{
    struct args args;
    const char *error = parse_args(words, &args);

    if (error)
        return error;
    diskmodel_fail(m, args.writes, args.flushes);
    return NULL;
}

static const char *
do_cut(struct diskmodel *m, char **words)
{
    struct args args;
    const char *error = parse_args(words, &args);

    if (error)
        return error;
    if (diskmodel_cut(m, args.seed, args.mode) < 0)
        return "the power is off already";
    return NULL;
}

static const char *
do_power_on(struct diskmodel *m, char **words)
{
    (void)words;
    switch (diskmodel_power_on(m)) {
    case 0:
        return NULL;
    case -EINVAL:
        return "the power is on";
    default:
        return "the durable state could not be read";
    }
}

static const char *
do_set(struct diskmodel *m, char **words)
{
    struct diskmodel_settings settings;
    char *word, *value;

    diskmodel_get_settings(m, &settings);
    while ((word = strtok_r(NULL, " \t\r\n", words))) {
        value = split(word);
        if (!value || settings_set(&settings, word, value) < 0)
            return "expected NAME=VALUE of a setting that stats shows";
    }
    diskmodel_set_settings(m, &settings);
    return NULL;
}

static const char *
do_stats(struct diskmodel *m, char **words)
{
    (void)m;
    (void)words;
    return NULL;
}

static const struct {
    const char *name;
    const char *(*run)(struct diskmodel *m, char **words);
} commands[] = {
    {"arm",      do_arm     },
    {"disarm",   do_disarm  },
    {"cut",      do_cut     },
    {"fail",     do_fail    },
    {"power-on", do_power_on},
    {"set",      do_set     },
    {"stats",    do_stats   },
};

static void
print_stats(struct diskmodel *m, FILE *out)
{
    struct diskmodel_settings settings;
    struct diskmodel_stats stats;

    diskmodel_get_settings(m, &settings);
    diskmodel_get_stats(m, &stats);
    fprintf(out, "{\"power\": \"%s\"", stats.is_off ? "off" : "on");
#define PRINT(name) \
    fprintf(out, ", \"%s\": %llu", #name, (unsigned long long)stats.name);
    COUNTERS(PRINT)
#undef PRINT
    fprintf(out, ", \"settings\": ");
    settings_print_json(&settings, out);
    fprintf(out, "}\n");
}

void
control_run(struct diskmodel *m, char *line, FILE *out)
{
    char *words = NULL;
    const char *name = strtok_r(line, " \t\r\n", &words);
    const char *error =
        "expected arm, disarm, cut, fail, power-on, set or stats";
    size_t i;

    for (i = 0; name && i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(name, commands[i].name) == 0)
            error = commands[i].run(m, &words);
    }
    if (error)
        fprintf(out, "{\"error\": \"%s\"}\n", error);
    else
        print_stats(m, out);
}

struct server {
    struct diskmodel *model;
    int fd;
};

static void *
serve_client(void *arg)
{
    struct server *client = arg;
    const int out_fd = dup(client->fd);
    FILE *in = fdopen(client->fd, "r");
    FILE *out = out_fd < 0 ? NULL : fdopen(out_fd, "w");
    char *line = NULL;
    size_t size = 0;

    while (in && out && getline(&line, &size, in) > 0) {
        control_run(client->model, line, out);
        if (fflush(out) != 0) /* The client has gone. */
            break;
    }
    free(line);
    if (in)
        fclose(in);
    else
        close(client->fd);
    if (out)
        fclose(out);
    else if (out_fd >= 0)
        close(out_fd);
    free(client);
    return NULL;
}

static void *
accept_clients(void *arg)
{
    struct server *server = arg;

    for (;;) {
        const int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);
        struct server *client = fd < 0 ? NULL : malloc(sizeof *client);
        pthread_t thread;

        if (!client) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        *client = (struct server){.model = server->model, .fd = fd};
        if (pthread_create(&thread, NULL, serve_client, client) != 0) {
            close(fd);
            free(client);
        } else {
            pthread_detach(thread);
        }
    }
    return NULL;
}

static int
listen_at(const char *path, int *ret_fd)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = 0;

    if (fd < 0)
        return -errno;
    if (strlen(path) >= sizeof addr.sun_path)
        r = -ENAMETOOLONG;
    else
        memcpy(addr.sun_path, path, strlen(path) + 1);
    if (r == 0 && connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0)
        r = -EADDRINUSE;
    else if (r == 0 && errno == ECONNREFUSED)
        (void)unlink(path); /* Left over; if it stays, bind says so. */
    if (r == 0 && (bind(fd, (struct sockaddr *)&addr, sizeof addr) < 0 ||
                   listen(fd, 16) < 0))
        r = -errno;
    if (r < 0)
        close(fd);
    else
        *ret_fd = fd;
    return r;
}

int
control_start(struct diskmodel *m, const char *path)
{
    struct server *server = malloc(sizeof *server);
    sigset_t all, before;
    pthread_t thread;
    int r;

    if (!server)
        return -ENOMEM;
    server->model = m;
    r = listen_at(path, &server->fd);
    if (r == 0) {
        /* Signals are for the main thread, which they have to wake. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = -pthread_create(&thread, NULL, accept_clients, server);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (r < 0)
            close(server->fd);
        else
            pthread_detach(thread);
    }
    if (r < 0)
        free(server);
    return r;
}
