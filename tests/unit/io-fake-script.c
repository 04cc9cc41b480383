/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a test tells the fake host what to do, and waits until it has come to it.
 */
#include "io-fake.h"

#include <stdlib.h>

void
fake_heal(struct fake *fake)
{
    pthread_mutex_lock(&fake->lock);
    while (fake->rules) {
        struct fake_rule *rule = fake->rules;

        fake->rules = rule->next;
        free(rule);
    }
    pthread_mutex_unlock(&fake->lock);
}

void
fake_script(struct fake *fake, struct fake_rule rule)
{
    struct fake_rule *copy = malloc(sizeof *copy);
    struct fake_rule **link;

    *copy = rule;
    copy->next = NULL;
    pthread_mutex_lock(&fake->lock);
    for (link = &fake->rules; *link;)
        link = &(*link)->next;
    *link = copy;
    pthread_mutex_unlock(&fake->lock);
}

void
fake_fault(struct fake *fake, enum fake_kind kind, enum fake_fault fault,
           int error)
{
    fake_script(
        fake, (struct fake_rule){.kind = kind, .fault = fault, .error = error});
}

void
fake_fault_once(struct fake *fake, enum fake_kind kind, enum fake_fault fault,
                int error)
{
    fake_script(fake,
                (struct fake_rule){
                    .kind = kind, .fault = fault, .error = error, .times = 1});
}

void
fake_lose_starting(struct fake *fake, unsigned nr, int error)
{
    static const enum fake_kind kinds[] = {FAKE_START_WRITEOUT,
                                           FAKE_SUBMIT_WRITEOUT};

    for (unsigned i = 0; i < 2; i++)
        fake_script(fake, (struct fake_rule){.kind = kinds[i],
                                             .fault = FAKE_LOSE,
                                             .error = error,
                                             .skip = nr,
                                             .times = 1});
}

void
fake_hold(struct fake *fake, enum fake_kind kind, enum fake_stage stage)
{
    pthread_mutex_lock(&fake->lock);
    fake->is_holding[kind][stage] = true;
    pthread_mutex_unlock(&fake->lock);
}

void
fake_hold_no_more(struct fake *fake, enum fake_kind kind)
{
    pthread_mutex_lock(&fake->lock);
    for (unsigned i = 0; i < FAKE_NR_STAGES; i++)
        fake->is_holding[kind][i] = false;
    pthread_mutex_unlock(&fake->lock);
}

void
fake_unhold(struct fake *fake, enum fake_kind kind)
{
    fake_hold_no_more(fake, kind);
    pthread_mutex_lock(&fake->lock);
    for (struct fake_held *h = fake->held; h; h = h->next)
        if (h->kind == kind)
            h->is_released = true;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->lock);
}

/* Needs the lock.  The @nth of a kind that is held and not let go, or NULL. */
static struct fake_held *
find_held(struct fake *fake, enum fake_kind kind, unsigned nth)
{
    for (struct fake_held *h = fake->held; h; h = h->next)
        if (h->kind == kind && !h->is_released && nth-- == 0)
            return h;
    return NULL;
}

/* Needs the lock. */
static bool
is_there(const struct fake *fake, const struct fake_held *held)
{
    for (const struct fake_held *h = fake->held; h; h = h->next)
        if (h == held)
            return true;
    return false;
}

void
fake_wait_held(struct fake *fake, enum fake_kind kind, unsigned nr)
{
    pthread_mutex_lock(&fake->lock);
    while (nr > 0 && !find_held(fake, kind, nr - 1))
        pthread_cond_wait(&fake->changed, &fake->lock);
    pthread_mutex_unlock(&fake->lock);
}

void
fake_release(struct fake *fake, enum fake_kind kind, unsigned nth)
{
    struct fake_held *held;

    fake_wait_held(fake, kind, nth + 1);
    pthread_mutex_lock(&fake->lock);
    held = find_held(fake, kind, nth);
    held->is_released = true;
    pthread_cond_broadcast(&fake->changed);
    /* It can only be held at a later stage again, as another one. */
    while (is_there(fake, held) && held->is_released)
        pthread_cond_wait(&fake->changed, &fake->lock);
    pthread_mutex_unlock(&fake->lock);
}

static unsigned
read_locked(struct fake *fake, const unsigned *value)
{
    unsigned copy;

    pthread_mutex_lock(&fake->lock);
    copy = *value;
    pthread_mutex_unlock(&fake->lock);
    return copy;
}

unsigned
fake_dirty(struct fake *fake)
{
    return read_locked(fake, &fake->nr_dirty);
}

unsigned
fake_dirty_max(struct fake *fake)
{
    return read_locked(fake, &fake->nr_dirty_max);
}

unsigned
fake_count(struct fake *fake, enum fake_kind kind)
{
    return read_locked(fake, &fake->count[kind]);
}

void
fake_wait_count(struct fake *fake, enum fake_kind kind, unsigned nr)
{
    pthread_mutex_lock(&fake->lock);
    while (fake->count[kind] < nr)
        pthread_cond_wait(&fake->changed, &fake->lock);
    pthread_mutex_unlock(&fake->lock);
}

unsigned
fake_pieces(struct fake *fake, enum fake_kind kind, struct fake_piece *pieces,
            unsigned max)
{
    unsigned nr = 0;

    pthread_mutex_lock(&fake->lock);
    for (unsigned i = 0; i < fake->nr_pieces && nr < max; i++)
        if (fake->piece[i].kind == kind)
            pieces[nr++] = fake->piece[i];
    pthread_mutex_unlock(&fake->lock);
    return nr;
}
