/* The race detector, for calls that put something off.
 *
 * Every access of a call, by a command or by the issuer itself, leaves a *shadow*: bytes, whether they
 * are written, which operation, where in the program. For each operation the set of those known to
 * precede it is kept: what the issuer had retired when it was issued, and the predecessors that it
 * was made to wait for, with their sets. A new access is compared with the shadows that it meets, which
 * leave *traces* in the granules of memory that they touch:
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
 * A write that follows a shadow and covers it makes that superfluous: whatever conflicts with it later
 * conflicts with the write. So do reads that follow equal ones of the same place. Superfluous shadows go
 * when they are met, so that each access is compared a few times, not with all before it.
 *
 * Cells count as memory that the issuer touches. Of a kernel that runs in the host, what it is said to
 * read is summed before and after. Two tensors to which a wrong plan gave the same bytes may well be
 * used in a right order: that they are not what they were is seen in race_tensors.c.
 *
 * After MOST_OPS operations everything in flight is waited for and forgotten. */
#include "machine.h"

#include <string.h>

#if INLAY_RACES

#define MOST_OPS 1024u
#define ROW (MOST_OPS / 64u)
#define ISSUER UINT32_MAX
#define GRANULE 12 /* bits of an address within one */
#define N_BUCKETS 4096u
#define IN_CELLS UINT64_MAX /* the lodging of cells */

