#include "exact.h"

#include <stdlib.h>
#include <string.h>

typedef enum change_kind { FLOOR, OFFSET, PLACED } change_kind_t;

typedef struct change {
    int64_t old;
    int32_t index;
    int32_t witness; /* FLOOR */
    change_kind_t kind;
} change_t;

typedef enum frame_kind { CHOICE, PARTS } frame_kind_t;

typedef struct frame {
    frame_kind_t kind;
    int32_t section; /* CHOICE: where */
    int32_t begin;   /* in `list`: candidates, or pairs of first and last section */
    int32_t end;
    int32_t next;
    int32_t first, last; /* sections */
    int64_t level;       /* CHOICE: of the candidates */
    size_t mark;         /* changes before it */
} frame_t;

struct packing_exact {
    const packing_instance_t *g;
    const int32_t *rank;
    int64_t capacity, need;
    packing_budget_t *budget;
    /* Of a buffer. */
    int64_t *offset;   /* least that is possible; of a placed one its own */
    uint8_t *placed;
    int64_t *blame;    /* how often it was in a section that was too full */
    int32_t *twin;     /* an equal one that goes below it, or -1 */
    int32_t **at;      /* where it is in the members of its sections */
    /* Of a section. */
    int32_t **members; /* the first `live` are not placed */
    int32_t *live;
    int64_t *rest;     /* sizes of those that are not placed */
    int64_t *floor;    /* none of those is below */
    int32_t *witness;  /* one of those that could be there */
    int64_t *top;      /* end of what is placed */
    int32_t *topmost;  /* that buffer, or -1 */
    int64_t *failures; /* how often it was too full */
    int32_t *crossing; /* not placed, in this section and the next */
    uint8_t *queued, *dirty;
    int32_t *queue, *dirties;
    int queue_count, dirty_count;
    /* Stacks. */
    change_t *changes;
    size_t change_count, change_room;
    frame_t *frames;
    int frame_count, frame_room;
    int32_t *list;
    int list_count, list_room;
    int64_t *saved_top;
    int32_t *saved_topmost;
    size_t saved_count;
    int64_t *scratch;
    int is_out_of_memory;
    void *blocks[3];
};

static int record(packing_exact_t *s, change_kind_t kind, int32_t index, int64_t old,
                  int32_t witness)
{
    change_t *c;
    if (s->change_count == s->change_room) {
        size_t room = s->change_room * 2 + 1024;
        change_t *bigger = realloc(s->changes, room * sizeof *bigger);
        if (!bigger) {
            s->is_out_of_memory = 1;
            return 0;
        }
        s->changes = bigger;
        s->change_room = room;
    }
    c = &s->changes[s->change_count++];
    c->kind = kind;
    c->index = index;
    c->old = old;
    c->witness = witness;
    return 1;
}

static void enqueue(packing_exact_t *s, int32_t section)
{
    if (!s->queued[section]) {
        s->queued[section] = 1;
        s->queue[s->queue_count++] = section;
    }
    if (!s->dirty[section]) {
        s->dirty[section] = 1;
        s->dirties[s->dirty_count++] = section;
    }
}

/* Whether a section is too full if it ends where it must. */
static int is_full(packing_exact_t *s, int32_t section, int64_t end)
{
    int32_t i;
    if (end <= s->capacity) return 0;
    if (end < s->need) s->need = end;
    s->failures[section]++;
    for (i = 0; i < s->live[section]; i++)
        s->blame[s->members[section][i]]++;
    return 1;
}

static int raise_floor(packing_exact_t *s, int32_t section, int64_t to, int32_t witness)
{
    if (!record(s, FLOOR, section, s->floor[section], s->witness[section])) return 0;
    s->floor[section] = to;
    s->witness[section] = witness;
    enqueue(s, section);
    return 1;
}

