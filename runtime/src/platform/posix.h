/* The host side for POSIX systems: memory, threads, mappings. C11 atomics; not part of the core. */
#ifndef INLAY_POSIX_H
#define INLAY_POSIX_H

#include "inlay_rt.h"

typedef struct inlay_posix inlay_posix_t;

/* `threads` counts the caller: n - 1 workers are started when parallel work first comes. Workers and
 * memory are those of the process; see team.h. */
inlay_posix_t *inlay_posix_open(int threads);
void inlay_posix_close(inlay_posix_t *posix);
/* Around a call: between calls workers are there for other hosts. 0 without memory. Who never enters
 * keeps the workers that it used first. */
int inlay_posix_enter(inlay_posix_t *posix);
void inlay_posix_leave(inlay_posix_t *posix);

/* Functions for an inlay_host_t whose `user` is the inlay_posix_t, or for one that calls them. */
void *inlay_posix_allocate(void *posix, size_t bytes, size_t align);
void inlay_posix_release(void *posix, void *memory, size_t bytes, size_t align);
/* `lift` of an inlay_host_t, where `inlay_posix_lifts` says that the system can: Linux, from 5.7 on. */
int inlay_posix_lifts(void);
void *inlay_posix_lift(void *posix, void *data, size_t bytes, void **block, size_t *block_bytes);
void inlay_posix_parallel(void *posix, inlay_part_t part, void *argument, int64_t parts);
int64_t inlay_posix_now(void *posix);
extern const inlay_threads_t inlay_posix_threads;

/* Map a file read-only; NULL with errno set where that fails. */
const uint8_t *inlay_posix_map_file(const char *path, size_t *bytes);
/* Map part of a file, or a copy of bytes in memory, read-execute. */
const void *inlay_posix_map_code(const char *path, size_t offset, size_t bytes);
const void *inlay_posix_copy_code(const uint8_t *code, size_t bytes);
void inlay_posix_unmap(const void *address, size_t bytes);

#endif
