/* The race detector.
 *
 * Every access of a call, by a command or by the issuer itself, leaves a *shadow*: bytes, whether they
 * are written, which operation, where in the program. For each operation the set of those known to
 * precede it is kept: what the issuer had retired when it was issued, and the predecessors that it
 * was made to wait for, with their sets. A new access is compared with all shadows, by address:
 *
 * - one that conflicts must be in the set, else nothing makes the two follow each other:
 *   a read of what may still be written, a write over what is in use, a missing wait;
 * - one that conflicts, in the same storage, must not be later in the program: then what is earlier
 *   comes too late.
 *
 * The comparison shares nothing with the lists of accesses, the covering of accesses by writes, and
 * the guards, which it checks. It finds what an execution could have done wrong although it went
 * well, as far as the order of issue goes; replaying with seeds puts off what can be put off.
 *
 * After MOST_OPS operations everything in flight is waited for and forgotten. */
#include "machine.h"

#include <string.h>

#if INLAY_RACES

#define MOST_OPS 1024u
#define ROW (MOST_OPS / 64u)
#define ISSUER UINT32_MAX

typedef struct inlay_shadow {
    struct inlay_shadow *next;
    const uint8_t *begin, *end;
    uint32_t op; /* or ISSUER */
    int writes;
    uint64_t serial; /* of the storage */
    uint64_t lodging; /* the same on a device, where no two storages share bytes; 0 in the host */
    inlay_place_t *place;
    uint64_t number;
    const inlay_kernel_t *kernel; /* NULL for copies and the issuer */
    const inlay_function_t *function;
    const uint32_t *pc;
} inlay_shadow_t;

inlay_status_t inlay_race_open(inlay_activation_t *m)
{
    inlay_race_t *race = &m->flow.race;
    size_t bytes = (MOST_OPS + 1) * ROW * sizeof *race->before;
    race->before = m->host->allocate(m->host->user, bytes, 64);
    if (!race->before) return INLAY_OUT_OF_MEMORY;
    race->retired = race->before + MOST_OPS * ROW;
    memset(race->before, 0, bytes);
    return INLAY_OK;
}

void inlay_race_close(inlay_activation_t *m)
{
    if (m->flow.race.before)
        m->host->release(m->host->user, m->flow.race.before,
                         (MOST_OPS + 1) * ROW * sizeof *m->flow.race.before, 64);
}

void inlay_race_reset(inlay_activation_t *m)
{
    inlay_race_t *race = &m->flow.race;
    while (race->shadows) {
        inlay_shadow_t *shadow = race->shadows;
        race->shadows = shadow->next;
        inlay_order_leave(m, shadow->place);
        shadow->next = race->free_shadows;
        race->free_shadows = shadow;
    }
    race->n_ops = 0;
    memset(race->retired, 0, ROW * sizeof *race->retired);
}

int inlay_race_has_room(const inlay_activation_t *m) { return m->flow.race.n_ops < MOST_OPS; }

static uint64_t *row(inlay_race_t *race, uint32_t op) { return race->before + (size_t)op * ROW; }

static int has(const uint64_t *set, uint32_t op) { return (int)(set[op / 64] >> op % 64 & 1); }

static void join(uint64_t *set, const uint64_t *other, uint32_t op)
{
    uint32_t i;
    for (i = 0; i < ROW; i++) set[i] |= other[i];
    set[op / 64] |= UINT64_C(1) << op % 64;
}

void inlay_race_begin(inlay_activation_t *m, inlay_command_t *command)
{
    inlay_race_t *race = &m->flow.race;
    command->op = race->n_ops++;
    memcpy(row(race, command->op), race->retired, ROW * sizeof *race->retired);
}

void inlay_race_edge(inlay_activation_t *m, const inlay_command_t *before, inlay_command_t *command)
{
    join(row(&m->flow.race, command->op), row(&m->flow.race, before->op), before->op);
}

void inlay_race_retire(inlay_activation_t *m, const inlay_command_t *command)
{
    join(m->flow.race.retired, row(&m->flow.race, command->op), command->op);
}

static void say_one(inlay_activation_t *m, inlay_error_t *error, const inlay_shadow_t *shadow)
{
    inlay_text_t span;
    if (shadow->kernel) {
        inlay_say(error, "kernel '");
        inlay_say_text(error, shadow->kernel->name);
        inlay_say(error, "'");
    } else {
        inlay_say(error, shadow->op == ISSUER ? "an instruction" : "a copy");
    }
    span = inlay_module_span(m->module, shadow->function,
                             (uint32_t)(shadow->pc - shadow->function->code));
    inlay_say(error, " in '");
    inlay_say_text(error, shadow->function->name);
    inlay_say(error, "'");
    if (!span.bytes) return;
    inlay_say(error, " at ");
    inlay_say_text(error, span);
}

