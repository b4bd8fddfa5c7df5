#include "arena.h"

#include <string.h>

#define ARENA_BLOCK ((size_t)16 << 10)

void *inlay_arena_take(inlay_arena_t *arena, size_t n, size_t item_bytes)
{
    inlay_arena_block_t *block = arena->blocks;
    size_t bytes;
    void *memory;
    if (n && item_bytes > (SIZE_MAX - ARENA_BLOCK) / n) return NULL;
    bytes = (n * item_bytes + 15) & ~(size_t)15;
    if (!block || block->bytes - block->used < bytes) {
        size_t size = sizeof *block + bytes;
        if (size < ARENA_BLOCK) size = ARENA_BLOCK;
        block = arena->host->allocate(arena->host->user, size, 64);
        if (!block) return NULL;
        block->next = arena->blocks;
        block->bytes = size;
        block->used = sizeof *block;
        arena->blocks = block;
    }
    memory = (uint8_t *)block + block->used;
    block->used += bytes;
    memset(memory, 0, bytes);
    return memory;
}

void inlay_arena_close(inlay_arena_t *arena)
{
    while (arena->blocks) {
        inlay_arena_block_t *block = arena->blocks;
        arena->blocks = block->next;
        arena->host->release(arena->host->user, block, block->bytes, 64);
    }
}
