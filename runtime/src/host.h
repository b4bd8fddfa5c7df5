/* Memory of the host for what drivers and servers keep. */
#ifndef INLAY_HOST_H
#define INLAY_HOST_H

#include <string.h>

#include "inlay_rt.h"

/* Zeroed memory, or NULL. */
static inline void *inlay_take(const inlay_host_t *host, size_t bytes)
{
    void *made = host->allocate(host->user, bytes, sizeof(uint64_t));
    return made ? memset(made, 0, bytes) : NULL;
}

static inline void inlay_give(const inlay_host_t *host, void *memory, size_t bytes)
{
    host->release(host->user, memory, bytes, sizeof(uint64_t));
}

#endif