typedef struct inlay_shadow {
    struct inlay_shadow *next, *previous; /* of those in use; next: of the free ones */
    uint32_t n_traces;
    int is_dead;      /* superfluous: its place is left, and traces go when they are met */
    uint64_t stamp;   /* of the access that it was compared with last */
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

/* That a shadow touches a granule. */
typedef struct inlay_trace {
    struct inlay_trace *next;
    inlay_shadow_t *shadow;
    uintptr_t granule;
} inlay_trace_t;

#define BEFORE_BYTES ((MOST_OPS + 1) * ROW * sizeof(uint64_t))
#define BUCKET_BYTES (N_BUCKETS * sizeof(inlay_trace_t *))

inlay_status_t inlay_race_open(inlay_activation_t *m)
{
    inlay_race_t *race = &m->issuer.race;
    if (!m->config.races) return INLAY_OK;
    race->before = m->host->allocate(m->host->user, BEFORE_BYTES, 64);
    race->buckets = m->host->allocate(m->host->user, BUCKET_BYTES, 64);
    if (!race->before || !race->buckets) return INLAY_OUT_OF_MEMORY;
    race->retired = race->before + MOST_OPS * ROW;
    memset(race->before, 0, BEFORE_BYTES);
    memset(race->buckets, 0, BUCKET_BYTES);
    race->is_on = 1;
    return INLAY_OK;
}

void inlay_race_close(inlay_activation_t *m)
{
    inlay_race_t *race = &m->issuer.race;
    if (race->before) m->host->release(m->host->user, race->before, BEFORE_BYTES, 64);
    if (race->buckets) m->host->release(m->host->user, race->buckets, BUCKET_BYTES, 64);
}

/* A shadow that nothing is compared with any more; it stays until its traces are gone. */
static void kill(inlay_activation_t *m, inlay_shadow_t *shadow)
{
    if (shadow->is_dead) return;
    shadow->is_dead = 1;
    inlay_order_leave(m, shadow->place);
    shadow->place = NULL;
}

static void drop_trace(inlay_race_t *race, inlay_trace_t **at)
{
    inlay_trace_t *trace = *at;
    inlay_shadow_t *shadow = trace->shadow;
    *at = trace->next;
    trace->next = race->free_traces;
    race->free_traces = trace;
    if (--shadow->n_traces) return;
    if (shadow->previous) shadow->previous->next = shadow->next;
    else race->shadows = shadow->next;
    if (shadow->next) shadow->next->previous = shadow->previous;
    shadow->next = race->free_shadows;
    race->free_shadows = shadow;
}

void inlay_race_forget(inlay_activation_t *m)
{
    inlay_race_t *race = &m->issuer.race;
    uint32_t i;
    if (race->shadows)
        for (i = 0; i < N_BUCKETS; i++)
            while (race->buckets[i]) {
                kill(m, race->buckets[i]->shadow);
                drop_trace(race, &race->buckets[i]);
            }
    race->n_ops = 0;
    memset(race->retired, 0, ROW * sizeof *race->retired);
}

int inlay_race_fits(const inlay_activation_t *m) { return m->issuer.race.n_ops < MOST_OPS; }

static uint64_t *row(inlay_race_t *race, uint32_t op) { return race->before + (size_t)op * ROW; }

static int has(const uint64_t *set, uint32_t op) { return (int)(set[op / 64] >> op % 64 & 1); }

static void join(uint64_t *set, const uint64_t *other, uint32_t op)
{
    uint32_t i;
    for (i = 0; i < ROW; i++) set[i] |= other[i];
    set[op / 64] |= UINT64_C(1) << op % 64;
}

void inlay_race_number(inlay_activation_t *m, inlay_command_t *command)
{
    inlay_race_t *race = &m->issuer.race;
    command->op = race->n_ops++;
    memcpy(row(race, command->op), race->retired, ROW * sizeof *race->retired);
}

void inlay_race_follow(inlay_activation_t *m, const inlay_command_t *before, inlay_command_t *command)
{
    join(row(&m->issuer.race, command->op), row(&m->issuer.race, before->op), before->op);
}

void inlay_race_end(inlay_activation_t *m, const inlay_command_t *command)
{
    join(m->issuer.race.retired, row(&m->issuer.race, command->op), command->op);
}

void inlay_race_say(const inlay_activation_t *m, inlay_error_t *error, const inlay_kernel_t *kernel,
                    const char *what, const inlay_function_t *function, const uint32_t *pc)
{
    inlay_text_t span;
    inlay_say(error, kernel ? "kernel '" : what);
    if (kernel) {
        inlay_say_text(error, kernel->name);
        inlay_say(error, "'");
    }
    if (!function) return;
    span = inlay_module_span(m->module, function, (uint32_t)(pc - function->code));
    inlay_say(error, " in '");
    inlay_say_text(error, function->name);
    inlay_say(error, "'");
    if (!span.bytes) return;
    inlay_say(error, " at ");
    inlay_say_text(error, span);
}

static void say_one(const inlay_activation_t *m, inlay_error_t *error, const inlay_shadow_t *shadow)
{
    const char *what = shadow->op != ISSUER           ? "a copy"
                       : shadow->lodging == IN_CELLS ? "an instruction on a cell"
                                                      : "an instruction";
    inlay_race_say(m, error, shadow->kernel, what, shadow->function, shadow->pc);
}

/* Keep the first finding: what it is, both operations, and the bytes. */
static void report(inlay_activation_t *m, const char *what, const inlay_shadow_t *late,
                   const inlay_shadow_t *early)
{
    inlay_race_t *race = &m->issuer.race;
    if (race->is_found) return;
    race->is_found = 1;
    inlay_fail(&race->found, INLAY_RACE, what, NULL, 0);
    inlay_say(&race->found, ": ");
    say_one(m, &race->found, late);
    inlay_say(&race->found, late->writes ? " writes " : " reads ");
    if (late->lodging == IN_CELLS) {
        inlay_say(&race->found, early->writes ? "what is written by " : "what is read by ");
        say_one(m, &race->found, early);
        return;
    }
    inlay_say_int(&race->found, late->end - late->begin);
    inlay_say(&race->found, " bytes of storage ");
    inlay_say_int(&race->found, (int64_t)late->serial);
    inlay_say(&race->found, early->writes ? " that are written by " : " that are read by ");
    say_one(m, &race->found, early);
}

/* Compare with one shadow; whether that is superfluous from now on. */
static int compare(inlay_activation_t *m, const inlay_shadow_t *found, const uint64_t *before,
                   const inlay_shadow_t *s)
{
    int follows = s->op == ISSUER || has(before, s->op), overtakes;
    if (s->op == found->op && s->op != ISSUER) return 0;
    if (s->end <= found->begin || found->end <= s->begin || s->lodging != found->lodging) return 0;
    overtakes = s->serial == found->serial && inlay_order_is_before(found->place, s->place);
    if (!(s->writes || found->writes))
        return follows && !overtakes && s->place == found->place && s->serial == found->serial &&
               s->begin == found->begin && s->end == found->end;
    if (!follows)
        report(m, found->op == ISSUER ? "missing wait"
                  : found->writes     ? "reuse while in flight"
                                      : "use before ready",
               found, s);
    else if (overtakes)
        report(m, "overtaken", s, found);
    return follows && !overtakes && found->writes && found->begin <= s->begin && s->end <= found->end;
}

static inlay_trace_t **bucket_of(inlay_race_t *race, uintptr_t granule)
{
    return &race->buckets[(granule * UINT64_C(0x9e3779b97f4a7c15) >> 40) % N_BUCKETS];
}

/* Compare with the shadows in a granule. */
static void meet(inlay_activation_t *m, const inlay_shadow_t *found, const uint64_t *before,
                 uintptr_t granule)
{
    inlay_race_t *race = &m->issuer.race;
    inlay_trace_t **at = bucket_of(race, granule);
    while (*at) {
        inlay_shadow_t *s = (*at)->shadow;
        if (!s->is_dead && (*at)->granule == granule && s->stamp != race->stamp) {
            s->stamp = race->stamp;
            if (compare(m, found, before, s)) kill(m, s);
        }
        if (s->is_dead) drop_trace(race, at);
        else at = &(*at)->next;
    }
}

static void leave_trace(inlay_activation_t *m, inlay_shadow_t *s, uintptr_t granule)
{
    inlay_race_t *race = &m->issuer.race;
    inlay_trace_t *trace, **at = bucket_of(race, granule);
    if (!race->free_traces) race->free_traces = inlay_items_slab(m, sizeof *trace);
    trace = race->free_traces;
    if (!trace) return;
    race->free_traces = trace->next;
    trace->shadow = s;
    trace->granule = granule;
    trace->next = *at;
    *at = trace;
    s->n_traces++;
}

/* Compare with the shadows that it meets, and leave one. */
static void note(inlay_activation_t *m, const inlay_shadow_t *found, const uint64_t *before)
{
    inlay_race_t *race = &m->issuer.race;
    uintptr_t first = (uintptr_t)found->begin >> GRANULE, last, granule;
    inlay_shadow_t *s;
    if (found->begin >= found->end) return;
    last = (uintptr_t)(found->end - 1) >> GRANULE;
    race->stamp++;
    for (granule = first; granule <= last; granule++) meet(m, found, before, granule);
    if (!race->free_shadows) race->free_shadows = inlay_items_slab(m, sizeof *s);
    s = race->free_shadows;
    if (!s) return;
    race->free_shadows = s->next;
    *s = *found;
    for (granule = first; granule <= last; granule++) leave_trace(m, s, granule);
    if (!s->n_traces) {
        s->next = race->free_shadows;
        race->free_shadows = s;
        return;
    }
    s->place->users++;
    s->next = race->shadows;
    s->previous = NULL;
    if (s->next) s->next->previous = s;
    race->shadows = s;
}

void inlay_race_compare(inlay_activation_t *m, const inlay_command_t *c)
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
        found.lodging = c->accesses[i].storage->space ? found.serial : 0;
        note(m, &found, row(&m->issuer.race, c->op));
    }
    if (!c->workspace) return;
    found.begin = c->workspace;
    found.end = found.begin + c->workspace_bytes;
    found.writes = 1;
    found.serial = found.lodging = 0;
    note(m, &found, row(&m->issuer.race, c->op));
}

