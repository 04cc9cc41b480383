/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rules of server/durability.h as a model that spin exhausts: writes, FUA
 * writes and FUA zeroes, flushes that lead, join, gather or need no sync, a
 * host that writes back when it likes and loses what it had to, and reports of
 * that loss, once per open file.  The property is an assertion at every reply:
 * what is promised is on the disk.  Rule Dn is at the comment that names it.
 *
 * Every change is a bit, and one byte long.  Bit 0 is what somebody else wrote
 * before the disk was opened.  A pthread mutex is a d_step; whatever is not
 * inside one interleaves with everything.
 *
 * Left out: cache=osync; the witness, which only spares a client false alarms:
 * what a stale lane reports is always taken for a loss here; and flushes of the
 * disk that fail, which are told to one call only (cache-flush.h), and with
 * them ubd_durability_settle; and that the number of syncs that may run changes.
 *
 * spin -DWRONG_... makes one known mistake; each must be refuted, as tests in
 * this folder see to.
 */
#ifndef NR_CLIENTS
#define NR_CLIENTS 2
#endif
#ifndef NR_OPS
#define NR_OPS 2 /* By each client; NR_CLIENTS * NR_OPS + 1 bits. */
#endif
#ifndef NR_FAILURES
#define NR_FAILURES 1 /* Of writeback, whoever asked for it. */
#endif
#define NR_LANES 2 /* To sync, and so many to write durably. */
#ifndef SYNCS_MAX
#define SYNCS_MAX 2
#endif

#define NOBODY 15
#define QUEUE 14
#define SET(w) (1 << (w))

mtype = {done, wait, gather, lead};

/* The host. */
byte dirty = 1;              /* In the page cache only. */
byte stable;                 /* On the disk. */
byte error_seq;              /* Writebacks that failed. */
byte nr_failures = NR_FAILURES;
byte nr_full = 1;            /* Plain writes that find no space half way. */
byte cursor[2 * NR_LANES];   /* What each open file has reported. */
bool is_taken[2 * NR_LANES]; /* (D4) */

/* What clients have been told. */
byte acked = 1;
bool has_lost; /* A loss has been answered. */

/* struct ubd_durability. */
byte begun, completed, durable, failed, failed_durable;
#ifdef WRONG_FIRST
bool has_synced = true;
#else
bool has_synced; /* (D6): the first flush always syncs. */
#endif
bool error, is_leader_chosen;
byte nr_running;

/* struct ubd_sync, by the client that leads it. */
bool is_running[NR_CLIENTS];
byte covered[NR_CLIENTS], covered_failed[NR_CLIENTS], safe[NR_CLIENTS];

/* struct ubd_flusher. */
mtype step[NR_CLIENTS] = done;
bool is_ok[NR_CLIENTS];
byte joined[NR_CLIENTS] = NOBODY; /* A leader, or the queue. */
bool must_lead[NR_CLIENTS];
byte target[NR_CLIENTS];

hidden byte i;

/* Writeback fails, of whatever the kernel tries to write; nobody asked it to, or
 * a sync did.  That it may also succeed unasked only puts more on the disk.
 */
active proctype kernel()
{
end:
    do
    :: d_step {
            nr_failures > 0 && dirty != 0 ->
            dirty = 0;
            error_seq++;
            nr_failures--
        }
    od
}

inline answer_joined(whom, ok)
{
    for (i : 0 .. NR_CLIENTS - 1) {
        if
        :: joined[i] == (whom) ->
            joined[i] = NOBODY;
            is_ok[i] = ok;
            step[i] = done
        :: else
        fi
    }
}

inline remember_loss()
{
#ifndef WRONG_FORGET
    error = true; /* D3 */
#endif
    answer_joined(QUEUE, false)
}

inline start_sync(me)
{
    covered[me] = completed; /* D2: sampled before the sync is submitted. */
    covered_failed[me] = failed;
    safe[me] = durable + (failed - failed_durable);
    for (i : 0 .. NR_CLIENTS - 1) {
        if
        :: joined[i] == QUEUE -> joined[i] = me
        :: else
        fi
    }
    is_running[me] = true;
    is_leader_chosen = false
}

#ifdef WRONG_JOIN
#define COVERS(i, t) is_running[i]
#else
#define COVERS(i, t) (is_running[i] && covered[i] >= t) /* D2 */
#endif

inline join_covering(me)
{
    for (i : 0 .. NR_CLIENTS - 1) {
        if
        :: joined[me] == NOBODY && COVERS(i, target[me]) -> joined[me] = i
        :: else
        fi
    }
}

/* ubd_durability_arrive; @may_gather stands for what the disk has shown. */
inline arrive(me, may_gather)
{
    must_lead[me] = false;
    target[me] = completed; /* D1 */
    if
    :: error ->
        is_ok[me] = false;
        step[me] = done
    :: !error && has_synced && target[me] <= durable -> /* D6 */
        is_ok[me] = true;
        step[me] = done
    :: else ->
        step[me] = wait;
        if
        :: nr_running >= SYNCS_MAX || is_leader_chosen ->
            join_covering(me);
            if
            :: joined[me] == NOBODY -> joined[me] = QUEUE
            :: else
            fi
        :: else ->
            nr_running++;
            if
            :: may_gather ->
                is_leader_chosen = true;
                step[me] = gather
            :: else ->
                start_sync(me);
                step[me] = lead
            fi
        fi
    fi
}

inline choose_leader()
{
    for (i : 0 .. NR_CLIENTS - 1) {
        if
        :: joined[i] == QUEUE && nr_running < SYNCS_MAX && !is_leader_chosen ->
            joined[i] = NOBODY;
            must_lead[i] = true;
            nr_running++;
            is_leader_chosen = true
        :: else
        fi
    }
}

