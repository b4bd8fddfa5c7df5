#include "blocks.h"

#include <string.h>

#define HEAD BLOCK_ALIGN
#define NO_CLASS UINT32_MAX

void inlay_blocks_open(inlay_blocks_t *blocks, const inlay_host_t *host, size_t limit)
{
    memset(blocks, 0, sizeof *blocks);
    blocks->host = host;
    blocks->limit = limit;
}

/* Class of a size, and the size of that class: 64, 80, 96, 112, 128, 160, ... The class is the
 * first whose size is enough (`rounded`), or the last whose size is not more. */
static uint32_t class_of(size_t bytes, size_t *rounded)
{
    size_t step = 16, base = 64, steps;
    uint32_t index = 0;
    if (bytes < 64) bytes = 64;
    while (bytes > 2 * base) {
        base *= 2;
        step *= 2;
        index += 4;
    }
    steps = (bytes - base + step - 1) / step;
    *rounded = base + steps * step;
    return index + (uint32_t)steps;
}

static uint32_t class_within(size_t bytes)
{
    size_t rounded;
    uint32_t class = class_of(bytes, &rounded);
    return rounded > bytes ? class - 1 : class;
}

/* ---------------------------------------------------------------------------------- pieces */

static inlay_piece_t *piece_of(void *memory)
{
    return (inlay_piece_t *)(void *)((uint8_t *)memory - HEAD);
}

static int is_whole(const inlay_piece_t *piece) { return !piece->before && !piece->after; }

static void insert(inlay_blocks_t *blocks, inlay_piece_t *piece)
{
    uint32_t class = class_within(piece->bytes);
    piece->is_free = 1;
    piece->class = class;
    piece->previous = NULL;
    piece->next = blocks->pieces[class];
    if (piece->next) piece->next->previous = piece;
    blocks->pieces[class] = piece;
    blocks->filled[class / 64] |= (uint64_t)1 << class % 64;
    blocks->kept_bytes += piece->bytes;
}

static void withdraw(inlay_blocks_t *blocks, inlay_piece_t *piece)
{
    uint32_t class = piece->class;
    if (piece->next) piece->next->previous = piece->previous;
    if (piece->previous) piece->previous->next = piece->next;
    else blocks->pieces[class] = piece->next;
    if (!blocks->pieces[class]) blocks->filled[class / 64] &= ~((uint64_t)1 << class % 64);
    blocks->kept_bytes -= piece->bytes;
    piece->is_free = 0;
}

/* The first class from one on that has a piece. */
static uint32_t next_filled(const inlay_blocks_t *blocks, uint32_t class)
{
    for (; class < PIECE_CLASSES; class++) {
        if (blocks->filled[class / 64] >> class % 64 & 1) return class;
        if (blocks->filled[class / 64] >> class % 64 == 0) class |= 63;
    }
    return NO_CLASS;
}

/* A free piece that holds so many bytes; of the smallest class that has one. */
static inlay_piece_t *find(const inlay_blocks_t *blocks, size_t bytes)
{
    uint32_t class = class_within(bytes);
    inlay_piece_t *piece = blocks->pieces[class];
    while (piece && piece->bytes < bytes) piece = piece->next;
    if (piece) return piece;
    class = next_filled(blocks, class + 1);
    return class == NO_CLASS ? NULL : blocks->pieces[class];
}

/* An allocation of the host; what is kept goes back where it has no more. */
static void *from_host(inlay_blocks_t *blocks, size_t bytes)
{
    const inlay_host_t *host = blocks->host;
    void *memory = host->allocate(host->user, bytes, BLOCK_ALIGN);
    if (memory || !blocks->kept_bytes) return memory;
    inlay_blocks_drop(blocks);
    return host->allocate(host->user, bytes, BLOCK_ALIGN);
}

/* Whether a piece is no larger than its class makes it. What that rounds up is not given to others: a block
 * takes the same piece in each call, and a result in the rest of it could not leave with its extent. */
static int is_rounding(size_t piece, size_t wanted) { return piece - wanted <= piece / 4; }