void inlay_race_touch(inlay_activation_t *m, const inlay_storage_t *storage, const void *at,
                       size_t bytes, int writes)
{
    inlay_shadow_t found;
    if (!storage->owned || !bytes || m->issuer.is_sequential || !m->function) return;
    memset(&found, 0, sizeof found);
    found.op = ISSUER;
    found.begin = at;
    found.end = found.begin + bytes;
    found.writes = writes;
    found.serial = storage->serial;
    found.lodging = storage->space ? storage->serial : 0;
    found.place = m->issuer.place;
    found.number = m->issuer.number;
    found.function = m->function;
    found.pc = m->pc;
    note(m, &found, m->issuer.race.retired);
}

/* A cell is touched as a byte of memory. Its address may have been another cell's, which is dead. */
static void of_cell(inlay_activation_t *m, const inlay_compound_t *cell, inlay_shadow_t *found)
{
    memset(found, 0, sizeof *found);
    found->op = ISSUER;
    found->begin = (const uint8_t *)(const void *)cell->items;
    found->end = found->begin + 1;
    found->lodging = IN_CELLS;
    found->place = m->issuer.place;
    found->function = m->function;
    found->pc = m->pc;
}

void inlay_race_of_cell(inlay_activation_t *m, const inlay_compound_t *cell, int writes)
{
    inlay_shadow_t found;
    if (m->issuer.is_sequential || !m->function) return;
    of_cell(m, cell, &found);
    found.writes = writes;
    note(m, &found, m->issuer.race.retired);
}

