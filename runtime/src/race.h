/* The race detector: every access of a call is compared with those before it that it meets, where the
 * configuration says so. See race.c. In a build with INLAY_RACES=0 all of this is nothing. */
#ifndef INLAY_RACE_H
#define INLAY_RACE_H

#include "inlay_rt.h"

struct inlay_activation;
struct inlay_command;
struct inlay_storage;
struct inlay_compound;
struct inlay_heap;
struct inlay_view;
struct inlay_kernel;
struct inlay_function;
struct inlay_slot;

#if INLAY_RACES

/* Ways to make a plan wrong, for tests of the detector. */
enum {
    SABOTAGE_NONE,
    SABOTAGE_READ,  /* a command that reads does not wait for the one that writes */
    SABOTAGE_REUSE, /* a command that writes does not wait for the one that reads or writes */
    SABOTAGE_WAIT,  /* the issuer does not wait for what it reads */
    SABOTAGE_GUARD, /* a write overtakes what a suspended task has still to read */
    SABOTAGE_EFFECT, /* what follows a call that has effects does not wait for it */
    SABOTAGE_VIEW,   /* a view is taken for a copy, so that writes go through it */
    SABOTAGE_BATCH   /* tensors of a batch are taken to lie one behind the other */
};

typedef struct inlay_race {
    int is_on;
    struct inlay_shadow *shadows, *free_shadows; /* those in use; the others */
    struct inlay_trace *free_traces, **buckets;  /* traces of shadows, by where they are */
    uint64_t *before;  /* MOST_OPS rows: which operations are known to precede each */
    uint64_t *retired; /* a row: those that precede what the issuer does now */
    uint64_t stamp;    /* of the access that is compared */
    uint32_t n_ops;
    int is_found;
    inlay_error_t found;
    int sabotage, countdown;
} inlay_race_t;

inlay_status_t inlay_race_open(struct inlay_activation *m);
void inlay_race_close(struct inlay_activation *m);
/* Forget: nothing is in flight. */
void inlay_race_forget(struct inlay_activation *m);
/* A command gets its number; 0 where there is no room before nothing is in flight. */
int inlay_race_fits(const struct inlay_activation *m);
void inlay_race_number(struct inlay_activation *m, struct inlay_command *command);
void inlay_race_follow(struct inlay_activation *m, const struct inlay_command *before,
                       struct inlay_command *command);
void inlay_race_compare(struct inlay_activation *m, const struct inlay_command *command);
void inlay_race_end(struct inlay_activation *m, const struct inlay_command *command);
/* The issuer reads or writes bytes itself; makes, reads or writes a cell. */
void inlay_race_touch(struct inlay_activation *m, const struct inlay_storage *storage,
                      const void *at, size_t bytes, int writes);
void inlay_race_of_cell(struct inlay_activation *m, const struct inlay_compound *cell, int writes);
void inlay_race_made_cell(struct inlay_activation *m, const struct inlay_compound *cell);
/* Before and after a kernel runs in the host: whether what it is said to read stays what it is. */
void inlay_race_remember(struct inlay_command *command);
inlay_status_t inlay_race_kept(const struct inlay_command *command, inlay_error_t *error);
/* Whether what runs as one, as `all`, touches just the tensors of those that it runs. */
inlay_status_t inlay_race_rows(const struct inlay_command *first, const struct inlay_command *all,
                               inlay_error_t *error);
/* Say which operation: of a kernel, or what it is; the instruction is NULL outside the program. */
void inlay_race_say(const struct inlay_activation *m, inlay_error_t *error,
                    const struct inlay_kernel *kernel, const char *what,
                    const struct inlay_function *function, const uint32_t *pc);
/* race_tensors.c. A tensor is read or written at so many bytes, by a kernel or (NULL) something else; the tensors of a
 * kernel are. INLAY_RACE where another tensor has written there what is read. */
inlay_status_t inlay_race_use(struct inlay_activation *m, const struct inlay_view *view,
                              const void *at, size_t bytes, const struct inlay_kernel *kernel,
                              int writes);
inlay_status_t inlay_race_invoke(struct inlay_activation *m, const struct inlay_kernel *kernel,
                                 const struct inlay_slot *tensors);
/* Break the plan the nth time that it can be. */
void inlay_race_sabotage(struct inlay_activation *m, int kind, int nth);
/* Whether to do it now. */
int inlay_race_breaks(struct inlay_activation *m, int kind);

#define INLAY_RACES_ON(m) ((m)->issuer.race.is_on)
/* A new tensor gets its number; a view has that of its operand. Whether or not the detector is on. */
#define inlay_race_name(heap, view) \
    ((void)((view)->tensor = (view)->storage->newest = ++(heap)->serials))
#define inlay_race_same(view, of) ((void)((view)->tensor = (of)->tensor))
#define inlay_race_tensor(m, view, at, bytes, kernel, writes) \
    (INLAY_RACES_ON(m) ? inlay_race_use(m, view, at, bytes, kernel, writes) : INLAY_OK)
#define inlay_race_tensors(m, kernel, tensors) \
    (INLAY_RACES_ON(m) ? inlay_race_invoke(m, kernel, tensors) : INLAY_OK)
#else
#define INLAY_RACES_ON(m) 0
#define inlay_race_name(heap, view) ((void)0)
#define inlay_race_same(view, of) ((void)0)
#define inlay_race_tensor(m, view, at, bytes, kernel, writes) INLAY_OK
#define inlay_race_tensors(m, kernel, tensors) INLAY_OK
#define inlay_race_open(m) INLAY_OK
#define inlay_race_close(m) ((void)0)
#define inlay_race_forget(m) ((void)0)
#define inlay_race_fits(m) 1
#define inlay_race_number(m, command) ((void)0)
#define inlay_race_follow(m, before, command) ((void)0)
#define inlay_race_compare(m, command) ((void)0)
#define inlay_race_end(m, command) ((void)0)
#define inlay_race_touch(m, storage, at, bytes, writes) ((void)0)
#define inlay_race_of_cell(m, cell, writes) ((void)0)
#define inlay_race_made_cell(m, cell) ((void)0)
#define inlay_race_remember(command) ((void)0)
#define inlay_race_kept(command, error) INLAY_OK
#define inlay_race_rows(first, all, error) INLAY_OK
#define inlay_race_breaks(m, kind) 0
#endif

/* What is called from elsewhere: nothing where it is off. */
#define IF_RACES(m, call) ((void)(INLAY_RACES_ON(m) ? ((call), 0) : 0))
#define inlay_race_reset(m) IF_RACES(m, inlay_race_forget(m))
#define inlay_race_has_room(m) (!INLAY_RACES_ON(m) || inlay_race_fits(m))
#define inlay_race_begin(m, command) IF_RACES(m, inlay_race_number(m, command))
#define inlay_race_edge(m, before, command) IF_RACES(m, inlay_race_follow(m, before, command))
#define inlay_race_check(m, command) IF_RACES(m, inlay_race_compare(m, command))
#define inlay_race_retire(m, command) IF_RACES(m, inlay_race_end(m, command))
#define inlay_race_direct(m, storage, at, bytes, writes) \
    IF_RACES(m, inlay_race_touch(m, storage, at, bytes, writes))
#define inlay_race_cell(m, cell, writes) IF_RACES(m, inlay_race_of_cell(m, cell, writes))
#define inlay_race_new_cell(m, cell) IF_RACES(m, inlay_race_made_cell(m, cell))
#define inlay_race_spoils(m, kind) (INLAY_RACES_ON(m) && inlay_race_breaks(m, kind))

#endif