/* Raise the offset of a buffer to a floor; sections that relied on it look for another. */
static int raise_offset(packing_exact_t *s, int32_t b, int64_t to)
{
    int32_t k;
    if (!record(s, OFFSET, b, s->offset[b], 0)) return 0;
    s->offset[b] = packing_align(to, s->g->align[b]);
    for (k = s->g->first[b]; k < s->g->last[b]; k++) {
        if (s->witness[k] == b) {
            enqueue(s, k);
        } else if (!s->dirty[k]) {
            s->dirty[k] = 1;
            s->dirties[s->dirty_count++] = k;
        }
    }
    return 1;
}

/* Offsets of a section's buffers are at its floor or above, and its floor is the least of them. */
static int settle(packing_exact_t *s, int32_t k)
{
    int32_t i, best;
    do {
        const int32_t *members = s->members[k];
        int64_t floor = s->floor[k];
        if (!s->live[k]) return 1;
        if (is_full(s, k, floor + s->rest[k])) return 0;
        best = members[0];
        for (i = 0; i < s->live[k]; i++) {
            int32_t b = members[i];
            if (s->offset[b] < floor && !raise_offset(s, b, floor)) return 0;
            if (s->offset[b] < s->offset[best]) best = b;
        }
        if (s->offset[best] > floor) {
            if (!raise_floor(s, k, s->offset[best], best)) return 0;
        } else if (s->witness[k] != best) {
            if (!record(s, FLOOR, k, floor, s->witness[k])) return 0;
            s->witness[k] = best;
        }
    } while (s->offset[best] > s->floor[k]);
    return 1;
}

/* A section's buffers one on another, each not below its least offset. */
static int64_t stacked(packing_exact_t *s, int32_t k)
{
    int64_t *keys = s->scratch, end = 0;
    int32_t i, j, n = s->live[k];
    for (i = 0; i < n; i++) {
        int32_t b = s->members[k][i];
        int64_t offset = s->offset[b], size = s->g->size[b];
        for (j = i; j > 0 && keys[2 * j - 2] > offset; j--) {
            keys[2 * j] = keys[2 * j - 2];
            keys[2 * j + 1] = keys[2 * j - 1];
        }
        keys[2 * j] = offset;
        keys[2 * j + 1] = size;
    }
    for (i = 0; i < n; i++)
        end = (end < keys[2 * i] ? keys[2 * i] : end) + keys[2 * i + 1];
    return end;
}

/* Whether a buffer could move down in any plan that follows: then a better one is elsewhere. */
static int could_drop(const packing_exact_t *s, int32_t b)
{
    int64_t top = 0, floor = INT64_MAX;
    int32_t k;
    for (k = s->g->first[b]; k < s->g->last[b]; k++) {
        if (s->top[k] > top) top = s->top[k];
        if (s->floor[k] < floor) floor = s->floor[k];
    }
    return packing_align(top, s->g->align[b]) + s->g->size[b] <= floor;
}

static int propagate(packing_exact_t *s)
{
    int ok = 1, i;
    while (ok && s->queue_count) {
        int32_t k = s->queue[--s->queue_count];
        s->queued[k] = 0;
        ok = settle(s, k);
    }
    while (s->queue_count)
        s->queued[s->queue[--s->queue_count]] = 0;
    for (i = 0; i < s->dirty_count; i++) {
        int32_t k = s->dirties[i], j;
        s->dirty[k] = 0;
        if (ok && s->live[k]) {
            if (is_full(s, k, stacked(s, k))) ok = 0;
            for (j = 0; ok && j < s->live[k]; j++) {
                int32_t b = s->members[k][j];
                if (s->floor[k] - s->top[k] >= s->g->size[b] && could_drop(s, b)) ok = 0;
            }
        }
    }
    s->dirty_count = 0;
    return ok;
}