/* D7: is anything at stake that could be acknowledged, now or later?  What
 * has begun may be in the page cache, be lost, and be acknowledged next.
 */
#ifdef WRONG_HARMLESS
#define AT_STAKE(me) (completed > safe[me] + (failed - covered_failed[me]))
#define ALL_DURABLE (completed <= durable + (failed - failed_durable))
#else
#define AT_STAKE(me) \
    (!has_synced || begun > safe[me] + (failed - covered_failed[me]))
#define ALL_DURABLE (begun <= durable + (failed - failed_durable))
#endif

inline finish(me, ok)
{
    is_running[me] = false;
    nr_running--;
    if
    :: !ok && AT_STAKE(me) -> remember_loss() /* D7 */
    :: else
    fi;
    ok = ok && !error;
    if
    :: ok ->
        has_synced = true;
#ifdef WRONG_CLEAR
        covered[me] = completed;
#endif
        if
        :: covered[me] > durable ->
            durable = covered[me];
            failed_durable = covered_failed[me]
        :: else
        fi
    :: else
    fi;
    covered[me] = 0;
    covered_failed[me] = 0;
    safe[me] = 0;
    answer_joined(me, ok);
    is_ok[me] = ok;
    step[me] = done;
    choose_leader()
}

/* D4: an open file to itself, until the verdict.  @from: its pool. */
inline submit(from, set)
{
    atomic {
#ifdef WRONG_LANE
        lane = from;
#else
        if
        :: !is_taken[from] -> lane = from
        :: is_taken[from] && !is_taken[from + 1] -> lane = from + 1
        fi;
        is_taken[lane] = true;
#endif
        pages = set
    }
}

/* In a d_step. */
inline give_lane()
{
    is_taken[lane] = false;
    lane = 0;
    pages = 0;
    ok = false
}

/* fdatasync of what was dirty when it was submitted, or the writeback of
 * RWF_DSYNC; then what this open file has not reported yet.
 */
inline write_back()
{
    d_step { stable = stable | (dirty & pages); dirty = dirty & ~pages };
    d_step { ok = (cursor[lane] == error_seq); cursor[lane] = error_seq }
}

inline lead_sync(me)
{
    submit(0, dirty);
    write_back();
    d_step { finish(me, ok); give_lane() }
}

inline make_durable(me)
{
    if
    :: d_step { true -> arrive(me, false) }
    :: d_step { true -> arrive(me, true) }
    fi;
#ifdef WRONG_EARLY
    check_flush(step[me] != done || is_ok[me]);
#endif
    if
    :: step[me] == wait ->
        (step[me] == done || must_lead[me]);
        if
        :: step[me] == done
        :: else -> d_step { start_sync(me); step[me] = lead }
        fi
    :: step[me] == gather -> d_step { start_sync(me); step[me] = lead }
    :: else
    fi;
    if
    :: step[me] == lead -> lead_sync(me)
    :: else
    fi
}

/* The property: no FLUSH is answered with success unless every change that was
 * acknowledged before it arrived is durable; and no success after a loss.
 */
inline check_flush(success)
{
    d_step {
        assert(!(success) || (need & ~stable) == 0);
        assert(!(success) || !was_lost);
        has_lost = has_lost || !is_ok[me] && error
    }
}

/* What no longer matters must not tell states apart. */
inline forget(me)
{
    is_ok[me] = false;
    target[me] = 0;
    must_lead[me] = false
}

/* D8: counted before its reply; one that failed counts, and is not told. */
inline count_and_reply(w)
{
#ifdef WRONG_ACK
    acked = acked | SET(w);
    d_step { completed++ }
#else
    if
    :: d_step { completed++ }; acked = acked | SET(w)
    :: d_step { nr_full > 0 -> nr_full--; failed++; completed++ }
    fi
#endif
}

inline plain_write(w)
{
    d_step { begun++ /* D7 */; dirty = dirty | SET(w) };
    count_and_reply(w)
}

inline fua_zero(me, w)
{
    d_step { begun++; dirty = dirty | SET(w) };
    d_step { completed++ };
#ifdef WRONG_ZERO
    is_ok[me] = true;
#else
    make_durable(me); /* D5: fallocate is not covered by RWF_DSYNC. */
#endif
    d_step {
        if
        :: is_ok[me] ->
            assert(stable & SET(w));
            acked = acked | SET(w)
        :: else
        fi;
        forget(me)
    }
}

inline fua_write(w)
{
    submit(NR_LANES, SET(w));
    d_step { dirty = dirty | SET(w) };
#ifdef WRONG_DSYNC
    ok = true;
#else
    write_back(); /* D5: with RWF_DSYNC. */
#endif
    d_step {
        if
        :: ok ->
            assert(stable & SET(w));
            acked = acked | SET(w)
        :: !ok && !ALL_DURABLE -> remember_loss() /* D7 */
        :: else
        fi
    };
    d_step {
        if
        :: !ok -> begun++; failed++; completed++ /* D8 */
        :: else
        fi;
        give_lane()
    }
}

proctype client(byte me)
{
    byte op, need, pages, lane;
    bool ok, was_lost;

    do
    :: op < NR_OPS ->
        if
        :: d_step { need = acked; was_lost = has_lost };
            make_durable(me);
            check_flush(is_ok[me]);
            d_step { need = 0; was_lost = false; forget(me) }
        :: !error -> plain_write(1 + me * NR_OPS + op)
        :: !error -> fua_write(1 + me * NR_OPS + op) /* D3 */
        :: !error -> fua_zero(me, 1 + me * NR_OPS + op)
        fi;
        op++
    :: else -> break
    od
}

init
{
    atomic {
        byte c;
        for (c : 0 .. NR_CLIENTS - 1) {
            run client(c)
        }
    }
}
