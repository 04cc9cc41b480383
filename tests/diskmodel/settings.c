/* SPDX-License-Identifier: BSD-3-Clause */
/* One table of settings: their names make the parser, the report and the help.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

#define MIB (1ULL << 20)
#define SETTING_MAX 1e6 /* Fits after the unit; nobody waits 1000 s. */

struct setting {
    const char *name;
    size_t at;   /* In struct diskmodel_settings. */
    double unit; /* What 1 means there; 0: a whole number of 64 bits. */
    const char *help;
};

#define AT(field) offsetof(struct diskmodel_settings, field)

static const struct setting table[] = {
    {"flush_ms",       AT(flush_ns),       1e6, "each FLUSH, each FUA write"},
    {"clean_flush_ms", AT(flush_clean_ns), 1e6, "a FLUSH with nothing to do"},
    {"write_ms",       AT(write_ns),       1e6, "each write or zero"        },
    {"read_ms",        AT(read_ns),        1e6, "each read"                 },
    {"write_delay_ms", AT(write_delay_ns), 1e6, "random extra, 0 to this"   },
    {"flush_delay_ms", AT(flush_delay_ns), 1e6, "random extra, 0 to this"   },
    {"rpm",            AT(rpm),            1,   "rotating disk, if not 0"   },
    {"seek_ms",        AT(seek_ns),        1e6, "average seek, if rotating" },
    {"rate_mb",        AT(rate),           1e6, "MB/s, if rotating"         },
    {"cache_mb",       AT(cache_bytes),    MIB, "write cache; 0: no limit"  },
    {"seed",           AT(seed),           0,   "of the random extras"      },
};

#define NR_SETTINGS (sizeof table / sizeof table[0])

const struct diskmodel_settings settings_default = {
    .seek_ns = 8000000,      /* A disk for desktops: 8 ms and 150 MB/s ... */
    .rate = 150000000,       /* ... count only once rpm is set. */
    .cache_bytes = 64 * MIB, /* What such disks have. */
};

static const char *const cut_modes[DISKMODEL_NR_CUT_MODES] = {
    [DISKMODEL_CUT_NONE] = "none",     [DISKMODEL_CUT_ALL] = "all",
    [DISKMODEL_CUT_PREFIX] = "prefix", [DISKMODEL_CUT_WRITE] = "write",
    [DISKMODEL_CUT_SECTOR] = "sector", [DISKMODEL_CUT_TORN] = "torn",
};

static uint64_t
value_of(const struct diskmodel_settings *s, const struct setting *setting)
{
    uint64_t value;

    memcpy(&value, (const char *)s + setting->at, sizeof value);
    return value;
}

int
settings_parse_number(const char *text, uint64_t *ret_number)
{
    char *end;
    uint64_t number;

    if (*text < '0' || *text > '9') /* strtoull would take a minus. */
        return -EINVAL;
    errno = 0;
    number = strtoull(text, &end, 0);
    if (errno || *end)
        return -EINVAL;
    *ret_number = number;
    return 0;
}

int
settings_parse_size(const char *text, uint64_t *ret_size)
{
    static const char units[] = "KMGT";
    char *end;
    const char *unit;
    unsigned shift = 0;
    uint64_t size;

    if (*text < '0' || *text > '9')
        return -EINVAL;
    errno = 0;
    size = strtoull(text, &end, 10);
    if (*end) {
        unit = strchr(units, *end);
        if (!unit || end[1])
            return -EINVAL;
        shift = 10 * (unsigned)(unit - units + 1);
    }
    if (errno || size > (UINT64_MAX >> 1) >> shift)
        return -EINVAL;
    *ret_size = size << shift;
    return 0;
}

int
settings_parse_cut_mode(const char *name, enum diskmodel_cut_mode *ret_mode)
{
    unsigned i;

    for (i = 0; i < DISKMODEL_NR_CUT_MODES; i++) {
        if (strcmp(name, cut_modes[i]) == 0) {
            *ret_mode = (enum diskmodel_cut_mode)i;
            return 0;
        }
    }
    return -EINVAL;
}

static int
parse_value(const struct setting *setting, const char *text,
            uint64_t *ret_value)
{
    double number;
    char *end;

    if (setting->unit == 0)
        return settings_parse_number(text, ret_value);
    number = strtod(text, &end);
    if (end == text || *end || !(number >= 0 && number <= SETTING_MAX))
        return -EINVAL;
    *ret_value = (uint64_t)(number * setting->unit + 0.5);
    return 0;
}

int
settings_set(struct diskmodel_settings *s, const char *name, const char *value)
{
    uint64_t number;
    size_t i;
    int r;

    for (i = 0; i < NR_SETTINGS; i++) {
        if (strcmp(name, table[i].name) == 0)
            break;
    }
    if (i == NR_SETTINGS)
        return -ENOENT;
    r = parse_value(&table[i], value, &number);
    if (r < 0)
        return r;
    if (table[i].at == AT(rate) && number == 0)
        return -EINVAL; /* It would never end. */
    memcpy((char *)s + table[i].at, &number, sizeof number);
    if (table[i].at == AT(flush_clean_ns))
        s->has_flush_clean = true;
    return 0;
}

void
settings_print_json(const struct diskmodel_settings *s, FILE *out)
{
    size_t i;

    for (i = 0; i < NR_SETTINGS; i++) {
        const struct setting *setting = &table[i];
        uint64_t value = value_of(s, setting);

        if (setting->at == AT(flush_clean_ns) && !s->has_flush_clean)
            value = s->flush_ns;
        fprintf(out, "%s\"%s\": ", i == 0 ? "{" : ", ", setting->name);
        if (setting->unit == 0)
            fprintf(out, "%llu", (unsigned long long)value);
        else
            fprintf(out, "%.12g", (double)value / setting->unit);
    }
    fprintf(out, "}");
}

void
settings_print_help(FILE *out)
{
    size_t i;

    for (i = 0; i < NR_SETTINGS; i++) {
        const struct setting *setting = &table[i];
        const double unit = setting->unit == 0 ? 1 : setting->unit;

        fprintf(out, "  %-14s %-4g %s\n", setting->name,
                (double)value_of(&settings_default, setting) / unit,
                setting->help);
    }
}
