#include "exact.h"

#include <stdlib.h>
#include <string.h>

#include "outline.h"

typedef enum frame_kind { CHOICE, PARTS } frame_kind_t;

typedef struct frame {
    frame_kind_t kind;
    int32_t section; /* CHOICE: where */
    int32_t begin;   /* in `list`: candidates, or pairs of first and last section */
    int32_t end;
    int32_t next;
    int32_t first, last; /* sections */
    int32_t depth;       /* choices below it */
    int64_t level;       /* CHOICE: of the candidates */
    size_t mark;         /* changes before it */
} frame_t;

struct packing_exact {
    packing_outline_t o;
    const int32_t *rank;
    packing_branching_t rule;
    packing_budget_t *budget;
    int32_t *twin; /* [count] an equal buffer that goes below it, or -1 */
    packing_reason_t *whys; /* of each frame: why what was tried there failed */
    packing_reason_t *why;  /* of what is tried now */
    frame_t *frames;
    int frame_count, frame_room;
    int32_t *list; /* what frames begin and end in */
    int list_count, list_room;
};

static frame_t *push_frame(packing_exact_t *s, frame_kind_t kind, int32_t first, int32_t last)
{
    frame_t *f;
    if (s->frame_count == s->frame_room) {
        int room = s->frame_room * 2 + 256;
        frame_t *bigger = realloc(s->frames, (size_t)room * sizeof *bigger);
        packing_reason_t *whys = realloc(s->whys, (size_t)room * (size_t)s->o.words * sizeof *whys);
        if (bigger) s->frames = bigger;
        if (whys) s->whys = whys;
        if (!bigger || !whys) {
            s->o.is_out_of_memory = 1;
            return NULL;
        }
        s->frame_room = room;
    }
    memset(packing_why(&s->o, s->whys, s->frame_count), 0, (size_t)s->o.words * sizeof *s->whys);
    f = &s->frames[s->frame_count++];
    memset(f, 0, sizeof *f);
    if (s->frame_count > 1) f->depth = f[-1].depth + (f[-1].kind == CHOICE);
    f->kind = kind;
    f->first = first;
    f->last = last;
    f->begin = f->end = f->next = s->list_count;
    f->mark = s->o.change_count;
    return f;
}

