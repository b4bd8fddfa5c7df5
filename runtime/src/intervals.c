#include "intervals.h"

#if INLAY_RACES

#define SLAB_ITEMS 62u

typedef struct inlay_intervals_slab {
    struct inlay_intervals_slab *next;
    inlay_interval_t items[SLAB_ITEMS];
} slab_t;

static inlay_interval_t *new_interval(inlay_intervals_t *pool, const inlay_host_t *host)
{
    inlay_interval_t *made;
    if (!pool->free) {
        slab_t *slab = host->allocate(host->user, sizeof *slab, 64);
        uint32_t i;
        if (!slab) return NULL;
        slab->next = pool->slabs;
        pool->slabs = slab;
        for (i = 0; i < SLAB_ITEMS; i++) {
            slab->items[i].left = pool->free;
            pool->free = &slab->items[i];
        }
    }
    made = pool->free;
    pool->free = made->left;
    made->left = made->right = NULL;
    pool->random = pool->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    made->priority = pool->random >> 16;
    return made;
}

static void free_interval(inlay_intervals_t *pool, inlay_interval_t *old)
{
    old->left = pool->free;
    pool->free = old;
}

void inlay_intervals_clear(inlay_intervals_t *pool, inlay_interval_t **map)
{
    inlay_interval_t *at = *map;
    while (at) {
        inlay_interval_t *left = at->left;
        if (left) { /* turn the tree to the right, until it is a list */
            at->left = left->right;
            left->right = at;
            at = left;
        } else {
            inlay_interval_t *next = at->right;
            free_interval(pool, at);
            at = next;
        }
    }
    *map = NULL;
}

void inlay_intervals_close(inlay_intervals_t *pool, const inlay_host_t *host)
{
    while (pool->slabs) {
        slab_t *slab = pool->slabs;
        pool->slabs = slab->next;
        host->release(host->user, slab, sizeof *slab, 64);
    }
    pool->free = NULL;
}

/* Those that begin before `key`, and the others. */
static void split(inlay_interval_t *map, size_t key, inlay_interval_t **before,
                  inlay_interval_t **after)
{
    while (map) {
        if (map->begin < key) {
            *before = map;
            before = &map->right;
            map = map->right;
        } else {
            *after = map;
            after = &map->left;
            map = map->left;
        }
    }
    *before = *after = NULL;
}

static inlay_interval_t *join(inlay_interval_t *before, inlay_interval_t *after)
{
    inlay_interval_t *map = NULL, **to = &map;
    while (before && after) {
        if (before->priority > after->priority) {
            *to = before;
            to = &before->right;
            before = before->right;
        } else {
            *to = after;
            to = &after->left;
            after = after->left;
        }
    }
    *to = before ? before : after;
    return map;
}

static inlay_interval_t *last_of(inlay_interval_t *map)
{
    while (map && map->right) map = map->right;
    return map;
}

static inlay_interval_t *first_of(inlay_interval_t *map)
{
    while (map && map->left) map = map->left;
    return map;
}

int inlay_intervals_write(inlay_intervals_t *pool, const inlay_host_t *host, inlay_interval_t **map,
                          size_t begin, size_t end, const inlay_writer_t *writer, uint64_t since)
{
    inlay_interval_t *before, *inside, *after, *near;
    inlay_interval_t *made = new_interval(pool, host), *rest = new_interval(pool, host);
    if (!made || !rest) return 0;
    split(*map, begin, &before, &inside);
    split(inside, end, &inside, &after);
    /* What begins before it or in it may end behind it. */
    near = last_of(inside);
    if (!near) near = last_of(before);
    if (near && near->end > end) {
        rest->begin = end;
        rest->end = near->end;
        rest->writer = near->writer;
        after = join(rest, after);
    } else {
        free_interval(pool, rest);
    }
    near = last_of(before);
    if (near && near->end > begin) near->end = begin;
    inlay_intervals_clear(pool, &inside);
    if (near && near->end == begin && near->writer.tensor == writer->tensor &&
        near->writer.at > since) {
        begin = near->begin;
        split(before, begin, &before, &inside);
        inlay_intervals_clear(pool, &inside);
    }
    near = first_of(after);
    if (near && near->begin == end && near->writer.tensor == writer->tensor &&
        near->writer.at > since) {
        end = near->end;
        split(after, end, &inside, &after);
        inlay_intervals_clear(pool, &inside);
    }
    made->begin = begin;
    made->end = end;
    made->writer = *writer;
    *map = join(join(before, made), after);
    return 1;
}

/* The depth of the recursion is that of the tree. */
const inlay_interval_t *inlay_intervals_find(const inlay_interval_t *map, size_t begin, size_t end,
                                             uint64_t tensor, uint64_t since)
{
    while (map) {
        if (map->begin < end && begin < map->end) {
            const inlay_interval_t *found =
                inlay_intervals_find(map->left, begin, end, tensor, since);
            if (found) return found;
            if (map->writer.tensor != tensor && map->writer.at > since) return map;
            map = map->right;
        } else {
            map = map->begin < end ? map->right : map->left;
        }
    }
    return NULL;
}

#else
typedef int inlay_intervals_is_off; /* a file of C has something in it */
#endif
