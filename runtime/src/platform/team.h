/* What a process has once for all hosts in it: workers, and memory that is kept between uses.
 *
 * A host has workers while calls of it run: it takes a *team* that no other has, or makes one, or
 * shares one where the process has as many workers as it should. So many executables that are not
 * called at once have the workers of one. Memory that comes back is kept up to one limit; what hosts
 * keep themselves counts too. When the last host closes, all of this goes. A forked child begins
 * without workers. */
#ifndef INLAY_TEAM_H
#define INLAY_TEAM_H

#include <stddef.h>

#include "pool.h"

typedef struct inlay_team inlay_team_t;

/* One host more or less. */
void inlay_team_open(void);
void inlay_team_close(void);

/* Take workers, those of `last` if they are free (NULL for none); NULL without memory. They remain
 * valid after they are given back, as long as there are hosts. */
inlay_team_t *inlay_team_take(inlay_team_t *last, int threads);
void inlay_team_give(inlay_team_t *team);
inlay_pool_t *inlay_team_pool(const inlay_team_t *team);

void *inlay_team_allocate(size_t bytes, size_t align);
void inlay_team_release(void *memory, size_t bytes, size_t align);
/* What somebody keeps has changed; whether that is too much, so that some should be released. */
int inlay_team_keeps(size_t before, size_t now);
/* Bytes that are kept, also by others; sets the limit, unless that is SIZE_MAX. */
size_t inlay_team_kept(size_t limit);
/* Workers that there are in the process. */
int inlay_team_workers(void);

#endif
