/* SPDX-License-Identifier: BSD-3-Clause */
/* The client of the power-cut rig.
 *
 *   powercut fill PATH sectors=N   write the base state of so many sectors
 *   powercut load NAME=VALUE...    run a load, print a line of JSON; then, for
 *                                  each path that comes in on stdin, check that
 *                                  image, print what is wrong with it and
 *                                  again a line of JSON
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "history.h"
#include "load.h"
#include "sector.h"

#define CONNECTIONS_MAX 64
#define LL(number) ((unsigned long long)(number))

struct options {
    struct load_config load;
    uint64_t sectors;
    uint64_t kill;
    uint64_t go_on;
    uint64_t base_zero;
    const char *promise;
};

static int
parse_number(const char *text, uint64_t *ret_number)
{
    char *end;

    if (*text < '0' || *text > '9')
        return -EINVAL;
    errno = 0;
    *ret_number = strtoull(text, &end, 10);
    return errno || *end ? -EINVAL : 0;
}

static int
parse_option(struct options *o, char *arg)
{
    struct load_config *c = &o->load;
    const struct {
        const char *name;
        uint64_t *number;
        const char **text;
    } table[] = {
        {"socket",      NULL,            &c->socket },
        {"control",     NULL,            &c->control},
        {"cut",         NULL,            &c->cut    },
        {"begin",       NULL,            &c->begin  },
        {"promise",     NULL,            &o->promise},
        {"seed",        &c->seed,        NULL       },
        {"connections", &c->connections, NULL       },
        {"depth",       &c->depth,       NULL       },
        {"requests",    &c->requests,    NULL       },
        {"sectors",     &o->sectors,     NULL       },
        {"sectors_max", &c->sectors_max, NULL       },
        {"align",       &c->align,       NULL       },
        {"write",       &c->write,       NULL       },
        {"zero",        &c->zero,        NULL       },
        {"trim",        &c->trim,        NULL       },
        {"flush",       &c->flush,       NULL       },
        {"fua",         &c->fua,         NULL       },
        {"acks",        &c->acks,        NULL       },
        {"go_on",       &o->go_on,       NULL       },
        {"kill",        &o->kill,        NULL       },
        {"base_zero",   &o->base_zero,   NULL       },
    };
    char *value = strchr(arg, '=');

    if (!value)
        return -EINVAL;
    *value++ = '\0';
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(arg, table[i].name) != 0)
            continue;
        if (table[i].number)
            return parse_number(value, table[i].number);
        *table[i].text = value;
        return 0;
    }
    return -EINVAL;
}

static int
check_options(const struct options *o)
{
    const struct load_config *c = &o->load;

    if (!c->socket || (c->control && !c->cut) || !c->seed || !c->connections ||
        c->connections > CONNECTIONS_MAX || !c->depth || !c->requests ||
        !c->align || c->sectors_max < c->align || o->sectors < c->align ||
        o->sectors > UINT32_MAX || c->requests > UINT32_MAX ||
        !(c->write + c->zero + c->trim + c->flush))
        return -EINVAL;
    return 0;
}

static int
parse_promise(const char *text, enum promise *ret_promise)
{
    static const char *const names[] = {[PROMISE_NEVER] = "never",
                                        [PROMISE_FLUSH] = "flush",
                                        [PROMISE_ALWAYS] = "always"};

    for (unsigned i = 0; text && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret_promise = (enum promise)i;
            return 0;
        }
    }
    return -EINVAL;
}

static int
check(const struct history *h, const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct verdict v;
    int r = fd < 0 ? -errno : history_check(h, fd, stderr, &v);

    if (fd >= 0)
        close(fd);
    if (r < 0) {
        fprintf(stderr, "powercut: %s: %s\n", path, strerror(-r));
        return r;
    }
    printf("{\"acked\": %llu, \"promised\": %llu, \"sectors\": %llu, "
           "\"lost\": %llu, \"foreign\": %llu, \"mixed\": %llu}\n",
           LL(v.acked), LL(v.promised), LL(v.sectors), LL(v.lost),
           LL(v.foreign), LL(v.mixed));
    return 0;
}

static int
check_all(const struct history *h)
{
    char *line = NULL;
    size_t size = 0;
    int r = 0;

    while (r == 0 && getline(&line, &size, stdin) > 0) {
        line[strcspn(line, "\n")] = '\0';
        r = check(h, line);
        fflush(stdout);
    }
    free(line);
    return r;
}

static int
load(struct options *o)
{
    struct history h = {.run = o->load.seed,
                        .is_base_zero = o->base_zero,
                        .nr_sectors = (uint32_t)o->sectors};
    struct load_result result;
    int r = parse_promise(o->promise, &h.promise);

    o->load.kill = (pid_t)o->kill;
    o->load.go_on = o->go_on;
    if (r == 0)
        r = check_options(o);
    if (r == 0)
        r = history_init(&h, (uint32_t)o->load.requests);
    if (r == 0)
        r = load_run(&o->load, &h, &result);
    if (r < 0) {
        fprintf(stderr, "powercut: load: %s\n", strerror(-r));
        history_destroy(&h);
        return r;
    }
    printf("{\"requests\": %llu, \"flushes\": %llu, \"fua\": %llu, "
           "\"errors\": %llu}\n",
           LL(result.requests), LL(result.flushes), LL(result.fua),
           LL(result.errors));
    fflush(stdout);
    r = check_all(&h);
    history_destroy(&h);
    return r;
}

static int
fill(const char *path, uint64_t sectors)
{
    FILE *f = fopen(path, "r+e");
    uint64_t words[SECTOR_WORDS];

    for (uint64_t i = 0; f && i < sectors; i++) {
        sector_make(words, RUN_BASE, i, 0);
        if (fwrite(words, SECTOR, 1, f) != 1)
            break;
    }
    if (!f || ferror(f) || fclose(f) != 0) {
        fprintf(stderr, "powercut: %s: %s\n", path, strerror(errno));
        return -EIO;
    }
    return 0;
}

int
main(int argc, char **argv)
{
    struct options o = {.load = {.align = 1}};
    const bool is_fill = argc > 2 && strcmp(argv[1], "fill") == 0;
    int i;

    if (argc < 3 || (!is_fill && strcmp(argv[1], "load") != 0)) {
        fprintf(stderr, "usage: powercut fill PATH sectors=N\n"
                        "       powercut load NAME=VALUE...\n");
        return 2;
    }
    for (i = is_fill ? 3 : 2; i < argc; i++) {
        if (parse_option(&o, argv[i]) < 0) {
            fprintf(stderr,
                    "powercut: %s: no such option, or not a value for it\n",
                    argv[i]);
            return 2;
        }
    }
    return (is_fill ? fill(argv[2], o.sectors) : load(&o)) < 0;
}
