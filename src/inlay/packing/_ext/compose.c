#include "compose.h"

#include <stdlib.h>
#include <string.h>

#include "random.h"

/* Two buffers with one lifetime may as well lie on each other, and two of one size, of which one ends where
 * the other begins, may as well be at one place. Neither needs to be so in any plan: it is a guess, and it
 * makes lists short. What is glued is a block, of which the same holds, so that many small guesses lead to
 * few large blocks. Which ones are glued where there are several is drawn, so no two lists of blocks are
 * wrong in the same way. */

/* What is glued so far. A block is named by one of its buffers, its root; times are sections. */
typedef struct glue {
    int32_t count;
    int64_t *columns; /* the next five, [count] each */
    int64_t *first, *last, *size, *align;
    int64_t *base;       /* of a buffer in what `root` names */
    int32_t *root;       /* [count] itself, or what it was glued to */
    uint8_t *takes_part; /* [count] in this round */
    packing_key_t *keys; /* [2 * count] */
    uint64_t *random;
} glue_t;

static int32_t root_of(const glue_t *c, int32_t b)
{
    while (c->root[b] != b)
        b = c->root[b];
    return b;
}

static int64_t lot(glue_t *c)
{
    return packing_random(c->random, 1 << 30);
}

/* Glue a block into another one, some bytes above its beginning; 0 where alignments forbid it. */
static int join(glue_t *c, int32_t into, int32_t from, int64_t at)
{
    int64_t a = c->align[into], b = c->align[from], larger = a > b ? a : b;
    if (at % b || larger % a || larger % b) return 0;
    c->root[from] = into;
    c->base[from] = at;
    c->align[into] = larger;
    if (at) c->size[into] = at + c->size[from];
    if (c->first[from] < c->first[into]) c->first[into] = c->first[from];
    if (c->last[from] > c->last[into]) c->last[into] = c->last[from];
    return 1;
}

/* Whether two keys are of one group. */
static int are_alike(const packing_key_t *a, const packing_key_t *b)
{
    return a->major == b->major && a->middle == b->middle;
}

/* Put blocks of one lifetime on each other. */
static int stack_blocks(glue_t *c)
{
    int32_t b, n = 0, i, below = -1, joined = 0;
    for (b = 0; b < c->count; b++) {
        packing_key_t key = {c->first[b], c->last[b], 0, b};
        if (c->root[b] != b || !c->takes_part[b]) continue;
        key.minor = lot(c);
        c->keys[n++] = key;
    }
    packing_sort(c->keys, n);
    for (i = 0; i < n; i++) {
        b = c->keys[i].index;
        if (i && are_alike(&c->keys[i], &c->keys[i - 1]) && join(c, below, b, c->size[below]))
            joined++;
        else
            below = b;
    }
    return joined;
}

/* Put blocks of one size at one place, where one begins as the other ends. Of those that end there and
 * those that begin, in the order of lots, each of the fewer gets one of the others. */
static int chain_blocks(glue_t *c)
{
    int32_t b, n = 0, i, early = 0, late, joined = 0;
    for (b = 0; b < c->count; b++) {
        packing_key_t begin = {c->first[b], c->size[b], 0, b}, end = {c->last[b], c->size[b], 0, ~b};
        if (c->root[b] != b || !c->takes_part[b]) continue;
        begin.minor = ((int64_t)1 << 30) + lot(c);
        end.minor = lot(c);
        c->keys[n++] = begin;
        c->keys[n++] = end;
    }
    packing_sort(c->keys, n);
    for (i = 0; i < n; i++) {
        if (!i || !are_alike(&c->keys[i], &c->keys[i - 1])) early = i;
        late = c->keys[i].index;
        /* What ends is in front of what begins. */
        if (late < 0 || c->keys[early].index >= 0) continue;
        joined += join(c, root_of(c, ~c->keys[early++].index), late, 0);
    }
    return joined;
}

static int make_blocks(glue_t *c, packing_composed_t *made)
{
    int32_t b, n = 0, *number = (int32_t *)c->keys;
    for (b = 0; b < c->count; b++)
        if (c->root[b] == b) number[b] = n++;
    made->columns = malloc((4 * (size_t)n + 1) * sizeof *made->columns);
    made->block = malloc(((size_t)c->count + 1) * sizeof *made->block);
    made->base = malloc(((size_t)c->count + 1) * sizeof *made->base);
    if (!made->columns || !made->block || !made->base) return 0;
    for (b = 0; b < c->count; b++) {
        int64_t *column = made->columns, base = 0;
        int32_t at = b;
        for (; c->root[at] != at; at = c->root[at])
            base += c->base[at];
        made->block[b] = number[at];
        made->base[b] = base;
        if (at != b) continue;
        column += number[b];
        column[0] = c->first[b];
        column[n] = c->last[b];
        column[2 * n] = c->size[b];
        column[3 * n] = c->align[b];
    }
    return packing_columns(&made->instance, made->columns, n);
}

static int begin_gluing(glue_t *c, const packing_instance_t *g, uint64_t *random)
{
    size_t n = (size_t)g->count;
    int64_t step = packing_common_alignment(g);
    int32_t b;
    memset(c, 0, sizeof *c);
    c->count = g->count;
    c->random = random;
    c->columns = malloc((5 * n + 1) * sizeof *c->columns);
    c->root = malloc((n + 1) * sizeof *c->root);
    c->keys = malloc((2 * n + 1) * sizeof *c->keys);
    c->takes_part = malloc(n + 1);
    if (!c->columns || !c->root || !c->keys || !c->takes_part) return 0;
    c->first = c->columns;
    c->last = c->first + n;
    c->size = c->last + n;
    c->align = c->size + n;
    c->base = c->align + n;
    for (b = 0; b < g->count; b++) {
        c->first[b] = g->first[b];
        c->last[b] = g->last[b];
        c->size[b] = packing_align(g->size[b], step); /* what follows begins there at the least */
        c->align[b] = g->align[b];
        c->base[b] = 0;
        c->root[b] = b;
    }
    return 1;
}

int packing_compose(const packing_instance_t *g, int percent, uint64_t *random, packing_composed_t *made)
{
    glue_t c;
    int32_t b, joined = 1;
    int ok = begin_gluing(&c, g, random);
    memset(made, 0, sizeof *made);
    while (ok && joined) {
        int is_stacked_first = packing_random(random, 2) == 0;
        for (b = 0; b < g->count; b++)
            c.takes_part[b] = (int)packing_random(random, 100) < percent;
        joined = is_stacked_first ? stack_blocks(&c) : chain_blocks(&c);
        joined += is_stacked_first ? chain_blocks(&c) : stack_blocks(&c);
    }
    ok = ok && make_blocks(&c, made);
    free(c.columns);
    free(c.root);
    free(c.keys);
    free(c.takes_part);
    if (!ok) packing_composed_drop(made);
    return ok;
}

void packing_composed_drop(packing_composed_t *made)
{
    packing_drop(&made->instance);
    free(made->columns);
    free(made->block);
    free(made->base);
    memset(made, 0, sizeof *made);
}
