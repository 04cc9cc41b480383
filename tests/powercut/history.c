/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules C1 to C4; see history.h. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "history.h"
#include "sector.h"

#define TOLD_MAX 5 /* Sectors with their whole history; more help nobody. */

/* What a sector may hold: one of its states, of which 0 is the base and the
 * others are its changes, in order.
 */
struct state {
    bool is_base;
    const struct change *change; /* Unless is_base. */
    uint64_t seq;                /* Of what it wrote. */
};

/* One sector's states, and from which on they are allowed. */
struct sector_history {
    const struct history *h;
    uint32_t nr;
    struct state *states;
    uint32_t nr_states;
    uint32_t promised; /* (C2): states before this one are too old. */
};

int
history_init(struct history *h, uint32_t nr_changes_max)
{
    h->changes = calloc(nr_changes_max, sizeof *h->changes);
    h->nr_changes = 0;
    h->nr_changes_max = nr_changes_max;
    h->nr_events = h->covered = 0;
    return h->changes ? 0 : -ENOMEM;
}

void
history_destroy(struct history *h)
{
    free(h->changes);
    h->changes = NULL;
}

struct change *
history_issue(struct history *h, enum change_kind kind, uint32_t first,
              uint32_t nr, bool fua)
{
    struct change *c;

    if (h->nr_changes == h->nr_changes_max)
        return NULL;
    c = &h->changes[h->nr_changes++];
    *c = (struct change){.kind = kind,
                         .fua = fua,
                         .first = first,
                         .nr = nr,
                         .issued = ++h->nr_events};
    return c;
}

uint64_t
history_seq(const struct history *h, const struct change *c)
{
    return (uint64_t)(c - h->changes) + 1;
}

void
history_ack(struct history *h, struct change *c)
{
    c->acked = ++h->nr_events;
}

uint64_t
history_issue_flush(struct history *h)
{
    return ++h->nr_events;
}

void
history_ack_flush(struct history *h, uint64_t issued)
{
    h->nr_events++;
    if (issued > h->covered)
        h->covered = issued;
}

/* (C1) */
static bool
is_promised(const struct history *h, const struct change *c)
{
    return c->acked &&
           (c->fua || c->acked < h->covered || h->promise == PROMISE_ALWAYS);
}

/* ---- One sector ---- */

static bool
is_zeroing(const struct state *s, bool is_base_zero)
{
    return s->is_base ? is_base_zero : s->change->kind != CHANGE_WRITE;
}

static void
find_states(struct sector_history *s, uint32_t nr)
{
    const struct history *h = s->h;

    s->nr = nr;
    s->states[0] = (struct state){.is_base = true};
    s->nr_states = 1;
    s->promised = 0;
    for (uint32_t i = 0; i < h->nr_changes; i++) {
        const struct change *c = &h->changes[i];

        if (nr < c->first || nr - c->first >= c->nr)
            continue;
        if (is_promised(h, c))
            s->promised = s->nr_states;
        s->states[s->nr_states++] =
            (struct state){.change = c, .seq = history_seq(h, c)};
    }
}

/* (C3): was it trimmed after state @i, in a state that is allowed? */
static bool
is_trimmed_since(const struct sector_history *s, uint32_t i)
{
    for (uint32_t j = s->nr_states - 1; j > i && j >= s->promised; j--)
        if (s->states[j].change->kind == CHANGE_TRIM)
            return true;
    return false;
}

/* Does the sector hold what state @i left? */
static bool
is_state(const struct sector_history *s, uint32_t i, bool is_zero, uint64_t run,
         uint64_t seq)
{
    const struct state *state = &s->states[i];

    if (is_zeroing(state, s->h->is_base_zero))
        return is_zero;
    if (is_zero)
        return false;
    return state->is_base ? run == RUN_BASE
                          : run == s->h->run && seq == state->seq;
}

/* The word @w that state @i would have left. */
static uint64_t
word_of_state(const struct sector_history *s, uint32_t i, unsigned w)
{
    const struct state *state = &s->states[i];
    uint64_t words[SECTOR_WORDS];

    if (is_zeroing(state, s->h->is_base_zero))
        return 0;
    sector_make(words, state->is_base ? RUN_BASE : s->h->run, s->nr,
                state->seq);
    return words[w];
}

