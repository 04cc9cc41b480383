/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes the lines of a trace.  By hand, as printf would take several times as
 * long, of a processor that the disk could use.
 */
#include "ubd-trace-json.h"

#include <stdlib.h>
#include <string.h>

static char *
put_text(char *p, const char *text)
{
    const size_t len = strlen(text);

    memcpy(p, text, len);
    return p + len;
}

/* Two digits at a time: the divisions are most of a line's cost. */
static char *
put_number(char *p, uint64_t value)
{
    static const char pairs[] =
        "000102030405060708091011121314151617181920212223242526272829"
        "303132333435363738394041424344454647484950515253545556575859"
        "606162636465666768697071727374757677787980818283848586878889"
        "90919293949596979899";
    char digits[20];
    size_t i = sizeof digits;

    for (; value >= 10; value /= 100) {
        i -= 2;
        memcpy(digits + i, pairs + value % 100 * 2, 2);
    }
    if (value > 0 || i == sizeof digits)
        digits[--i] = '0' + value;
    memcpy(p, digits + i, sizeof digits - i);
    return p + sizeof digits - i;
}

/* @text is everything up to the number. */
static char *
put_field(char *p, const char *text, uint64_t value)
{
    return put_number(put_text(p, text), value);
}

static char *
put_result(char *p, const char *text, int result)
{
    p = put_text(p, text);
    if (result < 0)
        *p++ = '-';
    return put_number(p, result < 0 ? -(int64_t)result : result);
}

static char *
put_flags(char *p, unsigned flags)
{
    static const struct {
        unsigned flag;
        const char *name;
    } names[] = {
        {UBD_FUA,           "\"fua\""      },
        {UBD_MAY_TRIM,      "\"may_trim\"" },
        {UBD_FAST_ONLY,     "\"fast_zero\""},
        {UBD_TRACE_REQ_ONE, "\"req_one\""  },
    };
    bool is_first = true;

    p = put_text(p, ",\"flags\":[");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!(flags & names[i].flag))
            continue;
        if (!is_first)
            *p++ = ',';
        p = put_text(p, names[i].name);
        is_first = false;
    }
    *p++ = ']';
    return p;
}

static char *
put_sync(char *p, const struct ubd_sync_span *sync)
{
    static const char *const hows[] = {
        [UBD_SYNC_NONE] = "none",     [UBD_SYNC_LED] = "led",
        [UBD_SYNC_JOINED] = "joined", [UBD_SYNC_CLEAN] = "clean",
        [UBD_SYNC_WRITE] = "write",
    };

    if (sync->how == UBD_SYNC_UNASKED)
        return put_text(p, ",\"sync\":null");
    p = put_field(p, ",\"sync\":{\"id\":", sync->id);
    p = put_text(p, ",\"how\":\"");
    p = put_text(p, hows[sync->how]);
    p = put_field(p, "\",\"submitted\":", sync->submitted_ns);
    p = put_field(p, ",\"completed\":", sync->completed_ns);
    p = put_field(p, ",\"tid\":", sync->tid);
    p = put_result(p, ",\"result\":", sync->result);
    *p++ = '}';
    return p;
}

size_t
ubd_trace_record_line(char *out, const struct ubd_trace_record *record)
{
    static const char *const kinds[] = {
#define AS_NAME(id, name) name,
        UBD_KINDS(AS_NAME)};
    char *p = out;

    p = put_field(p, UBD_TRACE_RECORD_WORDS ":", record->id);
    p = put_field(p, ",\"conn\":", record->conn);
    p = put_text(p, ",\"kind\":\"");
    p = put_text(p, kinds[record->kind]);
    p = put_field(p, "\",\"offset\":", record->offset);
    p = put_field(p, ",\"length\":", record->len);
    p = put_flags(p, record->flags);
    p = put_field(p, ",\"arrival\":", record->arrival_ns);
    p = put_field(p, ",\"start\":", record->span.start_ns);
    p = put_field(p, ",\"end\":", record->end_ns);
    p = put_result(p, ",\"result\":", record->result);
    p = put_sync(p, &record->span.sync);
    p = put_text(p, "}\n");
    return p - out;
}

#define DROP_WORDS "{\"dropped\":"

uint64_t
ubd_trace_drops_of(const char *line)
{
    return strtoull(line + sizeof DROP_WORDS - 1, NULL, 10);
}

size_t
ubd_trace_drop_line(char *out, uint64_t nr_dropped, uint64_t total)
{
    char *p = put_field(out, DROP_WORDS, nr_dropped);

    p = put_field(p, ",\"total\":", total);
    return put_text(p, "}\n") - out;
}

size_t
ubd_trace_end_line(char *out, uint64_t now_ns, uint64_t nr_records,
                   uint64_t nr_dropped)
{
    char *p = put_field(out, "{\"end\":", now_ns);

    p = put_field(p, ",\"records\":", nr_records);
    p = put_field(p, ",\"dropped\":", nr_dropped);
    return put_text(p, "}\n") - out;
}

/* How many bytes of @s are one character of UTF-8, 0 if it is none: neither
 * overlong forms nor surrogates nor what is beyond Unicode.
 */
static unsigned
character_len(const unsigned char *s)
{
    const unsigned len = s[0] < 0x80                   ? 1
                         : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                         : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
                         : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                                       : 0;

    for (unsigned i = 1; i < len; i++) /* Ends at the 0 that ends @s. */
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
        return 0;
    return len;
}

static char *
put_escape(char *p, unsigned code)
{
    static const char digits[] = "0123456789abcdef";

    p = put_text(p, "\\u");
    for (int shift = 12; shift >= 0; shift -= 4)
        *p++ = digits[code >> shift & 15];
    return p;
}

/* A path is bytes, JSON is characters: a byte that is part of none becomes
 * U+DC80 to U+DCFF, as in Python, so that the path can be had back.
 */
static char *
put_path(char *p, const char *path)
{
    const unsigned char *s = (const unsigned char *)path;

    while (*s) {
        const unsigned len = character_len(s);

        if (len == 0) {
            p = put_escape(p, 0xdc00 + *s++);
        } else if (*s < 0x20 || *s == 0x7f || *s == '"' || *s == '\\') {
            p = put_escape(p, *s++);
        } else {
            memcpy(p, s, len);
            p += len;
            s += len;
        }
    }
    return p;
}

size_t
ubd_trace_first_line(char *out, const char *file, const struct ubd_info *info,
                     long pid, uint64_t now_ns)
{
    char *p = out;

    p = put_text(p, UBD_TRACE_FIRST_WORDS
                 ":1,\"clock\":\"monotonic\",\"file\":\"");
    p = put_path(p, file);
    p = put_text(p, "\",\"mode\":\"");
    p = put_text(p, info->mode);
    p = put_text(p, "\",\"engine\":\"");
    p = put_text(p, info->engine);
    p = put_text(p, "\",\"direct\":");
    p = put_text(p, info->direct ? "true" : "false");
    p = put_field(p, ",\"pid\":", pid);
    p = put_field(p, ",\"start\":", now_ns);
    return put_text(p, "}\n") - out;
}