static void *take_piece(inlay_blocks_t *blocks, size_t *bytes)
{
    size_t wanted = (*bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    inlay_piece_t *piece = find(blocks, wanted), *rest;
    if (!piece) {
        size_t extent;
        class_of(wanted + HEAD, &extent);
        piece = from_host(blocks, extent);
        if (!piece) return NULL;
        piece->before = piece->after = NULL;
        piece->bytes = extent - HEAD;
        piece->is_free = 0;
    } else {
        withdraw(blocks, piece);
        if (piece->bytes - wanted > HEAD + BLOCK_SMALL && !is_rounding(piece->bytes, wanted)) {
            rest = (inlay_piece_t *)(void *)((uint8_t *)piece + HEAD + wanted);
            rest->bytes = piece->bytes - wanted - HEAD;
            rest->before = piece;
            rest->after = piece->after;
            if (rest->after) rest->after->before = rest;
            piece->after = rest;
            piece->bytes = wanted;
            insert(blocks, rest);
        }
    }
    *bytes = piece->bytes;
    return (uint8_t *)piece + HEAD;
}

/* Make one piece of two neighbours, the second of which is free. */
static void join(inlay_blocks_t *blocks, inlay_piece_t *piece, inlay_piece_t *after)
{
    withdraw(blocks, after);
    piece->bytes += HEAD + after->bytes;
    piece->after = after->after;
    if (piece->after) piece->after->before = piece;
}

static void release(inlay_blocks_t *blocks, inlay_piece_t *piece)
{
    blocks->host->release(blocks->host->user, piece, HEAD + piece->bytes, BLOCK_ALIGN);
}

/* Give free extents back until no more than so many bytes are kept; the largest first, since it is
 * they that sizes of today may no longer need. */
static void trim(inlay_blocks_t *blocks, size_t limit)
{
    uint32_t class = PIECE_CLASSES;
    while (class-- > 0 && blocks->kept_bytes > limit) {
        inlay_piece_t *piece = blocks->pieces[class], *next;
        for (; piece && blocks->kept_bytes > limit; piece = next) {
            next = piece->next;
            if (!is_whole(piece)) continue;
            withdraw(blocks, piece);
            release(blocks, piece);
        }
    }
}

static void give_piece(inlay_blocks_t *blocks, inlay_piece_t *piece)
{
    if (piece->after && piece->after->is_free) join(blocks, piece, piece->after);
    if (piece->before && piece->before->is_free) {
        inlay_piece_t *before = piece->before;
        withdraw(blocks, before);
        before->bytes += HEAD + piece->bytes;
        before->after = piece->after;
        if (before->after) before->after->before = before;
        piece = before;
    }
    if (is_whole(piece) && piece->bytes > blocks->limit) {
        release(blocks, piece);
        return;
    }
    insert(blocks, piece);
    if (blocks->kept_bytes > blocks->limit) trim(blocks, blocks->limit / 2);
}

/* ----------------------------------------------------------------------------------- blocks */

static void drop_small(inlay_blocks_t *blocks)
{
    uint32_t class;
    for (class = 0; class < SMALL_CLASSES; class++) {
        size_t base = (size_t)64 << (class / 4), bytes = base + base / 4 * (class % 4);
        while (blocks->small[class]) {
            inlay_block_t *block = blocks->small[class];
            blocks->small[class] = block->next;
            blocks->kept_bytes -= bytes;
            blocks->host->release(blocks->host->user, block, bytes, BLOCK_ALIGN);
        }
    }
}

void inlay_blocks_drop(inlay_blocks_t *blocks)
{
    drop_small(blocks);
    trim(blocks, 0);
}

void *inlay_blocks_take(inlay_blocks_t *blocks, size_t *bytes, size_t align)
{
    const inlay_host_t *host = blocks->host;
    inlay_block_t *block;
    uint32_t class;
    if (align > BLOCK_ALIGN) return host->allocate(host->user, *bytes, align);
    if (*bytes > BLOCK_SMALL) return take_piece(blocks, bytes);
    class = class_of(*bytes, bytes);
    block = blocks->small[class];
    if (block) {
        blocks->small[class] = block->next;
        blocks->kept_bytes -= *bytes;
        return block;
    }
    return from_host(blocks, *bytes);
}

void inlay_blocks_give(inlay_blocks_t *blocks, void *memory, size_t bytes, size_t align)
{
    inlay_block_t *block = memory;
    size_t rounded;
    uint32_t class;
    if (align > BLOCK_ALIGN) {
        blocks->host->release(blocks->host->user, memory, bytes, align);
        return;
    }
    if (bytes > BLOCK_SMALL) {
        give_piece(blocks, piece_of(memory));
        return;
    }
    if (blocks->kept_bytes + bytes > blocks->limit) inlay_blocks_drop(blocks);
    if (bytes > blocks->limit) {
        blocks->host->release(blocks->host->user, memory, bytes, BLOCK_ALIGN);
        return;
    }
    class = class_of(bytes, &rounded);
    block->next = blocks->small[class];
    blocks->small[class] = block;
    blocks->kept_bytes += bytes;
}

int inlay_blocks_part(void **memory, size_t *bytes, size_t align)
{
    inlay_piece_t *piece;
    if (align > BLOCK_ALIGN || *bytes <= BLOCK_SMALL) return 1;
    piece = piece_of(*memory);
    if (!is_whole(piece)) return 0;
    *memory = piece;
    *bytes += HEAD;
    return 1;
}

void *inlay_blocks_outside(inlay_blocks_t *blocks, size_t *bytes)
{
    if (*bytes <= BLOCK_SMALL) return inlay_blocks_take(blocks, bytes, BLOCK_ALIGN);
    class_of(*bytes, bytes);
    return from_host(blocks, *bytes);
}
