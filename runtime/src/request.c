#include "request.h"

#include <string.h>

static size_t up(size_t bytes) { return (bytes + 7) / 8 * 8; }

size_t inlay_request_bytes(const inlay_request_t *r)
{
    const size_t after = up(r->n_after * sizeof *r->after);
    if (r->action == INLAY_COPY) return after;
    return after + up(r->n_buffers * sizeof *r->buffers) + up(r->n_ints * sizeof *r->ints) +
           up(r->n_phases * sizeof *r->items);
}

static const void *keep(uint8_t **at, const void *array, size_t bytes)
{
    void *kept = *at;
    if (bytes) memcpy(kept, array, bytes);
    *at += up(bytes);
    return kept;
}

uint8_t *inlay_request_keep(const inlay_request_t *r, inlay_request_t *kept, uint8_t *at)
{
    *kept = *r;
    if (r->action == INLAY_COPY) {
        kept->n_buffers = kept->n_ints = kept->n_phases = 0;
        kept->program = NULL;
    } else {
        kept->to.memory = kept->from.memory = NULL;
        kept->bytes = 0;
    }
    kept->after = keep(&at, r->after, r->n_after * sizeof *r->after);
    kept->buffers = keep(&at, r->buffers, kept->n_buffers * sizeof *r->buffers);
    kept->ints = keep(&at, r->ints, kept->n_ints * sizeof *r->ints);
    kept->items = keep(&at, r->items, kept->n_phases * sizeof *r->items);
    return at;
}