static int place(packing_exact_t *s, int32_t b)
{
    const packing_instance_t *g = s->g;
    int64_t end = s->offset[b] + g->size[b];
    int32_t k;
    if (!record(s, PLACED, b, 0, 0)) return 0;
    s->placed[b] = 1;
    for (k = g->first[b]; k < g->last[b]; k++) {
        int32_t *members = s->members[k], *at = &s->at[b][k - g->first[b]];
        int32_t last = --s->live[k], other = members[last];
        members[*at] = other;
        s->at[other][k - g->first[other]] = *at;
        members[last] = b;
        *at = last;
        s->rest[k] -= g->size[b];
        s->saved_top[s->saved_count] = s->top[k];
        s->saved_topmost[s->saved_count++] = s->topmost[k];
        s->top[k] = end;
        s->topmost[k] = b;
        if (k + 1 < g->last[b]) s->crossing[k]--;
        if (!raise_floor(s, k, end, -1)) return 0;
    }
    return 1;
}

static void unplace(packing_exact_t *s, int32_t b)
{
    const packing_instance_t *g = s->g;
    int32_t k;
    s->placed[b] = 0;
    for (k = g->last[b] - 1; k >= g->first[b]; k--) {
        s->live[k]++;
        s->rest[k] += g->size[b];
        s->top[k] = s->saved_top[--s->saved_count];
        s->topmost[k] = s->saved_topmost[s->saved_count];
        if (k + 1 < g->last[b]) s->crossing[k]++;
    }
}

static void undo(packing_exact_t *s, size_t mark)
{
    while (s->change_count > mark) {
        change_t *c = &s->changes[--s->change_count];
        switch (c->kind) {
        case FLOOR:
            s->floor[c->index] = c->old;
            s->witness[c->index] = c->witness;
            break;
        case OFFSET:
            s->offset[c->index] = c->old;
            break;
        case PLACED:
            unplace(s, c->index);
            break;
        }
    }
}

static frame_t *push_frame(packing_exact_t *s, frame_kind_t kind, int32_t first, int32_t last)
{
    frame_t *f;
    if (s->frame_count == s->frame_room) {
        int room = s->frame_room * 2 + 256;
        frame_t *bigger = realloc(s->frames, (size_t)room * sizeof *bigger);
        if (!bigger) {
            s->is_out_of_memory = 1;
            return NULL;
        }
        s->frames = bigger;
        s->frame_room = room;
    }
    f = &s->frames[s->frame_count++];
    memset(f, 0, sizeof *f);
    f->kind = kind;
    f->first = first;
    f->last = last;
    f->begin = f->end = f->next = s->list_count;
    f->mark = s->change_count;
    return f;
}

static int push_list(packing_exact_t *s, int32_t value)
{
    if (s->list_count == s->list_room) {
        int room = s->list_room * 2 + 1024;
        int32_t *bigger = realloc(s->list, (size_t)room * sizeof *bigger);
        if (!bigger) {
            s->is_out_of_memory = 1;
            return 0;
        }
        s->list = bigger;
        s->list_room = room;
    }
    s->list[s->list_count++] = value;
    return 1;
}

/* Whether a buffer may be the next one at its least offset. Among all plans within the capacity we
 * look for one with the least sum of weighted offsets, where the weight of a buffer is its size and
 * a little more the earlier its rank. In it nothing can move down, of equal buffers the earlier is
 * below, and so it is of two with the same lifetime that touch. */
static int is_candidate(const packing_exact_t *s, int32_t b, int64_t level)
{
    const packing_instance_t *g = s->g;
    int64_t top = 0;
    int32_t k, d;
    if (s->offset[b] != level || (s->twin[b] >= 0 && !s->placed[s->twin[b]])) return 0;
    for (k = g->first[b]; k < g->last[b]; k++)
        if (s->top[k] > top) top = s->top[k];
    if (packing_align(top, g->align[b]) != level) return 0;
    d = s->topmost[g->first[b]];
    if (d >= 0 && g->first[d] == g->first[b] && g->last[d] == g->last[b] &&
        s->offset[d] + g->size[d] == level && s->rank[b] < s->rank[d]) {
        int64_t a = g->align[b];
        if (a == g->align[d] && g->size[b] % a == 0 && g->size[d] % a == 0) return 0;
    }
    return 1;
}