void inlay_race_made_cell(inlay_activation_t *m, const inlay_compound_t *cell)
{
    inlay_race_t *race = &m->issuer.race;
    const uint8_t *at = (const uint8_t *)(const void *)cell->items;
    inlay_trace_t *t;
    for (t = *bucket_of(race, (uintptr_t)at >> GRANULE); t; t = t->next)
        if (!t->shadow->is_dead && t->shadow->lodging == IN_CELLS && t->shadow->begin == at)
            kill(m, t->shadow);
}

/* Whether a port that is read shares bytes with one that is written. */
static int is_shared(const inlay_command_t *c, uint32_t read)
{
    const uint8_t *begin = c->buffers[read], *end = begin + c->sizes[read];
    uint32_t i;
    for (i = 0; i < c->kernel->n_ports; i++) {
        const uint8_t *at = c->buffers[i];
        if (c->kernel->ports[i] != 0 && at < end && begin < at + c->sizes[i]) return 1;
    }
    return 0;
}

static uint64_t sum_of(const inlay_command_t *c)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    uint32_t i;
    size_t k;
    for (i = 0; i < c->kernel->n_ports; i++) {
        const uint8_t *at = c->buffers[i];
        if (c->kernel->ports[i] != 0 || is_shared(c, i)) continue;
        for (k = 0; k < c->sizes[i]; k++) sum = (sum ^ at[k]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static int is_summed(const inlay_command_t *c) { return c->kernel && !inlay_leaves_host(c->kernel); }

void inlay_race_remember(inlay_command_t *c)
{
    if (is_summed(c)) c->sum = sum_of(c);
}

inlay_status_t inlay_race_kept(const inlay_command_t *c, inlay_error_t *error)
{
    if (!is_summed(c) || sum_of(c) == c->sum) return INLAY_OK;
    inlay_fail(error, INLAY_RACE, "kernel '", NULL, 0);
    inlay_say_text(error, c->kernel->name);
    inlay_say(error, "' writes to a tensor that it is said to read");
    return INLAY_RACE;
}

/* Whether the calls of a batch have their tensors at a port where the batch has its rows: in line, or all
 * in one place where they share it. What was copied together is the memory of the batch. */
static int has_rows_in_place(const inlay_command_t *first, const inlay_command_t *all, uint32_t port)
{
    const uint8_t *expected = first->buffers[port];
    size_t stride = first->sizes[port];
    const inlay_command_t *c;
    uint32_t i;
    if (all->buffers[port] != first->buffers[port]) return 1;
    for (i = 0; i < first->kernel->n_shared; i++)
        if (first->kernel->shared[i] == port) stride = 0;
    for (c = first; c; c = c->mates) {
        if (c->buffers[port] != (const void *)expected) return 0;
        expected += stride;
    }
    return 1;
}

inlay_status_t inlay_race_rows(const inlay_command_t *first, const inlay_command_t *all,
                               inlay_error_t *error)
{
    uint32_t i;
    for (i = 0; i < first->kernel->n_ports; i++)
        if (!has_rows_in_place(first, all, i)) {
            inlay_fail(error, INLAY_RACE, "rows over others: a batch of ", NULL, 0);
            inlay_race_say(first->activation, error, first->kernel, "", first->where.frames[0].function,
                           first->where.frames[0].pc);
            inlay_say(error, first->kernel->ports[i] ? " would write tensor " : " would read tensor ");
            inlay_say_int(error, (int64_t)i + 1);
            inlay_say(error, " of its operands where its calls do not have theirs");
            return INLAY_RACE;
        }
    return INLAY_OK;
}

void inlay_race_sabotage(inlay_activation_t *m, int kind, int nth)
{
    m->issuer.race.sabotage = kind;
    m->issuer.race.countdown = nth;
}

int inlay_race_breaks(inlay_activation_t *m, int kind)
{
    inlay_race_t *race = &m->issuer.race;
    return race->sabotage == kind && race->countdown > 0 && --race->countdown == 0;
}

#else
typedef int inlay_race_is_off; /* a file of C has something in it */
#endif
