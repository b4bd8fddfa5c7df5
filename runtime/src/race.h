/* The race detector: a build with INLAY_RACES=1 in which every access of a call is compared with all
 * before it. See race.c. Without it all of this is nothing. */
#ifndef INLAY_RACE_H
#define INLAY_RACE_H

#include "inlay_rt.h"

struct inlay_activation;
struct inlay_command;
struct inlay_storage;

#if INLAY_RACES

/* Ways to make a plan wrong, for tests of the detector. */
enum {
    SABOTAGE_NONE,
    SABOTAGE_READ,  /* a command that reads does not wait for the one that writes */
    SABOTAGE_REUSE, /* a command that writes does not wait for the one that reads or writes */
    SABOTAGE_WAIT,  /* the issuer does not wait for what it reads */
    SABOTAGE_GUARD  /* a write overtakes what a suspended task has still to read */
};

typedef struct inlay_race {
    struct inlay_shadow *shadows, *free_shadows;
    uint64_t *before;  /* MOST_OPS rows: which operations are known to precede each */
    uint64_t *retired; /* a row: those that precede what the issuer does now */
    uint32_t n_ops;
    int is_found;
    inlay_error_t found;
    int sabotage, countdown;
} inlay_race_t;

inlay_status_t inlay_race_open(struct inlay_activation *m);
void inlay_race_close(struct inlay_activation *m);
/* Forget: nothing is in flight. */
void inlay_race_reset(struct inlay_activation *m);
/* A command gets its number; 0 where there is no room before nothing is in flight. */
int inlay_race_has_room(const struct inlay_activation *m);
void inlay_race_begin(struct inlay_activation *m, struct inlay_command *command);
void inlay_race_edge(struct inlay_activation *m, const struct inlay_command *before,
                     struct inlay_command *command);
void inlay_race_check(struct inlay_activation *m, const struct inlay_command *command);
void inlay_race_retire(struct inlay_activation *m, const struct inlay_command *command);
/* The issuer reads or writes bytes itself. */
void inlay_race_direct(struct inlay_activation *m, const struct inlay_storage *storage,
                       const void *at, size_t bytes, int writes);
/* Break the plan the nth time that it can be. */
void inlay_race_sabotage(struct inlay_activation *m, int kind, int nth);
/* Whether to do it now. */
int inlay_race_spoils(struct inlay_activation *m, int kind);

#else
#define inlay_race_open(m) INLAY_OK
#define inlay_race_close(m) ((void)0)
#define inlay_race_reset(m) ((void)0)
#define inlay_race_has_room(m) 1
#define inlay_race_begin(m, command) ((void)0)
#define inlay_race_edge(m, before, command) ((void)0)
#define inlay_race_check(m, command) ((void)0)
#define inlay_race_retire(m, command) ((void)0)
#define inlay_race_direct(m, storage, at, bytes, writes) ((void)0)
#define inlay_race_spoils(m, kind) 0
#endif

#endif