/* How many neighbours of a buffer end where it would: it closes a step of the outline. */
static int fits_beside(const packing_exact_t *s, int32_t b)
{
    int32_t first = s->g->first[b], last = s->g->last[b];
    int64_t end = s->offset[b] + s->g->size[b];
    return (first == 0 || s->floor[first - 1] == end) +
           (last == s->g->sections || s->floor[last] == end);
}

/* Whether a candidate is tried before another one. */
static int is_before(const packing_exact_t *s, int32_t a, int32_t b)
{
    int left = fits_beside(s, a), right = fits_beside(s, b);
    return left != right ? left > right : s->rank[a] < s->rank[b];
}

/* Of the sections at the lowest floor the one with the fewest buffers that could be there, and of
 * these the one that was too full most often. */
static int32_t choose_section(const packing_exact_t *s, int32_t first, int32_t last, int64_t level)
{
    int32_t best = -1, least = INT32_MAX, k, i;
    for (k = first; k < last; k++) {
        int32_t count = 0;
        if (!s->live[k] || s->floor[k] != level) continue;
        for (i = 0; i < s->live[k]; i++)
            count += s->offset[s->members[k][i]] == level;
        if (count < least || (count == least && s->failures[k] > s->failures[best])) {
            least = count;
            best = k;
        }
    }
    return best;
}

static int push_choice(packing_exact_t *s, int32_t first, int32_t last)
{
    int64_t level = INT64_MAX;
    int32_t k, i, j;
    frame_t *f = push_frame(s, CHOICE, first, last);
    if (!f) return 0;
    for (k = first; k < last; k++)
        if (s->live[k] && s->floor[k] < level) level = s->floor[k];
    f->level = level;
    f->section = k = choose_section(s, first, last, level);
    for (i = 0; i < s->live[k]; i++) {
        int32_t b = s->members[k][i];
        if (!is_candidate(s, b, level)) continue;
        if (!push_list(s, b)) return 0;
        for (j = f->end++; j > f->begin && is_before(s, b, s->list[j - 1]); j--)
            s->list[j] = s->list[j - 1];
        s->list[j] = b;
    }
    return 1;
}

/* Where the lowest buffer of a section can be if none of it is at its floor: on another floor, or on
 * what is not placed and not of this section. INT64_MAX if nowhere. */
static int64_t next_level(packing_exact_t *s, int32_t section, int64_t level)
{
    const packing_instance_t *g = s->g;
    int64_t *left = s->scratch, *right = s->scratch + g->sections, best = INT64_MAX, least;
    int32_t i, j, k, from = section, to = section + 1;
    for (i = 0; i < s->live[section]; i++) {
        int32_t b = s->members[section][i];
        if (s->offset[b] > level) continue;
        if (g->first[b] < from) from = g->first[b];
        if (g->last[b] > to) to = g->last[b];
    }
    /* left[k], right[k]: the least end of a buffer between section k and this one. */
    for (least = INT64_MAX, left[section] = least, k = section - 1; k >= from; k--) {
        for (j = 0; j < s->live[k]; j++) {
            int32_t d = s->members[k][j];
            int64_t end = s->offset[d] + g->size[d];
            if (g->last[d] <= section && end < least) least = end;
        }
        left[k] = least;
    }
    for (least = INT64_MAX, right[section] = least, k = section + 1; k < to; k++) {
        for (j = 0; j < s->live[k]; j++) {
            int32_t d = s->members[k][j];
            int64_t end = s->offset[d] + g->size[d];
            if (g->first[d] > section && end < least) least = end;
        }
        right[k] = least;
    }
    for (i = 0; i < s->live[section]; i++) {
        int32_t b = s->members[section][i];
        int64_t at = s->offset[b];
        if (at <= level) {
            at = left[g->first[b]];
            if (right[g->last[b] - 1] < at) at = right[g->last[b] - 1];
            if (at < INT64_MAX) at = packing_align(at, g->align[b]);
        }
        if (at < best) best = at;
    }
    return best;
}

