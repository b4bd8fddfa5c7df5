#define _GNU_SOURCE
#include "team.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEPT 64
#define KEEP_FROM ((size_t)32 << 10)
#define LEAST_LIMIT ((size_t)256 << 20)
#define PART_OF_MEMORY 32 /* the limit is this part of the machine's memory, if that is more */
#define SMALL_ALIGN 64u
#define HUGE_PAGE ((size_t)2 << 20)
#define LEAST_WORKERS 4

typedef struct kept {
    void *memory;
    size_t bytes, align;
    uint64_t age;
} kept_t;

struct inlay_team {
    inlay_team_t *next;
    inlay_pool_t *pool;
    int threads, users;
};

/* Of the process; everything under the lock. */
static struct process {
    pthread_mutex_t lock;
    pthread_once_t once;
    int hosts, workers;
    inlay_team_t *teams;
    kept_t kept[KEPT];
    size_t kept_bytes, kept_elsewhere, limit;
    uint64_t age;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* ------------------------------------------------------------------------------- processes */

static void before_fork(void) { pthread_mutex_lock(&process.lock); }
static void after_fork(void) { pthread_mutex_unlock(&process.lock); }

/* The parent's workers are not here, and what they hold stays held: forget them. */
static void in_child(void)
{
    process.teams = NULL;
    process.workers = 0;
    pthread_mutex_init(&process.lock, NULL);
}

static void begin(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    process.limit = LEAST_LIMIT;
    if (pages > 0 && page > 0 && (size_t)pages / PART_OF_MEMORY * (size_t)page > process.limit)
        process.limit = (size_t)pages / PART_OF_MEMORY * (size_t)page;
    pthread_atfork(before_fork, after_fork, in_child);
}

void inlay_team_open(void)
{
    pthread_once(&process.once, begin);
    pthread_mutex_lock(&process.lock);
    process.hosts++;
    pthread_mutex_unlock(&process.lock);
}

/* ----------------------------------------------------------------------------------- teams */

static inlay_team_t *new_team(int threads)
{
    inlay_team_t *team = calloc(1, sizeof *team);
    if (!team) return NULL;
    team->pool = inlay_pool_open(threads);
    if (!team->pool) {
        free(team);
        return NULL;
    }
    team->threads = threads;
    team->next = process.teams;
    process.teams = team;
    process.workers += threads - 1;
    return team;
}

/* Whether the workers of `a` suit better than those of `b`. */
static int suits(const inlay_team_t *a, const inlay_team_t *b, int threads)
{
    if (!b) return 1;
    if ((a->threads >= threads) != (b->threads >= threads)) return a->threads >= threads;
    return a->users < b->users;
}

static void close_teams(inlay_team_t *teams)
{
    inlay_team_t *next;
    for (; teams; teams = next) {
        next = teams->next;
        inlay_pool_close(teams->pool);
        free(teams);
    }
}

/* Whether workers for so many threads stay within the limit. Asking for the processors reads a file, which
 * takes longer than a small program: not in every call. */
static int has_room(int threads)
{
    long most = sysconf(_SC_NPROCESSORS_ONLN);
    if (most < LEAST_WORKERS) most = LEAST_WORKERS;
    return process.workers + threads - 1 <= most;
}

/* Beyond the limit of workers calls share teams, but only those that have all the threads that were
 * asked for: what waits for each other in four threads must not find two. Teams stay while there are
 * hosts, which may wake a team after their calls. */
inlay_team_t *inlay_team_take(inlay_team_t *last, int threads)
{
    inlay_team_t *team, *found = NULL, *shared = NULL;
    if (threads < 1) threads = 1;
    pthread_mutex_lock(&process.lock);
    for (team = process.teams; team; team = team->next) {
        const int is_free = team->threads == threads && (!team->users || threads == 1);
        if (is_free && (!found || team == last)) found = team;
        if (suits(team, shared, threads)) shared = team;
    }
    if (!found && (!shared || shared->threads < threads || has_room(threads)))
        found = new_team(threads);
    if (!found) found = shared;
    if (found) found->users++;
    pthread_mutex_unlock(&process.lock);
    return found;
}

void inlay_team_give(inlay_team_t *team)
{
    pthread_mutex_lock(&process.lock);
    team->users--;
    pthread_mutex_unlock(&process.lock);
}

inlay_pool_t *inlay_team_pool(const inlay_team_t *team) { return team->pool; }

int inlay_team_workers(void)
{
    int n;
    pthread_mutex_lock(&process.lock);
    n = process.workers;
    pthread_mutex_unlock(&process.lock);
    return n;
}

void inlay_team_close(void)
{
    inlay_team_t *teams = NULL;
    int i;
    pthread_mutex_lock(&process.lock);
    if (--process.hosts == 0) {
        teams = process.teams;
        process.teams = NULL;
        process.workers = 0;
        for (i = 0; i < KEPT; i++) {
            free(process.kept[i].memory);
            process.kept[i].memory = NULL;
        }
        process.kept_bytes = 0;
    }
    pthread_mutex_unlock(&process.lock);
    close_teams(teams);
}

/* ---------------------------------------------------------------------------------- memory */

static void *take_kept(size_t bytes, size_t align)
{
    void *memory = NULL;
    int i;
    pthread_mutex_lock(&process.lock);
    for (i = 0; i < KEPT && !memory; i++) {
        kept_t *kept = &process.kept[i];
        if (kept->bytes != bytes || kept->align != align || !kept->memory) continue;
        memory = kept->memory;
        kept->memory = NULL;
        process.kept_bytes -= bytes;
    }
    pthread_mutex_unlock(&process.lock);
    return memory;
}

/* Small results come and go with each call, and aligned memory of the C library takes twice as long as other:
 * the byte in front of what is given says how far it is from what was taken. */
static void *take_small(size_t bytes)
{
    uint8_t *taken = malloc(bytes + SMALL_ALIGN), *given;
    if (!taken) return NULL;
    given = taken + SMALL_ALIGN - (uintptr_t)taken % SMALL_ALIGN;
    given[-1] = (uint8_t)(given - taken);
    return given;
}

static void give_small(uint8_t *given) { free(given - given[-1]); }

static int is_small(size_t bytes, size_t align) { return bytes < KEEP_FROM && align <= SMALL_ALIGN; }

void *inlay_team_allocate(size_t bytes, size_t align)
{
    void *memory = NULL;
    int is_huge = bytes >= 2 * HUGE_PAGE;
    if (is_small(bytes, align)) return take_small(bytes);
    if (bytes >= KEEP_FROM) memory = take_kept(bytes, align);
    if (memory) return memory;
    if (posix_memalign(&memory, is_huge && align < HUGE_PAGE ? HUGE_PAGE : align, bytes) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (is_huge) madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return memory;
}

/* With the lock taken: what is kept longest leaves until `bytes` more are within the limit and there
 * is a place for them, which is returned; -1 where they are too many by themselves. */
static int make_place(size_t bytes, void **evicted, int *n)
{
    for (;;) {
        int oldest = -1, empty = -1, i;
        for (i = 0; i < KEPT; i++) {
            if (!process.kept[i].memory) empty = i;
            else if (oldest < 0 || process.kept[i].age < process.kept[oldest].age) oldest = i;
        }
        if (process.kept_bytes + process.kept_elsewhere + bytes <= process.limit && empty >= 0)
            return empty;
        if (oldest < 0) return bytes ? -1 : empty;
        evicted[(*n)++] = process.kept[oldest].memory;
        process.kept[oldest].memory = NULL;
        process.kept_bytes -= process.kept[oldest].bytes;
    }
}

/* Give the pages of a block back at once: what `free` gets need not leave the process. */
static void give_pages(uint8_t *memory, size_t bytes)
{
#ifdef MADV_DONTNEED
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)memory;
    const uintptr_t first = (at + page - 1) / page * page, last = (at + bytes) / page * page;
    if (last > first) madvise(memory + (first - at), last - first, MADV_DONTNEED);
#else
    (void)memory, (void)bytes;
#endif
}

void inlay_team_release(void *memory, size_t bytes, size_t align)
{
    void *evicted[KEPT + 1];
    int n = 0, at = -1, i;
    if (align == INLAY_STATE_ALIGN && bytes >= KEEP_FROM) {
        give_pages(memory, bytes);
        free(memory);
        return;
    }
    if (bytes < KEEP_FROM) {
        if (memory && is_small(bytes, align)) give_small(memory);
        else free(memory);
        return;
    }
    pthread_mutex_lock(&process.lock);
    if (bytes <= process.limit) at = make_place(bytes, evicted, &n);
    if (at >= 0) {
        const kept_t kept = {memory, bytes, align, ++process.age};
        process.kept[at] = kept;
        process.kept_bytes += bytes;
    } else {
        evicted[n++] = memory;
    }
    pthread_mutex_unlock(&process.lock);
    for (i = 0; i < n; i++) free(evicted[i]);
}

int inlay_team_keeps(size_t before, size_t now)
{
    void *evicted[KEPT + 1];
    int n = 0, i, is_more;
    pthread_mutex_lock(&process.lock);
    process.kept_elsewhere += now - before;
    if (process.kept_bytes + process.kept_elsewhere > process.limit) make_place(0, evicted, &n);
    is_more = process.kept_elsewhere > process.limit;
    pthread_mutex_unlock(&process.lock);
    for (i = 0; i < n; i++) free(evicted[i]);
    return is_more;
}

size_t inlay_team_kept(size_t limit)
{
    void *evicted[KEPT + 1];
    size_t bytes;
    int n = 0, i;
    pthread_once(&process.once, begin);
    pthread_mutex_lock(&process.lock);
    if (limit != SIZE_MAX) {
        process.limit = limit;
        make_place(0, evicted, &n);
    }
    bytes = process.kept_bytes + process.kept_elsewhere;
    pthread_mutex_unlock(&process.lock);
    for (i = 0; i < n; i++) free(evicted[i]);
    return bytes;
}