static int push_list(packing_exact_t *s, int32_t value)
{
    if (s->list_count == s->list_room) {
        int room = s->list_room * 2 + 1024;
        int32_t *bigger = realloc(s->list, (size_t)room * sizeof *bigger);
        if (!bigger) {
            s->o.is_out_of_memory = 1;
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
    const packing_instance_t *g = s->o.g;
    int32_t d;
    if (s->o.offset[b] != level || (s->twin[b] >= 0 && !s->o.placed[s->twin[b]])) return 0;
    if (packing_align(packing_outline_top(&s->o, b), g->align[b]) != level) return 0;
    d = s->o.topmost[g->first[b]];
    if (d >= 0 && g->first[d] == g->first[b] && g->last[d] == g->last[b] &&
        s->o.offset[d] + g->size[d] == level && s->rank[b] < s->rank[d]) {
        int64_t a = g->align[b];
        if (a == g->align[d] && g->size[b] % a == 0 && g->size[d] % a == 0) return 0;
    }
    return 1;
}

/* How many neighbours of a buffer end where it would: it closes a step of the outline. */
static int fits_beside(const packing_exact_t *s, int32_t b)
{
    int32_t first = s->o.g->first[b], last = s->o.g->last[b];
    int64_t end = s->o.offset[b] + s->o.g->size[b];
    return (first == 0 || s->o.floor[first - 1] == end) +
           (last == s->o.g->sections || s->o.floor[last] == end);
}

/* Whether a candidate is tried before another one. */
static int is_before(const packing_exact_t *s, int32_t a, int32_t b)
{
    int left = fits_beside(s, a), right = fits_beside(s, b);
    return left != right ? left > right : s->rank[a] < s->rank[b];
}

/* Whether what is not placed hangs a section together with the one before, which has a lower floor. */
static int is_above(const packing_exact_t *s, int32_t first, int32_t k, int64_t floor)
{
    return k > first && s->o.crossing[k - 1] && s->o.floor[k - 1] < floor;
}

/* The end of the sections from one on that are at one floor, and hang together. */
static int32_t run_of(const packing_exact_t *s, int32_t from, int32_t last)
{
    int32_t to = from + 1;
    while (to < last && s->o.crossing[to - 1] && s->o.floor[to] == s->o.floor[from])
        to++;
    return to;
}

/* How much is against going on in a section, in the first place and in the second one. */
static void rate(const packing_exact_t *s, int32_t k, int64_t *major, int64_t *minor)
{
    enum { FREE = 8, WEIGHT = 1000000, LEVELS = 32 };
    int64_t floor = s->o.floor[k], count = 0;
    int32_t i;
    for (i = 0; i < s->o.live[k]; i++)
        count += s->o.offset[s->o.members[k][i]] == floor;
    *major = *minor = count;
    switch (s->rule) {
    case PACKING_FEWEST:
    case PACKING_BRANCHINGS:
        break;
    case PACKING_SCARCE:
        *major = count * (s->o.capacity - floor - s->o.rest[k] + FREE);
        break;
    case PACKING_LOW:
        *major = floor / (s->o.capacity / LEVELS + 1);
        break;
    case PACKING_FAILING:
        *major = count * WEIGHT / (1 + s->o.failures[k]);
        break;
    case PACKING_LOWEST:
        *major = floor;
        break;
    }
}

/* Of the valleys' sections the one that is best by the rule, and of these the one that was too full most
 * often. A valley is a run of sections at one floor, between higher ones: a buffer that could be at its floor
 * is inside of it, so nothing else can be below. */
static int32_t choose_section(const packing_exact_t *s, int32_t first, int32_t last)
{
    int32_t best = -1, from, to, k;
    int64_t least = INT64_MAX, second = INT64_MAX, major, minor;
    for (from = first; from < last; from = to) {
        int64_t floor = s->o.floor[from];
        to = run_of(s, from, last);
        if (!s->o.live[from] || is_above(s, first, from, floor)) continue;
        if (to < last && s->o.crossing[to - 1] && s->o.floor[to] < floor) continue;
        for (k = from; k < to; k++) {
            rate(s, k, &major, &minor);
            if (major > least || (major == least && minor > second)) continue;
            if (major == least && minor == second && s->o.failures[k] <= s->o.failures[best]) continue;
            least = major;
            second = minor;
            best = k;
        }
    }
    return best;
}

static int push_choice(packing_exact_t *s, int32_t first, int32_t last)
{
    int64_t level;
    int32_t k, i, j;
    frame_t *f = push_frame(s, CHOICE, first, last);
    if (!f) return 0;
    f->section = k = choose_section(s, first, last);
    f->level = level = s->o.floor[k];
    for (i = 0; i < s->o.live[k]; i++) {
        int32_t b = s->o.members[k][i];
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
    const packing_instance_t *g = s->o.g;
    int64_t *left = s->o.scratch, *right = s->o.scratch + g->sections, best = INT64_MAX, least;
    int32_t i, j, k, from = section, to = section + 1;
    for (i = 0; i < s->o.live[section]; i++) {
        int32_t b = s->o.members[section][i];
        if (s->o.offset[b] > level) continue;
        if (g->first[b] < from) from = g->first[b];
        if (g->last[b] > to) to = g->last[b];
    }
    /* left[k], right[k]: the least end of a buffer between section k and this one. */
    for (least = INT64_MAX, left[section] = least, k = section - 1; k >= from; k--) {
        for (j = 0; j < s->o.live[k]; j++) {
            int32_t d = s->o.members[k][j];
            int64_t end = s->o.offset[d] + g->size[d];
            if (g->last[d] <= section && end < least) least = end;
        }
        left[k] = least;
    }
    for (least = INT64_MAX, right[section] = least, k = section + 1; k < to; k++) {
        for (j = 0; j < s->o.live[k]; j++) {
            int32_t d = s->o.members[k][j];
            int64_t end = s->o.offset[d] + g->size[d];
            if (g->first[d] > section && end < least) least = end;
        }
        right[k] = least;
    }
    for (i = 0; i < s->o.live[section]; i++) {
        int32_t b = s->o.members[section][i];
        int64_t at = s->o.offset[b];
        if (at <= level) {
            at = left[g->first[b]];
            if (right[g->last[b] - 1] < at) at = right[g->last[b] - 1];
            if (at < INT64_MAX) at = packing_align(at, g->align[b]);
        }
        if (at < best) best = at;
    }
    return best;
}

/* Why the lowest buffer of a section cannot be below what `next_level` says: what is placed around it, and
 * the least offsets of what is not. */
static void explain_next(packing_exact_t *s, const frame_t *f)
{
    const packing_instance_t *g = s->o.g;
    int32_t i, k, from = f->section, to = f->section + 1;
    memset(s->why, 0, (size_t)s->o.words * sizeof *s->why);
    packing_reason_add(&s->o, s->why, f->depth);
    for (i = 0; i < s->o.live[f->section]; i++) {
        int32_t b = s->o.members[f->section][i];
        packing_reason_join(&s->o, s->why, packing_why(&s->o, s->o.offset_why, b));
        if (s->o.offset[b] > f->level) continue;
        if (g->first[b] < from) from = g->first[b];
        if (g->last[b] > to) to = g->last[b];
    }
    for (k = from; k < to; k++) {
        packing_reason_join(&s->o, s->why, packing_why(&s->o, s->o.floor_why, k));
        packing_reason_join(&s->o, s->why, packing_why(&s->o, s->o.placed_why, k));
        for (i = 0; i < s->o.live[k]; i++)
            packing_reason_join(&s->o, s->why,
                                packing_why(&s->o, s->o.offset_why, s->o.members[k][i]));
    }
}

/* Take the next branch of a choice; whether it may lead to a plan. */
static int try_branch(packing_exact_t *s, frame_t *f)
{
    int32_t i = f->next++;
    if (i < f->end) {
        if (!packing_outline_place(&s->o, s->list[i], f->depth)) return 0;
    } else {
        int64_t to = next_level(s, f->section, f->level);
        explain_next(s, f);
        if (to == INT64_MAX) {
            memcpy(s->o.conflict, s->why, (size_t)s->o.words * sizeof *s->why);
            return 0;
        }
        if (!packing_outline_raise(&s->o, f->section, to, -1, s->why)) return 0;
    }
    return packing_outline_propagate(&s->o);
}

/* Go on with what is not placed: independent parts one by one. 1: there is more to do, 0: nothing,
 * -1: no memory. */
static int enter(packing_exact_t *s, int32_t first, int32_t last)
{
    int32_t k, from = -1, parts = 0, begin = s->list_count;
    frame_t *f;
    for (k = first; k < last; k++) {
        if (!s->o.live[k]) continue;
        if (from < 0) from = k;
        if (k + 1 == last || !s->o.crossing[k]) {
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

/* After a contradiction go back to the last choice that is a reason of it: what was chosen since then
 * has nothing to do with it. Where all that can be tried there failed, the reasons are those of all. */
static void fail(packing_exact_t *s)
{
    packing_reason_t *conflict = s->o.conflict;
    while (s->frame_count) {
        frame_t *f = &s->frames[s->frame_count - 1];
        packing_reason_t *own = packing_why(&s->o, s->whys, s->frame_count - 1);
        if (f->kind == CHOICE && packing_reason_has(&s->o, conflict, f->depth)) {
            int32_t bit = packing_bit(&s->o, f->depth);
            packing_outline_undo(&s->o, f->mark);
            s->list_count = f->end;
            packing_reason_join(&s->o, own, conflict);
            if (f->depth == bit)
                own[bit / 64] &= ~((packing_reason_t)1 << (bit % 64));
            if (f->next <= f->end) return;
            memcpy(conflict, own, (size_t)s->o.words * sizeof *own);
        }
        s->list_count = f->begin;
        s->frame_count--;
    }
}

static packing_answer_t search(packing_exact_t *s)
{
    int more = enter(s, 0, s->o.g->sections);
    if (!more) return PACKING_FOUND;
    while (more > 0 && s->frame_count) {
        frame_t *f = &s->frames[s->frame_count - 1];
        if (!packing_spend(s->budget, 1 + s->o.work / PACKING_STEP_WORK)) return PACKING_UNDECIDED;
        s->o.work = f->last - f->first;
        if (!try_branch(s, f)) {
            if (s->o.is_out_of_memory) return PACKING_NO_MEMORY;
            fail(s);
            continue;
        }
        more = enter(s, f->first, f->last);
        if (!more) more = succeed(s);
        if (!more) return PACKING_FOUND;
    }
    return more < 0 ? PACKING_NO_MEMORY : PACKING_NONE;
}

static void find_twins(packing_exact_t *s)
{
    const packing_instance_t *g = s->o.g;
    int32_t b, i;
    for (b = 0; b < g->count; b++) {
        int32_t k = g->first[b];
        s->twin[b] = -1;
        for (i = 0; i < s->o.live[k]; i++) {
            int32_t o = s->o.members[k][i];
            if (g->first[o] == k && g->last[o] == g->last[b] && g->size[o] == g->size[b] &&
                g->align[o] == g->align[b] && s->rank[o] < s->rank[b] &&
                (s->twin[b] < 0 || s->rank[o] > s->rank[s->twin[b]]))
                s->twin[b] = o;
        }
    }
}

packing_answer_t packing_exact_run(packing_exact_t *s, const int32_t *rank, packing_branching_t rule,
                                   int64_t capacity, packing_budget_t *budget, int64_t *offsets,
                                   int64_t *need)
{
    packing_answer_t answer = PACKING_NONE;
    s->rank = rank;
    s->rule = rule;
    s->budget = budget;
    s->frame_count = s->list_count = 0;
    packing_outline_reset(&s->o, capacity);
    s->o.work = s->o.g->spans;
    find_twins(s);
    if (packing_outline_propagate(&s->o)) answer = search(s);
    if (s->o.is_out_of_memory) answer = PACKING_NO_MEMORY;
    if (answer == PACKING_FOUND)
        memcpy(offsets, s->o.offset, (size_t)s->o.g->count * sizeof *offsets);
    if (answer == PACKING_NONE) *need = s->o.need;
    return answer;
}

packing_exact_t *packing_exact_new(const packing_instance_t *g)
{
    packing_exact_t *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->twin = malloc(((size_t)g->count + 1) * sizeof *s->twin);
    if (!s->twin || !packing_outline_init(&s->o, g) ||
        !(s->why = malloc((size_t)s->o.words * sizeof *s->why))) {
        packing_exact_free(s);
        return NULL;
    }
    return s;
}

void packing_exact_free(packing_exact_t *s)
{
    if (!s) return;
    packing_outline_drop(&s->o);
    free(s->twin);
    free(s->frames);
    free(s->whys);
    free(s->why);
    free(s->list);
    free(s);
}

const int64_t *packing_exact_blame(const packing_exact_t *s)
{
    return s->o.blame;
}