/* Take the next branch of a choice; whether it may lead to a plan. */
static int try_branch(packing_exact_t *s, frame_t *f)
{
    int32_t i = f->next++;
    if (i < f->end) {
        if (!place(s, s->list[i])) return 0;
    } else {
        int64_t to = next_level(s, f->section, f->level);
        if (to == INT64_MAX || !raise_floor(s, f->section, to, -1)) return 0;
    }
    return propagate(s);
}

/* Go on with what is not placed: independent parts one by one. 1: there is more to do, 0: nothing,
 * -1: no memory. */
static int enter(packing_exact_t *s, int32_t first, int32_t last)
{
    int32_t k, from = -1, parts = 0, begin = s->list_count;
    frame_t *f;
    for (k = first; k < last; k++) {
        if (!s->live[k]) continue;
        if (from < 0) from = k;
        if (k + 1 == last || !s->crossing[k]) {
            if (!push_list(s, from) || !push_list(s, k + 1)) return -1;
            from = -1;
            parts++;
        }
    }
    first = parts ? s->list[begin] : 0;
    last = parts ? s->list[begin + 1] : 0;
    if (parts < 2) {
        s->list_count = begin;
        return !parts ? 0 : push_choice(s, first, last) ? 1 : -1;
    }
    f = push_frame(s, PARTS, first, last);
    if (!f) return -1;
    f->begin = begin;
    f->next = begin + 2;
    f->end = s->list_count;
    return push_choice(s, first, last) ? 1 : -1;
}

/* A part is done: go on with the next one; as `enter`. */
static int succeed(packing_exact_t *s)
{
    while (s->frame_count) {
        frame_t *f = &s->frames[s->frame_count - 1];
        if (f->kind == PARTS && f->next < f->end) {
            int32_t first = s->list[f->next], last = s->list[f->next + 1];
            f->next += 2;
            return push_choice(s, first, last) ? 1 : -1;
        }
        s->list_count = f->begin;
        s->frame_count--;
    }
    return 0;
}

static void fail(packing_exact_t *s)
{
    do {
        s->list_count = s->frames[--s->frame_count].begin;
    } while (s->frame_count && s->frames[s->frame_count - 1].kind == PARTS);
    if (s->frame_count) undo(s, s->frames[s->frame_count - 1].mark);
}

static packing_answer_t search(packing_exact_t *s)
{
    int more = enter(s, 0, s->g->sections);
    if (!more) return PACKING_FOUND;
    while (more > 0 && s->frame_count) {
        frame_t *f = &s->frames[s->frame_count - 1];
        if (f->next > f->end) {
            fail(s);
            continue;
        }
        if (!packing_spend(s->budget, 1 + (f->last - f->first) / PACKING_STEP_WORK))
            return PACKING_UNDECIDED;
        if (!try_branch(s, f)) {
            if (s->is_out_of_memory) return PACKING_NO_MEMORY;
            undo(s, f->mark);
            continue;
        }
        more = enter(s, f->first, f->last);
        if (!more) more = succeed(s);
        if (!more) return PACKING_FOUND;
    }
    return more < 0 ? PACKING_NO_MEMORY : PACKING_NONE;
}

static void reset(packing_exact_t *s)
{
    const packing_instance_t *g = s->g;
    int32_t b, k;
    s->change_count = s->saved_count = 0;
    s->frame_count = s->list_count = 0;
    s->queue_count = s->dirty_count = 0;
    s->is_out_of_memory = 0;
    for (k = 0; k < g->sections; k++) {
        s->live[k] = 0;
        s->rest[k] = s->floor[k] = s->top[k] = 0;
        s->witness[k] = s->topmost[k] = -1;
        s->crossing[k] = 0;
        s->queued[k] = s->dirty[k] = 0;
    }
    for (b = 0; b < g->count; b++) {
        s->offset[b] = 0;
        s->placed[b] = 0;
        for (k = g->first[b]; k < g->last[b]; k++) {
            s->at[b][k - g->first[b]] = s->live[k];
            s->members[k][s->live[k]++] = b;
            s->rest[k] += g->size[b];
            if (k + 1 < g->last[b]) s->crossing[k]++;
        }
    }
    for (k = 0; k < g->sections; k++)
        enqueue(s, k);
}