/* Keep the first finding: what it is, both operations, and the bytes. */
static void report(inlay_activation_t *m, const char *what, const inlay_shadow_t *late,
                   const inlay_shadow_t *early)
{
    inlay_race_t *race = &m->flow.race;
    if (race->is_found) return;
    race->is_found = 1;
    inlay_fail(&race->found, INLAY_RACE, what, NULL, 0);
    inlay_say(&race->found, ": ");
    say_one(m, &race->found, late);
    inlay_say(&race->found, late->writes ? " writes " : " reads ");
    inlay_say_int(&race->found, late->end - late->begin);
    inlay_say(&race->found, " bytes of storage ");
    inlay_say_int(&race->found, (int64_t)late->serial);
    inlay_say(&race->found, early->writes ? " that are written by " : " that are read by ");
    say_one(m, &race->found, early);
}

/* Compare with all shadows, and leave one. */
static void note(inlay_activation_t *m, const inlay_shadow_t *found, const uint64_t *before)
{
    inlay_race_t *race = &m->flow.race;
    inlay_shadow_t *s;
    for (s = race->shadows; s; s = s->next) {
        if (s->op == found->op && s->op != ISSUER) continue;
        if (!(s->writes || found->writes) || s->end <= found->begin || found->end <= s->begin ||
            s->lodging != found->lodging)
            continue;
        if (s->op != ISSUER && !has(before, s->op))
            report(m, found->op == ISSUER ? "missing wait"
                      : found->writes     ? "reuse while in flight"
                                          : "use before ready",
                   found, s);
        else if (s->serial == found->serial && inlay_order_is_before(found->place, s->place))
            report(m, "overtaken", s, found);
    }
    if (!race->free_shadows) race->free_shadows = inlay_items_slab(m, sizeof *s);
    s = race->free_shadows;
    if (!s) return;
    race->free_shadows = s->next;
    *s = *found;
    s->place->users++;
    s->next = race->shadows;
    race->shadows = s;
}

void inlay_race_check(inlay_activation_t *m, const inlay_command_t *c)
{
    inlay_shadow_t found;
    uint32_t i;
    memset(&found, 0, sizeof found);
    found.op = c->op;
    found.place = c->place;
    found.number = c->number;
    found.kernel = c->kernel;
    found.function = c->where.frames[0].function;
    found.pc = c->where.frames[0].pc;
    for (i = 0; i < c->n_accesses; i++) {
        found.begin = c->accesses[i].storage->data + c->accesses[i].begin;
        found.end = c->accesses[i].storage->data + c->accesses[i].end;
        found.writes = (int)c->accesses[i].writes;
        found.serial = c->accesses[i].storage->serial;
        found.lodging = c->accesses[i].storage->home ? found.serial : 0;
        note(m, &found, row(&m->flow.race, c->op));
    }
    if (!c->workspace) return;
    found.begin = c->workspace;
    found.end = found.begin + c->workspace_bytes;
    found.writes = 1;
    found.serial = found.lodging = 0;
    note(m, &found, row(&m->flow.race, c->op));
}

void inlay_race_direct(inlay_activation_t *m, const inlay_storage_t *storage, const void *at,
                       size_t bytes, int writes)
{
    inlay_shadow_t found;
    if (!storage->owned || !bytes || m->flow.is_sequential || !m->function) return;
    memset(&found, 0, sizeof found);
    found.op = ISSUER;
    found.begin = at;
    found.end = found.begin + bytes;
    found.writes = writes;
    found.serial = storage->serial;
    found.lodging = storage->home ? storage->serial : 0;
    found.place = m->flow.place;
    found.number = m->flow.number;
    found.function = m->function;
    found.pc = m->pc;
    note(m, &found, m->flow.race.retired);
}

void inlay_race_sabotage(inlay_activation_t *m, int kind, int nth)
{
    m->flow.race.sabotage = kind;
    m->flow.race.countdown = nth;
}

int inlay_race_spoils(inlay_activation_t *m, int kind)
{
    inlay_race_t *race = &m->flow.race;
    return race->sabotage == kind && race->countdown > 0 && --race->countdown == 0;
}

#else
typedef int inlay_race_is_off; /* a file of C has something in it */
#endif
