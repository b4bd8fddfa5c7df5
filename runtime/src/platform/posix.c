/* The host of a POSIX system: memory and threads of the process (team.h), mappings of files and code. */
#define _GNU_SOURCE
#include "posix.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parking.h"
#include "team.h"

struct inlay_posix {
    int threads;
    pthread_mutex_t lock;
    int users;                     /* calls that run; the lock's */
    int has_team;                  /* it stays: of one thread, or somebody used workers outside of calls */
    _Atomic(inlay_team_t *) team;  /* of the calls that run, or ran last */
};

inlay_posix_t *inlay_posix_open(int threads)
{
    inlay_posix_t *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->threads = threads;
    pthread_mutex_init(&p->lock, NULL);
    inlay_team_open();
    return p;
}

static void leave(inlay_posix_t *p);

void inlay_posix_close(inlay_posix_t *p)
{
    if (!p) return;
    if (p->has_team) leave(p);
    pthread_mutex_destroy(&p->lock);
    inlay_team_close();
    free(p);
}

/* ---------------------------------------------------------------------------------- memory */

void *inlay_posix_allocate(void *posix, size_t bytes, size_t align)
{
    (void)posix;
    return inlay_team_allocate(bytes, align);
}

void inlay_posix_release(void *posix, void *memory, size_t bytes, size_t align)
{
    (void)posix;
    if (align == INLAY_LIFTED) munmap(memory, bytes);
    else inlay_team_release(memory, bytes, align);
}

#ifdef __linux__
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static uintptr_t page_bytes(void) { return (uintptr_t)sysconf(_SC_PAGESIZE); }

static uint8_t *map_pages(size_t bytes)
{
    void *pages =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

/* Put the pages at `from` in the place of those at `to`; fresh ones stay behind. */
static int move_pages(uint8_t *from, size_t bytes, uint8_t *to)
{
    return mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to;
}

int inlay_posix_lifts(void)
{
    const size_t page = page_bytes();
    uint8_t *pages = map_pages(2 * page);
    int moved;
    if (!pages) return 0;
    pages[0] = 1;
    moved = move_pages(pages, page, pages + page) && pages[page] == 1 && pages[0] == 0;
    munmap(pages, 2 * page);
    return moved;
}

/* Whole pages are moved, what is before and behind them is copied. */
void *inlay_posix_lift(void *posix, void *data, size_t bytes, void **block, size_t *block_bytes)
{
    const uintptr_t page = page_bytes(), at = (uintptr_t)data, end = at + bytes;
    const uintptr_t first = at / page * page, inside = (at + page - 1) / page * page;
    const uintptr_t last = end / page * page;
    uint8_t *made;
    (void)posix;
    if (last <= inside) return NULL;
    *block_bytes = (end + page - 1) / page * page - first;
    made = map_pages(*block_bytes);
    if (!made) return NULL;
    if (!move_pages((uint8_t *)inside, last - inside, made + (inside - first))) {
        /* They may be unmapped by now, and somebody else's. */
        if (inside > first) munmap(made, page);
        if (end > last) munmap(made + (last - first), page);
        return NULL;
    }
    memcpy(made + (at - first), data, inside - at);
    memcpy(made + (last - first), (const uint8_t *)last, end - last);
    *block = made;
    return made + (at - first);
}
#else
int inlay_posix_lifts(void) { return 0; }

void *inlay_posix_lift(void *posix, void *data, size_t bytes, void **block, size_t *block_bytes)
{
    (void)posix, (void)data, (void)bytes, (void)block, (void)block_bytes;
    return NULL;
}
#endif

/* --------------------------------------------------------------------------------- threads */

/* With the lock taken: one user more; 0 without memory. */
static int use(inlay_posix_t *p)
{
    if (!p->users) {
        inlay_team_t *team = inlay_team_take(atomic_load(&p->team), p->threads);
        if (!team) return 0;
        atomic_store(&p->team, team);
    }
    p->users++;
    return 1;
}

static void leave(inlay_posix_t *p)
{
    pthread_mutex_lock(&p->lock);
    if (--p->users == 0) inlay_team_give(atomic_load(&p->team));
    pthread_mutex_unlock(&p->lock);
}

/* Of who does not say when calls begin and end; NULL without memory. */
static inlay_pool_t *pool_of(void *posix)
{
    inlay_posix_t *p = posix;
    inlay_team_t *team = atomic_load(&p->team);
    if (!team) {
        pthread_mutex_lock(&p->lock);
        if (!p->has_team) p->has_team = use(p);
        pthread_mutex_unlock(&p->lock);
        team = atomic_load(&p->team);
    }
    return team ? inlay_team_pool(team) : NULL;
}

/* A team of one thread has no workers that others could use: it stays, and calls take no locks. */
int inlay_posix_enter(inlay_posix_t *p)
{
    int is_in;
    if (p->threads <= 1) return pool_of(p) != NULL;
    pthread_mutex_lock(&p->lock);
    is_in = use(p);
    pthread_mutex_unlock(&p->lock);
    return is_in;
}

void inlay_posix_leave(inlay_posix_t *p)
{
    if (p->threads > 1) leave(p);
}

void inlay_posix_parallel(void *posix, inlay_part_t part, void *argument, int64_t parts)
{
    inlay_pool_parallel(pool_of(posix), part, argument, parts);
}

int64_t inlay_posix_now(void *posix)
{
    (void)posix;
    return inlay_parking_now();
}

static void *open_lock(void *posix)
{
    (void)posix;
    return inlay_pool_lock_open();
}
static void close_lock(void *posix, void *lock)
{
    (void)posix;
    inlay_pool_lock_close(lock);
}
static void take_lock(void *posix, void *lock)
{
    (void)posix;
    inlay_pool_lock(lock);
}
static void give_lock(void *posix, void *lock)
{
    (void)posix;
    inlay_pool_unlock(lock);
}
static void wait(void *posix, void *lock, int64_t ns) { inlay_pool_wait(pool_of(posix), lock, ns); }
static void wake(void *posix, void *lock) { inlay_pool_wake(pool_of(posix), lock); }
static void offer(void *posix, inlay_job_t *job) { inlay_pool_offer(pool_of(posix), job); }
static void withdraw(void *posix, inlay_job_t *job) { inlay_pool_withdraw(pool_of(posix), job); }

const inlay_threads_t inlay_posix_threads = {open_lock, close_lock, take_lock, give_lock, wait,
                                             wake,      offer,      withdraw};

/* -------------------------------------------------------------------------------- mappings */

const uint8_t *inlay_posix_map_file(const char *path, size_t *bytes)
{
    struct stat info;
    void *address;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NULL;
    if (fstat(file, &info) != 0) {
        close(file);
        return NULL;
    }
    *bytes = (size_t)info.st_size;
    address = mmap(NULL, *bytes ? *bytes : 1, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    return address == MAP_FAILED ? NULL : address;
}

const void *inlay_posix_map_code(const char *path, size_t offset, size_t bytes)
{
    void *address;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NULL;
    address = mmap(NULL, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, (off_t)offset);
    close(file);
    return address == MAP_FAILED ? NULL : address;
}

const void *inlay_posix_copy_code(const uint8_t *code, size_t bytes)
{
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return NULL;
    memcpy(address, code, bytes);
    if (mprotect(address, bytes, PROT_READ | PROT_EXEC) != 0) {
        munmap(address, bytes);
        return NULL;
    }
    __builtin___clear_cache((char *)address, (char *)address + bytes);
    return address;
}

void inlay_posix_unmap(const void *address, size_t bytes)
{
    if (address) munmap((void *)(uintptr_t)address, bytes ? bytes : 1);
}