/* (C4): is every word from a state that is allowed? */
static bool
is_mixed(const struct sector_history *s, const uint64_t *words)
{
    for (unsigned w = 0; w < SECTOR_WORDS; w++) {
        uint32_t i = s->promised;

        while (i < s->nr_states && word_of_state(s, i, w) != words[w])
            i++;
        if (i == s->nr_states)
            return false;
    }
    return true;
}

enum finding { FINE, LOST, FOREIGN, MIXED };

static enum finding
judge(const struct sector_history *s, const uint64_t *words)
{
    const bool is_zero = sector_is_zero(words);
    uint64_t run = RUN_BASE, seq = 0;
    bool is_known = false;

    if (!is_zero && !sector_parse(words, s->nr, &run, &seq))
        return is_mixed(s, words) ? MIXED : FOREIGN;
    for (uint32_t i = s->nr_states; i-- > 0;) {
        if (!is_state(s, i, is_zero, run, seq))
            continue;
        if (i >= s->promised || is_trimmed_since(s, i))
            return FINE;
        is_known = true;
    }
    return is_known ? LOST : FOREIGN;
}

/* ---- What a person needs to understand a loss ---- */

static void
tell_content(const struct sector_history *s, const uint64_t *words, FILE *out)
{
    uint64_t run, seq;

    if (sector_is_zero(words))
        fprintf(out, "zeroes");
    else if (!sector_parse(words, s->nr, &run, &seq))
        fprintf(out, "no sector of ours (%016llx %016llx ...)",
                (unsigned long long)words[0], (unsigned long long)words[1]);
    else if (run == RUN_BASE)
        fprintf(out, "what was there before the load");
    else
        fprintf(out, "change %llu%s", (unsigned long long)seq,
                run == s->h->run ? "" : " of another load");
}

static void
tell_state(const struct sector_history *s, uint32_t i, FILE *out)
{
    static const char *const kinds[] = {"write", "zero", "trim"};
    const struct change *c = s->states[i].change;

    fprintf(out, "    change %llu: %s%s of sectors %u+%u, sent at event %llu, ",
            (unsigned long long)s->states[i].seq, kinds[c->kind],
            c->fua ? " with FUA" : "", c->first, c->nr,
            (unsigned long long)c->issued);
    if (c->acked)
        fprintf(out, "acknowledged at %llu", (unsigned long long)c->acked);
    else
        fprintf(out, "not acknowledged");
    fprintf(out, "%s\n", i == s->promised ? "  <- promised" : "");
}

static void
tell(const struct sector_history *s, const uint64_t *words, FILE *out)
{
    fprintf(out, "  sector %u holds ", s->nr);
    tell_content(s, words, out);
    fprintf(out, "; the last FLUSH that was acknowledged was sent at %llu\n",
            (unsigned long long)s->h->covered);
    for (uint32_t i = 1; i < s->nr_states; i++)
        tell_state(s, i, out);
}

/* ---- All of them ---- */

static void
count(struct verdict *v, enum finding finding)
{
    v->sectors++;
    v->lost += finding == LOST;
    v->foreign += finding == FOREIGN;
    v->mixed += finding == MIXED;
}

int
history_check(const struct history *h, int fd, FILE *out,
              struct verdict *ret_verdict)
{
    struct sector_history s = {.h = h};
    uint64_t words[SECTOR_WORDS];
    struct verdict v = {0};
    unsigned nr_told = 0;

    s.states = calloc(h->nr_changes + 1, sizeof *s.states);
    if (!s.states)
        return -ENOMEM;
    for (uint32_t i = 0; i < h->nr_changes; i++) {
        v.acked += h->changes[i].acked != 0;
        v.promised += is_promised(h, &h->changes[i]);
    }
    for (uint32_t nr = 0; nr < h->nr_sectors; nr++) {
        const ssize_t r = pread(fd, words, SECTOR, (off_t)nr * SECTOR);
        enum finding finding;

        if (r != SECTOR) {
            free(s.states);
            return r < 0 ? -errno : -EIO;
        }
        find_states(&s, nr);
        finding = judge(&s, words);
        count(&v, finding);
        if ((finding == LOST || finding == FOREIGN) &&
            h->promise != PROMISE_NEVER && nr_told++ < TOLD_MAX)
            tell(&s, words, out);
    }
    free(s.states);
    *ret_verdict = v;
    return 0;
}
