/* Random work on the pool of tensor memory, over a host that checks what it gets back: blocks do not
 * overlap, free neighbours become one, and what sizes of one kind left serves those of another. */
#include "blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                               \
    do {                                                               \
        if (!(condition)) {                                            \
            printf("line %d: %s\n", __LINE__, #condition);             \
            exit(1);                                                   \
        }                                                              \
    } while (0)

enum { LIVE = 64, STEPS = 20000 };

typedef struct host_memory {
    size_t bytes, most, allocations, refuse_beyond;
} host_memory_t;

typedef struct allocation {
    size_t bytes, align;
    unsigned char unused[48];
} allocation_t;

static void *allocate(void *user, size_t bytes, size_t align)
{
    host_memory_t *memory = user;
    allocation_t *made;
    size_t room = align > sizeof *made ? align : sizeof *made;
    CHECK(align >= 64 && (align & (align - 1)) == 0);
    if (memory->refuse_beyond && memory->bytes + bytes > memory->refuse_beyond) return NULL;
    made = aligned_alloc(align, (room + bytes + align - 1) / align * align);
    CHECK(made);
    made = (allocation_t *)(void *)((char *)made + room - sizeof *made);
    made->bytes = bytes;
    made->align = align;
    memory->bytes += bytes;
    memory->allocations++;
    if (memory->bytes > memory->most) memory->most = memory->bytes;
    return made + 1;
}

static void release(void *user, void *given, size_t bytes, size_t align)
{
    host_memory_t *memory = user;
    allocation_t *made = (allocation_t *)given - 1;
    size_t room = align > sizeof *made ? align : sizeof *made;
    CHECK(made->bytes == bytes && made->align == align);
    memory->bytes -= bytes;
    free((char *)given - room);
}

typedef struct held {
    unsigned char *at;
    size_t bytes, align;
    unsigned char mark;
} held_t;

static unsigned long seed = 1;

static size_t random_below(size_t n)
{
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return (size_t)(seed >> 33) % n;
}

static size_t random_size(void)
{
    size_t most = (size_t)1 << (4 + random_below(18));
    return 1 + random_below(most);
}

static void hold(inlay_blocks_t *blocks, held_t *held, size_t bytes, size_t align)
{
    held->bytes = bytes;
    held->align = align;
    held->at = inlay_blocks_take(blocks, &held->bytes, align);
    if (!held->at) return;
    CHECK(held->bytes >= bytes && (size_t)held->at % align == 0);
    held->mark = (unsigned char)(1 + random_below(255));
    held->at[0] = held->at[held->bytes / 2] = held->at[held->bytes - 1] = held->mark;
}

static void look(const held_t *held)
{
    CHECK(held->at[0] == held->mark && held->at[held->bytes - 1] == held->mark);
    CHECK(held->at[held->bytes / 2] == held->mark);
}

static void random_work(inlay_host_t *host, host_memory_t *memory, size_t limit)
{
    inlay_blocks_t blocks;
    held_t held[LIVE];
    int step, i;
    inlay_blocks_open(&blocks, host, limit);
    memset(held, 0, sizeof held);
    for (step = 0; step < STEPS; step++) {
        held_t *at = &held[random_below(LIVE)];
        if (at->at) {
            look(at);
            if (random_below(16) == 0) {
                void *block = at->at;
                size_t bytes = at->bytes;
                if (inlay_blocks_part(&block, &bytes, at->align)) {
                    release(memory, block, bytes, at->align);
                    at->at = NULL;
                    continue;
                }
            }
            inlay_blocks_give(&blocks, at->at, at->bytes, at->align);
            at->at = NULL;
        } else {
            hold(&blocks, at, random_size(), random_below(20) ? 64 : 4096);
        }
    }
    for (i = 0; i < LIVE; i++)
        if (held[i].at) inlay_blocks_give(&blocks, held[i].at, held[i].bytes, held[i].align);
    CHECK(blocks.kept_bytes <= limit);
    inlay_blocks_drop(&blocks);
    CHECK(blocks.kept_bytes == 0);
    CHECK(memory->bytes == 0);
}

/* 10,000 rounds of four blocks whose sizes change: the host is asked a few times only. */
static void varying_rounds(inlay_host_t *host, host_memory_t *memory)
{
    inlay_blocks_t blocks;
    size_t asked = 0;
    int round, i;
    inlay_blocks_open(&blocks, host, (size_t)64 << 20);
    memory->most = 0;
    for (round = 0; round < 10000; round++) {
        held_t held[4];
        for (i = 0; i < 4; i++) hold(&blocks, &held[i], 40000 + random_below(2000000), 64);
        for (i = 0; i < 4; i++) inlay_blocks_give(&blocks, held[i].at, held[i].bytes, 64);
        if (round == 100) asked = memory->allocations;
    }
    CHECK(memory->allocations - asked < 100);
    CHECK(memory->most <= (size_t)20 << 20);
    inlay_blocks_drop(&blocks);
    CHECK(memory->bytes == 0);
}

static void split_and_joined(inlay_host_t *host, host_memory_t *memory)
{
    inlay_blocks_t blocks;
    held_t whole, a, b, c;
    void *block;
    size_t bytes, before;
    inlay_blocks_open(&blocks, host, (size_t)64 << 20);
    hold(&blocks, &whole, (1 << 20) - 64, 64);
    inlay_blocks_give(&blocks, whole.at, whole.bytes, 64);
    before = memory->allocations;
    hold(&blocks, &a, 300000, 64);
    hold(&blocks, &b, 300000, 64);
    hold(&blocks, &c, 300000, 64);
    CHECK(memory->allocations == before); /* three out of one */
    look(&a), look(&b), look(&c);
    block = b.at, bytes = b.bytes;
    CHECK(!inlay_blocks_part(&block, &bytes, 64));
    inlay_blocks_give(&blocks, a.at, a.bytes, 64);
    inlay_blocks_give(&blocks, c.at, c.bytes, 64);
    inlay_blocks_give(&blocks, b.at, b.bytes, 64);
    hold(&blocks, &whole, (1 << 20) - 64, 64); /* and one again */
    CHECK(memory->allocations == before);
    block = whole.at, bytes = whole.bytes;
    CHECK(inlay_blocks_part(&block, &bytes, 64));
    release(memory, block, bytes, 64);
    CHECK(memory->bytes == 0 && blocks.kept_bytes == 0);
}

/* A block and a result behind it, call after call: the result leaves with its extent, and comes back to it. */
static void block_and_result(inlay_host_t *host, host_memory_t *memory)
{
    inlay_blocks_t blocks;
    int call;
    inlay_blocks_open(&blocks, host, (size_t)64 << 20);
    for (call = 0; call < 3; call++) {
        held_t block, result;
        void *left;
        size_t bytes;
        hold(&blocks, &block, 1 << 20, 64); /* with its head, of a class that is a fifth larger */
        hold(&blocks, &result, 130000, 64);
        left = result.at, bytes = result.bytes;
        CHECK(inlay_blocks_part(&left, &bytes, 64));
        release(memory, left, bytes, 64);
        inlay_blocks_give(&blocks, block.at, block.bytes, 64);
    }
    inlay_blocks_drop(&blocks);
    CHECK(memory->bytes == 0);
}

static void refusing_host(inlay_host_t *host, host_memory_t *memory)
{
    inlay_blocks_t blocks;
    held_t one, two;
    inlay_blocks_open(&blocks, host, (size_t)64 << 20);
    memory->refuse_beyond = 3 << 20;
    hold(&blocks, &one, 1 << 20, 64);
    inlay_blocks_give(&blocks, one.at, one.bytes, 64);
    hold(&blocks, &two, 5 << 19, 64); /* room only where the first goes back */
    CHECK(two.at);
    hold(&blocks, &one, 1 << 20, 64);
    CHECK(!one.at);
    inlay_blocks_give(&blocks, two.at, two.bytes, 64);
    inlay_blocks_drop(&blocks);
    memory->refuse_beyond = 0;
    CHECK(memory->bytes == 0);
}

int main(void)
{
    host_memory_t memory;
    inlay_host_t host;
    memset(&memory, 0, sizeof memory);
    memset(&host, 0, sizeof host);
    host.user = &memory;
    host.allocate = allocate;
    host.release = release;
    random_work(&host, &memory, (size_t)64 << 20);
    random_work(&host, &memory, (size_t)1 << 20);
    random_work(&host, &memory, 0);
    varying_rounds(&host, &memory);
    split_and_joined(&host, &memory);
    block_and_result(&host, &memory);
    refusing_host(&host, &memory);
    return 0;
}