static void find_twins(packing_exact_t *s)
{
    const packing_instance_t *g = s->g;
    int32_t b, i;
    for (b = 0; b < g->count; b++) {
        int32_t k = g->first[b];
        s->twin[b] = -1;
        for (i = 0; i < s->live[k]; i++) {
            int32_t o = s->members[k][i];
            if (g->first[o] == k && g->last[o] == g->last[b] && g->size[o] == g->size[b] &&
                g->align[o] == g->align[b] && s->rank[o] < s->rank[b] &&
                (s->twin[b] < 0 || s->rank[o] > s->rank[s->twin[b]]))
                s->twin[b] = o;
        }
    }
}

packing_answer_t packing_exact_run(packing_exact_t *s, const int32_t *rank, int64_t capacity,
                                   packing_budget_t *budget, int64_t *offsets, int64_t *need)
{
    packing_answer_t answer = PACKING_NONE;
    s->rank = rank;
    s->capacity = capacity;
    s->need = INT64_MAX;
    s->budget = budget;
    reset(s);
    find_twins(s);
    if (propagate(s)) answer = search(s);
    if (s->is_out_of_memory) answer = PACKING_NO_MEMORY;
    if (answer == PACKING_FOUND) memcpy(offsets, s->offset, (size_t)s->g->count * sizeof *offsets);
    if (answer == PACKING_NONE) *need = s->need;
    return answer;
}

packing_exact_t *packing_exact_new(const packing_instance_t *g)
{
    size_t n = (size_t)g->count + 1, m = (size_t)g->sections + 1, spans = (size_t)g->spans + 1;
    size_t i, room = n > m ? n : m;
    packing_exact_t *s = calloc(1, sizeof *s);
    int64_t *longs;
    int32_t *ints, *live, **lists;
    uint8_t *bytes;
    if (!s) return NULL;
    s->g = g;
    longs = s->blocks[0] = calloc(2 * n + 4 * m + 2 * room + spans, sizeof *longs);
    ints = s->blocks[1] = malloc((n + 7 * m + 3 * spans) * sizeof *ints);
    lists = s->blocks[2] = malloc((n + m) * sizeof *lists + n + 2 * m);
    if (!longs || !ints || !lists) {
        packing_exact_free(s);
        return NULL;
    }
    s->offset = longs, longs += n;
    s->blame = longs, longs += n;
    s->rest = longs, longs += m;
    s->floor = longs, longs += m;
    s->top = longs, longs += m;
    s->failures = longs, longs += m;
    s->scratch = longs, longs += 2 * room;
    s->saved_top = longs;
    s->twin = ints, ints += n;
    s->live = live = ints, ints += m;
    s->witness = ints, ints += m;
    s->topmost = ints, ints += m;
    s->crossing = ints, ints += m;
    s->queue = ints, ints += m;
    s->dirties = ints, ints += m;
    s->saved_topmost = ints, ints += spans;
    s->at = lists;
    s->members = lists + n;
    bytes = (uint8_t *)(lists + n + m);
    s->placed = bytes;
    s->queued = bytes + n;
    s->dirty = bytes + n + m;
    memset(live, 0, m * sizeof *live);
    for (i = 0; i < (size_t)g->count; i++) {
        int32_t k;
        s->at[i] = ints, ints += g->last[i] - g->first[i];
        for (k = g->first[i]; k < g->last[i]; k++)
            live[k]++;
    }
    for (i = 0; i < (size_t)g->sections; i++)
        s->members[i] = ints, ints += live[i];
    return s;
}

const int64_t *packing_exact_blame(const packing_exact_t *s)
{
    return s->blame;
}

void packing_exact_free(packing_exact_t *s)
{
    int i;
    if (!s) return;
    for (i = 0; i < 3; i++)
        free(s->blocks[i]);
    free(s->changes);
    free(s->frames);
    free(s->list);
    free(s);
}
