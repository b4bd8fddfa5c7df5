/* Numbers that look random and are the same on every machine. */
#ifndef INLAY_PACKING_RANDOM_H
#define INLAY_PACKING_RANDOM_H

#include <stdint.h>

/* A number from 0 to below `limit`, which is more than 0; the state may start at anything. */
static inline uint32_t packing_random(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % limit);
}

#endif
